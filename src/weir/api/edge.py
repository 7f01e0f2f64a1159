"""The outermost layer: request ids, the limit of concurrency, timing, and problems for every error.

Hot routes are answered here, without a framework; everything else goes on to the control plane.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import structlog
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weir.api.bodies import check_json_type, read_body
from weir.api.door import LET_IN, Door
from weir.api.hot import Call, HotRoute, HotRoutes
from weir.api.instruments import Instruments
from weir.api.problems import MethodNotAllowed, error_reply
from weir.api.reply import Reply
from weir.api.services import Services
from weir.api.wire import ENDED_BY
from weir.errors import Overloaded, Unavailable, WeirError
from weir.model.ids import new_id

REQUEST_ID = "weir.request_id"
_WITH_BODY = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_SLOW_S = 1.0
CLIENT_LEFT = 499
"""The status under which a request is counted that nobody waits for any more."""
log = structlog.get_logger("weir.api")


class Edge:
    """An ASGI application around the hot routes and the control plane."""

    def __init__(
        self, services: Services, *, hot: HotRoutes, control: ASGIApp, instruments: Instruments
    ) -> None:
        self._services = services
        self._hot = hot
        self._control = control
        self._instruments = instruments
        self.door = Door(services, instruments)
        self.in_flight = 0
        self.polls = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._control(scope, receive, send)
            return
        if LET_IN in scope:
            self.door.entered()
        scope[REQUEST_ID] = request_id = new_id()
        path = raw_path(scope)
        found = self._hot.find(path)
        if found is None:
            await self._answer_control(scope, receive, send, path=path)
            return
        route, parameters = found
        started = time.perf_counter()
        reply = await self._answer_hot(scope, receive, route=route, parameters=parameters)
        if reply is not None:
            await _send(send, reply, request_id)
        status = _status_of_loss(scope) if reply is None else reply.status
        self._finish(scope, route.path, status, time.perf_counter() - started, hot=True)

    async def _answer_hot(
        self, scope: Scope, receive: Receive, *, route: HotRoute, parameters: Mapping[str, str]
    ) -> Reply | None:
        request_id = scope[REQUEST_ID]
        try:
            endpoint = route.endpoints.get(scope["method"])
            if endpoint is None:
                return _not_allowed(route, request_id)
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            call = Call(
                services=self._services,
                scope=scope,
                receive=receive,
                headers=headers,
                request_id=request_id,
                parameters=parameters,
            )
            self._enter(poll=route.poll)
            try:
                return await endpoint(call)
            finally:
                self._leave(poll=route.poll)
        except WeirError as error:
            return error_reply(error, request_id)
        except ClientDisconnect:
            return None
        except Exception:
            log.exception("request failed", request_id=request_id, path=route.path)
            return error_reply(internal(), request_id)

    async def _answer_control(self, scope: Scope, receive: Receive, send: Send, *, path: str) -> None:
        request_id = scope[REQUEST_ID]
        started = time.perf_counter()
        watch = _Watch(send, request_id)
        scope["path"] = path
        try:
            self._enter(poll=False)
            try:
                receive = await self._bounded(scope, receive)
                await self._control(scope, receive, watch)
            finally:
                self._leave(poll=False)
        except WeirError as error:
            await _send(send, error_reply(error, request_id), request_id)
            watch.status = error.status
        except ClientDisconnect:
            watch.status = watch.status or _status_of_loss(scope)
        except Exception:
            log.exception("request failed", request_id=request_id, path=path)
            if not watch.status:
                await _send(send, error_reply(internal(), request_id), request_id)
            watch.status = 500
        template = getattr(scope.get("route"), "path", "unmatched")
        self._finish(scope, template, watch.status, time.perf_counter() - started, hot=False)

    async def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        """Read the body under the limits, then hand it on in one piece."""
        if scope["method"] not in _WITH_BODY:
            return receive
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        body = await read_body(headers, receive, self._services.limits)
        if body and scope["path"].startswith(("/api/", "/admin/")):
            check_json_type(headers)
        return _Replay(body, receive)

    def _enter(self, *, poll: bool) -> None:
        limits = self._services.limits
        if poll:
            if self.polls >= limits.max_polls:
                raise Unavailable("too many long polls are in progress; try again", retry_after_s=1)
            self.polls += 1
            return
        if self.in_flight >= limits.max_concurrency:
            raise Overloaded("too many requests are in progress; try again", retry_after_s=1)
        self.in_flight += 1

    def _leave(self, *, poll: bool) -> None:
        if poll:
            self.polls -= 1
        else:
            self.in_flight -= 1

    def _finish(self, scope: Scope, route: str, status: int, took_s: float, *, hot: bool) -> None:
        self._instruments.observe(method=scope["method"], route=route, status=status, took_s=took_s)
        if status >= 500 and self._services.activity is not None:
            self._services.activity.failed()
        if not hot or status >= 500 or (took_s > _SLOW_S and status >= 400):
            log.info(
                "request",
                method=scope["method"],
                route=route,
                status=status,
                ms=round(took_s * 1000, 1),
                request_id=scope[REQUEST_ID],
            )


class _Replay:
    """A `receive` that hands on a body that was read already."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


class _Watch:
    """A `send` that adds the request id and remembers the status."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id.encode()
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), (b"request-id", self._request_id)]
        await self._send(message)


def raw_path(scope: Scope) -> str:
    """The path as it was sent, so that an encoded `/` inside a name stays inside it."""
    raw = scope.get("raw_path")
    path: str = scope["path"]
    if raw is None or b"%" not in raw:
        return path
    return str(raw.partition(b"?")[0].decode("ascii", errors="replace"))


def _status_of_loss(scope: Scope) -> int:
    """What to note for a request whose client left, or was told by the server that it was too slow."""
    error: WeirError | None = scope.get(ENDED_BY)
    return CLIENT_LEFT if error is None else error.status


def internal() -> WeirError:
    return WeirError("something went wrong here; the log has the details under this request's id")


def _not_allowed(route: HotRoute, request_id: str) -> Reply:
    methods = ", ".join(route.endpoints)
    error = MethodNotAllowed(f"`{route.path}` takes {methods}")
    reply = error_reply(error, request_id)
    return Reply(
        body=reply.body,
        status=reply.status,
        headers=(*reply.headers, (b"allow", methods.encode())),
        media_type=reply.media_type,
    )


async def _send(send: Send, reply: Reply, request_id: str) -> None:
    headers = [
        (b"content-type", reply.media_type),
        (b"content-length", str(len(reply.body)).encode()),
        (b"request-id", request_id.encode()),
        *reply.headers,
    ]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
