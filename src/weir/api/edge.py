"""The outermost layer: request ids, the limits of concurrency, timing, and problems for every error.

Hot routes are answered here, without a framework; everything else goes on to the control plane. A request
takes its slot when its token is verified and its last byte has arrived.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping

import structlog
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weir.api.auth import authenticate
from weir.api.bodies import (
    JSON_TYPES,
    check_is_json,
    check_json_type,
    check_parts,
    is_json_type,
    read_body,
)
from weir.api.hot import HotRequest, HotRoute, HotRoutes, PathTemplates
from weir.api.limits import Limits
from weir.api.problems import MethodNotAllowed, error_reply
from weir.api.services import Services
from weir.api.wire import (
    ADMITTED,
    PRINCIPAL,
    SLOT,
    Capacity,
    Instruments,
    Reply,
    RequestSlot,
    note_principal,
    status_of_loss,
)
from weir.errors import Overloaded, Unauthenticated, Unavailable, WeirError
from weir.model.beside_loop import LARGE_BYTES, PART_BYTES, beside_loop
from weir.model.holders import Holder
from weir.model.ids import new_id
from weir.tracing.requests import note_request_trace

REQUEST_ID = "weir.request_id"
_WITH_BODY = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_WITH_TOKEN = ("/api/", "/admin/")
"""Beginnings of paths that all need a token: the edge turns strangers away."""
_OTHER_CREDENTIALS = ("/hook/", "/channel/")
"""Beginnings of paths with another credential: a signature of the body, or the token of a channel."""
MAX_PARTS = 20_000
"""Objects and lists in a body for the control plane, which is read on the event loop: that many take 5 ms."""
_SLOW_S = 1.0
"""A hot request that was answered with a 4xx status is logged only if it took longer than this."""
log = structlog.get_logger("weir.api")


class Edge:
    """An ASGI application around the hot routes and the control plane."""

    def __init__(
        self,
        services: Services,
        *,
        hot: HotRoutes,
        control: ASGIApp,
        instruments: Instruments,
        streams: Collection[str] = (),
    ) -> None:
        limits = services.limits
        self.services = services
        self._hot = hot
        self._control = control
        self.instruments = instruments
        self._streams = PathTemplates(streams)
        self.requests = Capacity(limits.max_concurrency, _too_many_requests)
        self.polls = Capacity(limits.max_polls, _too_many_polls)
        self.streams = Capacity(limits.max_streams, _too_many_streams, most_each=limits.max_streams_per_token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._control(scope, receive, send)
            return
        if ADMITTED in scope:
            self._count_arrived(scope[ADMITTED])
        scope[REQUEST_ID] = request_id = new_id()
        if self.services.writes_spans:
            note_request_trace(scope["headers"])
        path = raw_path(scope)
        found = self._hot.find(path)
        if found is None or scope["method"] in found[0].elsewhere:
            await self._answer_control(scope, receive, send, path=path)
            return
        route, parameters = found
        started = time.perf_counter()
        reply = await self._answer_hot(scope, receive, route=route, parameters=parameters)
        if reply is not None:
            await _send(send, reply, request_id)
        status = status_of_loss(scope) if reply is None else reply.status
        self._finish(scope, route.path, status, time.perf_counter() - started, hot=True)

    def _count_arrived(self, holder: Holder) -> None:
        """Count a push as a request from now on. It was admitted when its head arrived."""
        if self.services.operations is not None:
            self.services.operations.admission.count_arrived(holder)

    async def _answer_hot(
        self, scope: Scope, receive: Receive, *, route: HotRoute, parameters: Mapping[str, str]
    ) -> Reply | None:
        request_id = scope[REQUEST_ID]
        endpoint = route.endpoints.get(scope["method"])
        if endpoint is None:
            return _not_allowed(route, request_id)
        slot = scope[SLOT] = RequestSlot(self.polls if route.poll else self.requests)
        call = HotRequest(
            services=self.services,
            scope=scope,
            receive=receive,
            headers=_text_headers(scope),
            request_id=request_id,
            slot=slot,
            parameters=parameters,
        )
        try:
            return await endpoint(call)
        except WeirError as error:
            return error_reply(error, request_id)
        except ClientDisconnect:
            return None
        except Exception:
            log.exception("request failed", request_id=request_id, path=route.path)
            return error_reply(internal(), request_id)
        finally:
            slot.release()

    async def _answer_control(self, scope: Scope, receive: Receive, send: Send, *, path: str) -> None:
        request_id = scope[REQUEST_ID]
        started = time.perf_counter()
        watch = _Watch(send, request_id)
        scope["path"] = path
        slot = scope[SLOT] = RequestSlot(self.streams if self._streams.match(path) else self.requests)
        try:
            receive = await self._enter(scope, receive, slot)
            await self._control(scope, receive, watch)
        except WeirError as error:
            await _send(send, error_reply(error, request_id), request_id)
            watch.status = error.status
        except ClientDisconnect:
            watch.status = watch.status or status_of_loss(scope)
        except Exception:
            log.exception("request failed", request_id=request_id, path=path)
            if not watch.status:
                await _send(send, error_reply(internal(), request_id), request_id)
            watch.status = 500
        finally:
            slot.release()
        template = getattr(scope.get("route"), "path", "unmatched")
        self._finish(scope, template, watch.status, time.perf_counter() - started, hot=False)

    async def _enter(self, scope: Scope, receive: Receive, slot: RequestSlot) -> Receive:
        """Verify the token, read the body under the limits, take the slot; the body goes on in one piece."""
        headers = _text_headers(scope)
        await self._recognize(scope, headers)
        if scope["method"] not in _WITH_BODY:
            slot.take()
            return receive
        if scope["path"].startswith(_OTHER_CREDENTIALS):
            return _LazyBody(self.services.limits, headers, receive, slot)
        if PRINCIPAL not in scope:
            # No other route reads the body of a stranger.
            slot.take()
            return _Replay(b"", receive)
        body = await read_body(headers, receive, self.services.limits)
        slot.take()
        if body and scope["path"].startswith(("/api/", "/admin/")):
            check_json_type(headers)
            await beside_loop(_check_body, len(body), headers, body)
            if not is_json_type(headers):
                _declare_json(scope)
        return _Replay(body, receive)

    async def _recognize(self, scope: Scope, headers: Mapping[str, str]) -> None:
        """Note who sends the request. Where a token is not needed, a sender whose credential is invalid or
        cannot be checked is a stranger, and the route decides whether that matters."""
        demanded = scope["path"].startswith(_WITH_TOKEN)
        if not demanded and "authorization" not in headers:
            return
        try:
            note_principal(scope, await authenticate(headers, self.services.authenticator))
        except (Unauthenticated, Unavailable):
            if demanded:
                raise

    def _finish(self, scope: Scope, route: str, status: int, took_s: float, *, hot: bool) -> None:
        self.instruments.observe(method=scope["method"], route=route, status=status, took_s=took_s)
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


class _LazyBody:
    """A `receive` that reads the whole body when the route asks for it, after it verified its caller."""

    def __init__(
        self, limits: Limits, headers: Mapping[str, str], receive: Receive, slot: RequestSlot
    ) -> None:
        self._limits = limits
        self._headers = headers
        self._receive = receive
        self._slot = slot
        self._asked = False

    async def __call__(self) -> Message:
        if self._asked:
            return await self._receive()
        self._asked = True
        body = await read_body(self._headers, self._receive, self._limits)
        self._slot.take()
        return {"type": "http.request", "body": body, "more_body": False}


def _check_body(headers: Mapping[str, str], body: bytes) -> None:
    """Refuse a body that is not JSON, or has so many parts that reading it would take long."""
    check_is_json(headers, body)
    if len(body) >= LARGE_BYTES:
        check_parts(body, most=MAX_PARTS)


def _declare_json(scope: Scope) -> None:
    """Say that the body is JSON: FastAPI parses no other."""
    others = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
    scope["headers"] = [*others, (b"content-type", JSON_TYPES[0].encode())]


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
        else:
            await _send_in_parts(self._send, message)


def raw_path(scope: Scope) -> str:
    """The path as it was sent, so that an encoded `/` inside a name stays inside it."""
    raw = scope.get("raw_path")
    path: str = scope["path"]
    if raw is None or b"%" not in raw:
        return path
    return str(raw.partition(b"?")[0].decode("ascii", errors="replace"))


def _text_headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _too_many_requests() -> WeirError:
    return Overloaded("too many requests are in progress; try again", retry_after_s=1)


def _too_many_polls() -> WeirError:
    return Unavailable("too many long polls are in progress; try again", retry_after_s=1)


def _too_many_streams() -> WeirError:
    return Overloaded("too many streams are open; close some, or try again", retry_after_s=5)


def internal() -> WeirError:
    return WeirError("something went wrong here; the log has the details under this request's id")


def _not_allowed(route: HotRoute, request_id: str) -> Reply:
    methods = ", ".join((*route.endpoints, *route.elsewhere))
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
    await _send_in_parts(send, {"type": "http.response.body", "body": reply.body})


async def _send_in_parts(send: Send, message: Message) -> None:
    """Send a body, a large one in parts: copying all of it at once would hold the event loop."""
    body = message.get("body", b"")
    last = max(0, len(body) - 1) // PART_BYTES * PART_BYTES
    for start in range(0, last, PART_BYTES):
        await send({**message, "body": body[start : start + PART_BYTES], "more_body": True})
        # The client may read as fast as the parts come. The others get their turn all the same.
        await asyncio.sleep(0)
    await send({**message, "body": body[last:]} if last else message)
