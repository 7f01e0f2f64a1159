"""Pop: hand out messages under leases, waiting for the first one if asked to."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import orjson

from weir.admission.kinds import OperationType
from weir.api.auth import Access, queue_ref
from weir.api.bodies import JSON_TYPES, Fields, query_document
from weir.api.hot import HotRequest, HotRoute
from weir.api.wire import Reply
from weir.broker.broker import Source
from weir.control.principals import Role
from weir.errors import WeirError
from weir.model.beside_loop import beside_loop
from weir.model.limits import MAX_BATCH, MAX_LEASE_MS, MAX_WAIT_MS, MIN_LEASE_MS
from weir.model.message import Delivery, Failure

PayloadEncoding: TypeAlias = Literal["json", "base64"]
PAYLOAD_ENCODINGS: tuple[str, ...] = get_args(PayloadEncoding)
_CANCEL_S = 0.1
_NUMBERS = ("limit", "wait_ms", "lease_ms")


async def pop_by_query(call: HotRequest) -> Reply:
    """`GET /api/v1/pop`: what to pop stands in the query."""
    access = await call.access(Role.WRITE)
    call.admit(OperationType.POP)
    call.enter()
    return await _pop(call, access, Fields(query_document(call.query(), numbers=_NUMBERS), "query"))


async def pop(call: HotRequest) -> Reply:
    """`POST /api/v1/pop`: what to pop stands in the body."""
    access = await call.access(Role.WRITE)
    call.admit(OperationType.POP)
    _, document = await call.json_body()
    return await _pop(call, access, Fields(document))


async def _pop(call: HotRequest, access: Access, fields: Fields) -> Reply:
    name = fields.text("queue")
    limit = fields.number("limit", least=1, most=MAX_BATCH) or 1
    wait_ms = fields.number("wait_ms", least=0, most=MAX_WAIT_MS) or 0
    lease_ms = fields.number("lease_ms", least=MIN_LEASE_MS, most=MAX_LEASE_MS)
    consumer = fields.text("consumer") or access.principal.token_id
    as_base64 = fields.choice("payload_encoding", PAYLOAD_ENCODINGS) == "base64"
    fields.refuse_rest()
    source: Source = access.environment if name is None else queue_ref(access.environment, name)
    taking = call.services.broker.dequeue(
        source, consumer=consumer, limit=limit, lease_ms=lease_ms, wait_ms=wait_ms
    )
    deliveries = await (_wait_for_deliveries(call, taking) if wait_ms else taking)
    size = sum(len(one.payload) for one in deliveries)
    return await beside_loop(_reply, size, deliveries, as_base64=as_base64)


def _reply(deliveries: Sequence[Delivery], *, as_base64: bool) -> Reply:
    return Reply.json({"messages": [delivery_document(one, as_base64=as_base64) for one in deliveries]})


async def _wait_for_deliveries(call: HotRequest, taking: Any) -> Sequence[Delivery]:
    """The deliveries, unless the client leaves, its token ends or this process stops before there are any."""
    with call.watching_token() as ended:
        return await _wait_until_taken(call, taking, ended)


async def _wait_until_taken(call: HotRequest, taking: Any, ended: asyncio.Event) -> Sequence[Delivery]:
    take = asyncio.ensure_future(taking)
    gone = asyncio.ensure_future(call.wait_for_disconnect())
    stop = asyncio.ensure_future(call.services.stopping.wait())
    revoked = asyncio.ensure_future(ended.wait())
    try:
        await asyncio.wait({take, gone, stop, revoked}, return_when=asyncio.FIRST_COMPLETED)
        while not take.done():
            # A driver may swallow a cancellation, so cancel again until it takes effect.
            take.cancel()
            await asyncio.wait({take}, timeout=_CANCEL_S)
        deliveries: Sequence[Delivery] = () if take.cancelled() else take.result()
        if gone.done():
            await _give_back(call, deliveries)
            return []
        try:
            await call.check_token()
        except WeirError:
            await _give_back(call, deliveries)
            raise
        return deliveries
    finally:
        for task in (take, gone, stop, revoked):
            task.cancel()


async def _give_back(call: HotRequest, deliveries: Sequence[Delivery]) -> None:
    """Return messages at once if their consumer has left, and not only when their leases lapse."""
    failures = [
        Failure(lease=one.lease, error="the consumer left before the answer", delay_ms=0, uncounted=True)
        for one in deliveries
    ]
    if failures:
        await call.services.broker.nack(failures)


def delivery_document(delivery: Delivery, *, as_base64: bool) -> dict[str, Any]:
    """A message as it is handed out. A JSON payload keeps its bytes, unless base64 was asked for."""
    payload, kind = delivery.payload, delivery.headers.get("content-type")
    return {
        "id": delivery.message_id,
        "queue": delivery.queue.queue,
        "lease": delivery.lease.token,
        **(_encoded(payload) if as_base64 else payload_members(payload, kind)),
        "headers": dict(delivery.headers),
        "key": delivery.key,
        "priority": delivery.priority,
        "attempt": delivery.attempt,
        "enqueued_at_ms": delivery.enqueued_at_ms,
        "available_at_ms": delivery.available_at_ms,
        "lease_until_ms": delivery.lease_until_ms,
        "wait_ms": delivery.wait_ms,
        "idempotency_key": delivery.idempotency_key,
        "last_error": delivery.last_error,
    }


def payload_members(payload: bytes, content_type: str | None) -> dict[str, Any]:
    """`payload` if it is JSON text and not declared to be something else, `payload_base64` otherwise."""
    kind = (content_type or JSON_TYPES[0]).partition(";")[0].strip().lower()
    if kind in JSON_TYPES or kind.endswith("+json"):
        try:
            orjson.loads(payload)
        except orjson.JSONDecodeError:
            pass
        else:
            return {"payload": orjson.Fragment(payload)}
    return _encoded(payload)


def _encoded(payload: bytes) -> dict[str, Any]:
    return {"payload_base64": base64.b64encode(payload).decode()}


ROUTES = (HotRoute(path="/api/v1/pop", endpoints={"GET": pop_by_query, "POST": pop}, poll=True),)
