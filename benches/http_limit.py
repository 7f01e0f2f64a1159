"""A bare Starlette route on the same server set-up: the limit with which the API is compared."""

from __future__ import annotations

import asyncio
import sys

import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weir.serve.server import bind, listening


async def _take(request: Request) -> Response:
    body = await request.body()
    return Response(b'{"bytes":%d}' % len(body), media_type="application/json")


async def main(port: int) -> None:
    """Serve until killed."""
    app = Starlette(routes=[Route("/push", _take, methods=["POST"])])
    async with listening(app, bind("127.0.0.1", port), stopping=lambda: None):
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
