"""Serves the files of the dashboard, which is a client of the API that serves it."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

STATIC = Path(__file__).parent / "static"

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

NOT_BUILT = """<!doctype html><title>Weir</title>
<p>The dashboard is not built. Run <code>./weir doctor</code> once, or
<code>npm ci &amp;&amp; npm run build</code> in <code>src/weir/dashboard/web</code>.</p>"""


async def index(_: Request) -> Response:
    """The page. Only this file must not be cached, because the name of each asset contains its hash."""
    page = STATIC / "index.html"
    if not page.exists():
        return HTMLResponse(NOT_BUILT, status_code=503, headers=HEADERS)
    return FileResponse(page, headers={**HEADERS, "Cache-Control": "no-cache"})


class _Assets(StaticFiles):
    """Files whose name changes with their content."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response


def routes() -> list[BaseRoute]:
    """The routes that the application mounts. The assets may be built after the application has started."""
    return [
        Route("/", index, methods=["GET"], include_in_schema=False),
        Mount("/assets", _Assets(directory=STATIC / "assets", check_dir=False), name="assets"),
    ]
