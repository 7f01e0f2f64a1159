"""Serves the files of the dashboard, which is a client of the API that serves it."""

from __future__ import annotations

import asyncio
import mimetypes
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from weir.model.fixed_answers import FixedAnswer

STATIC = Path(__file__).parent / "static"

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_PAGE_HEADERS = {**HEADERS, "Cache-Control": "no-cache"}
"""Only the page must not be cached, because the name of each asset contains its hash."""
_ASSET_HEADERS = {
    "Cache-Control": "public, max-age=31536000, immutable",
    "X-Content-Type-Options": "nosniff",
}

NOT_BUILT = """<!doctype html><title>Weir</title>
<p>The dashboard is not built. Run <code>./weir doctor</code> once, or
<code>npm ci &amp;&amp; npm run build</code> in <code>src/weir/dashboard/web</code>.</p>"""


class Files:
    """The built files, kept in memory. They are read again when the page has changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._built_ns: int | None = None
        self._answers: dict[str, FixedAnswer] = {}
        self._reading = asyncio.Lock()

    async def find(self, name: str) -> FixedAnswer | None:
        """The file with this name below the folder; None if there is none."""
        if name in self._answers and name != "index.html":
            return self._answers[name]
        async with self._reading:
            built_ns = _changed_ns(self._folder / "index.html")
            if built_ns != self._built_ns:
                self._answers = await asyncio.to_thread(self._read)
                self._built_ns = built_ns
        return self._answers.get(name)

    def _read(self) -> dict[str, FixedAnswer]:
        assets = sorted((self._folder / "assets").glob("*"))
        found = {f"assets/{path.name}": _answer(path, _ASSET_HEADERS) for path in assets}
        page = self._folder / "index.html"
        return {**found, "index.html": _answer(page, _PAGE_HEADERS)} if page.exists() else found


def _answer(path: Path, headers: dict[str, str]) -> FixedAnswer:
    media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return FixedAnswer.of(path.read_bytes(), media_type=media_type, headers=headers)


def _changed_ns(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def routes(folder: Path = STATIC) -> list[BaseRoute]:
    """The routes that the application mounts. The files may be built after the application has started."""
    files = Files(folder)

    async def index(request: Request) -> Response:
        page = await files.find("index.html")
        if page is None:
            return HTMLResponse(NOT_BUILT, status_code=503, headers=HEADERS)
        return Response(*page.answer(request.headers))

    async def asset(request: Request) -> Response:
        found = await files.find(f"assets/{request.path_params['name']}")
        if found is None:
            raise HTTPException(404)
        return Response(*found.answer(request.headers))

    return [
        Route("/", index, methods=["GET"], include_in_schema=False),
        Route("/assets/{name}", asset, methods=["GET"], include_in_schema=False),
    ]
