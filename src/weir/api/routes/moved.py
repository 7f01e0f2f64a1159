"""Routes that moved: for one release the old path answers 404 and names the new one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import Response

from weir.errors import NotFound

router = APIRouter(include_in_schema=False)
METHODS = ["GET", "POST", "PUT", "DELETE"]

MOVED: Mapping[str, str] = {
    "/api/v1/channels/{channel_id}/token": "/api/v1/channels/{channel_id}/tokens",
    "/api/v1/channels/{channel_id}/consumers/{consumer_id}/token": (
        "/api/v1/channels/{channel_id}/consumers/{consumer_id}/tokens"
    ),
}
"""From the old path to the new one. Emptied with each release."""


def tell_move(target: str) -> Callable[[Request], Awaitable[Response]]:
    """Make an endpoint that answers with the new path."""

    async def tell(request: Request) -> Response:
        names = {name: quote(value, safe="") for name, value in request.path_params.items()}
        moved_to = target.format(**names)
        raise NotFound(f"this route moved to `{moved_to}`; send the request there", moved_to=moved_to)

    return tell


for old, new in MOVED.items():
    router.add_api_route(old, tell_move(new), methods=METHODS)
