"""The application: hot routes and control plane behind one edge."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, cast
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from weir.api.edge import REQUEST_ID, Edge, internal
from weir.api.hot import HotRoute, HotRoutes
from weir.api.live import LiveQueues
from weir.api.live_outcomes import LiveOutcomes
from weir.api.openapi import complete
from weir.api.problems import from_status, from_validation, problem_response
from weir.api.routes.table import HOT, ROUTERS, STREAMS
from weir.api.services import Services
from weir.api.wire import Instruments, status_of_loss
from weir.errors import Malformed, Unavailable, WeirError
from weir.model.fixed_answers import FixedAnswer, Once
from weir.model.shared_results import SharedResults

TITLE = "Weir"
DESCRIPTION = "A message queue that you can see through."
VERSION = "1"
_WRITE = (
    "import sys, orjson; from weir.api.app import describe; sys.stdout.buffer.write(orjson.dumps(describe()))"
)
_WRITTEN_S = 60.0
"""Ten times as long as it takes on a busy machine."""


def create_app(
    services: Services,
    *,
    routers: Sequence[APIRouter] = (),
    hot: Sequence[HotRoute] = (),
    routes: Sequence[BaseRoute] = (),
) -> Edge:
    """The ASGI application. `routes` (a dashboard, say) are tried after everything else."""
    instruments = Instruments()
    control = create_control(services, routers=routers, instruments=instruments)
    control.router.routes.extend(routes)
    return Edge(
        services,
        hot=HotRoutes((*HOT, *hot)),
        control=control,
        instruments=instruments,
        streams=STREAMS,
    )


def create_control(
    services: Services, *, routers: Sequence[APIRouter] = (), instruments: Instruments | None = None
) -> FastAPI:
    """The control plane alone; it also serves the OpenAPI description of all routes."""
    app = FastAPI(
        title=TITLE,
        description=DESCRIPTION,
        version=VERSION,
        dependencies=[Depends(decode_path)],
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        exception_handlers={
            WeirError: _on_weir_error,
            RequestValidationError: _on_validation_error,
            HTTPException: _on_http_error,
            ClientDisconnect: _on_loss,
            Exception: _on_any_error,
        },
    )
    app.state.services = services
    app.state.live = LiveQueues(services)
    app.state.live_outcomes = LiveOutcomes(services)
    app.state.instruments = instruments or Instruments()
    app.state.readiness = SharedResults[dict[str, str]]()
    app.state.scrapes = SharedResults[bytes]()
    for router in (*ROUTERS, *routers):
        app.include_router(router)
    app.router.routes.append(_description_route())
    _prepare_routes(app)
    return app


def _prepare_routes(app: FastAPI) -> None:
    """Match every route once: FastAPI makes them ready when they are first looked at, which takes 0.1 s."""
    nowhere = {"type": "http", "method": "GET", "path": "/", "root_path": "", "headers": []}
    for route in app.router.routes:
        route.matches(nowhere)


def _description_route() -> BaseRoute:
    """`/openapi.json`, written once, when somebody asks for it."""
    text = Once(_written_description)

    async def description(request: Request) -> Response:
        return Response(*(await text.get()).answer(request.headers))

    return Route("/openapi.json", description, methods=["GET"], include_in_schema=False)


def _written_description() -> FixedAnswer:
    """The description, written by a process of its own with the lowest priority.

    It takes half a second of Python, and in a thread that would delay every push of that time.
    """
    writing = subprocess.Popen([sys.executable, "-c", _WRITE], stdout=subprocess.PIPE)
    os.setpriority(os.PRIO_PROCESS, writing.pid, 19)
    try:
        text, _ = writing.communicate(timeout=_WRITTEN_S)
    finally:
        writing.kill()
        writing.wait()
    if writing.returncode != 0:
        raise Unavailable("the description could not be written; try again", retry_after_s=1)
    return FixedAnswer.of(text, media_type="application/json")


def _describe(app: FastAPI) -> dict[str, Any]:
    return complete(app.openapi())


def describe() -> dict[str, Any]:
    """The OpenAPI description; writing it needs no store."""
    return _describe(create_control(cast(Services, None)))


async def decode_path(request: Request) -> None:
    """Decode the parts of the path. They were matched undecoded, so that an encoded `/` stays in its name."""
    parameters = request.scope.get("path_params", {})
    try:
        for name, value in parameters.items():
            if isinstance(value, str):
                parameters[name] = unquote_to_bytes(value).decode()
    except UnicodeDecodeError:
        raise Malformed("the path is not percent-encoded UTF-8") from None


async def _on_weir_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, WeirError)
    return problem_response(error, instance=request.scope.get(REQUEST_ID))


async def _on_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return problem_response(from_validation(error.errors()), instance=request.scope.get(REQUEST_ID))


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    texts = {404: f"there is no route `{request.scope['path']}`", 405: "the route does not take this method"}
    detail = texts.get(error.status_code, str(error.detail))
    return problem_response(
        from_status(error.status_code, detail),
        instance=request.scope.get(REQUEST_ID),
        headers=dict(error.headers or {}),
    )


async def _on_loss(request: Request, _: Exception) -> Response:
    """The client has gone: nobody reads the answer, only its status is counted."""
    return Response(status_code=status_of_loss(request.scope))


async def _on_any_error(request: Request, _: Exception) -> Response:
    return problem_response(internal(), instance=request.scope.get(REQUEST_ID))
