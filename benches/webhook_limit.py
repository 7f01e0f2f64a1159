"""A bare Starlette route with the same signature check: the limit with which webhooks are compared."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import sys

import orjson
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weir.serve.server import bind, listening


async def _take(request: Request) -> Response:
    body = await request.body()
    expected = "sha256=" + hmac.new(sys.argv[2].encode(), body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected, request.headers.get("x-hub-signature-256", "")):
        return Response(status_code=401)
    orjson.loads(body)
    return Response(b'{"status":"accepted"}', status_code=202, media_type="application/json")


async def main(port: int) -> None:
    """Serve until killed."""
    app = Starlette(routes=[Route("/hook/bench", _take, methods=["POST"])])
    async with listening(app, bind("127.0.0.1", port), stopping=lambda: None):
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
