"""Ack, nack, extend, revoked: the routes for a message that was handed out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from weir.api.auth import Access, queue_ref
from weir.api.bodies import Fields, cut_entries
from weir.api.hot import HotRequest, HotRoute
from weir.api.routes.push import queued_document, uniform_error
from weir.api.wire import Reply
from weir.control.principals import Role
from weir.errors import LeaseLost
from weir.exchange.seam import Queued, Refused, SettleAnswer, Settled, SettleItem
from weir.model.ids import MessageId, check_id
from weir.model.limits import (
    MAX_BATCH,
    MAX_DELAY_MS,
    MAX_ERROR_BYTES,
    MAX_HANDLER_MS,
    MAX_LEASE_MS,
    MAX_RESULT_BYTES,
    MIN_LEASE_MS,
)
from weir.model.message import LeaseRef, Settlement, Verb
from weir.model.problem_documents import problem
from weir.model.shards import shard_of

ItemReader = Callable[[Access, Fields], SettleItem]


async def ack(call: HotRequest) -> Reply:
    """`POST /api/v1/ack`: one message is done, or failed if `status` says so."""
    return await _settle_one(call, _acknowledgment)


async def nack(call: HotRequest) -> Reply:
    """`POST /api/v1/nack`: one message failed; retried, or given up with `dead_letter`."""
    return await _settle_one(call, _failure)


async def ack_batch(call: HotRequest) -> Reply:
    """`POST /api/v1/ack/batch`: many at once, an answer for every item."""
    access = await call.access(Role.WRITE)
    body, document = await call.json_body()
    fields = Fields(document)
    entries = fields.array("acknowledgments", most=MAX_BATCH)
    fields.refuse_rest()
    # Nearly no batch has results, and cutting takes time.
    tell_results = any(isinstance(entry, dict) and "result" in entry for entry in entries)
    texts = cut_entries(body, "acknowledgments") if tell_results else [b""] * len(entries)
    items = [
        _acknowledgment(access, Fields(entry, f"#/acknowledgments/{index}", text=text))
        for index, (entry, text) in enumerate(zip(entries, texts, strict=True))
    ]
    answers = await call.services.settler.settle(items)
    failed = uniform_error(answers)
    if failed is not None:
        raise failed
    status = 202 if any(isinstance(answer, Queued) for answer in answers) else 200
    documents = [settled_document(item, answer) for item, answer in zip(items, answers, strict=True)]
    return Reply.json({"items": documents}, status=status)


async def extend(call: HotRequest) -> Reply:
    """`POST /api/v1/extend`: keep a lease longer."""
    access = await call.access(Role.WRITE)
    _, document = await call.json_body()
    fields = Fields(document)
    lease = lease_of(access, fields)
    lease_ms = fields.number("lease_ms", least=MIN_LEASE_MS, most=MAX_LEASE_MS)
    if lease_ms is None:
        raise fields.wrong("lease_ms", "is missing")
    fields.refuse_rest()
    broker = call.services.broker
    # Read the clock that ends the lease, and read it first: so the lease lasts at least until `until_ms`.
    now_ms = await broker.now_ms(shard_of(lease.queue.scope, shards=broker.shards))
    (outcome,) = await broker.extend([lease], lease_ms=lease_ms)
    if outcome is Settlement.CANCELLED:
        raise LeaseLost(
            f"message `{lease.message_id}` was cancelled, so its lease is revoked; nothing changed"
        )
    if outcome is not Settlement.DONE:
        raise lost(lease)
    until_ms = now_ms + lease_ms
    return Reply.json({"id": lease.message_id, "status": "extended", "lease_until_ms": until_ms})


async def revoked(call: HotRequest) -> Reply:
    """`POST /api/v1/revoked`: which of these messages were cancelled while they were leased."""
    access = await call.access(Role.WRITE)
    _, document = await call.json_body()
    fields = Fields(document)
    entries = fields.array("leases", most=MAX_BATCH)
    fields.refuse_rest()
    leases = [_whole_lease(access, Fields(entry, f"#/leases/{at}")) for at, entry in enumerate(entries)]
    answers = await call.services.broker.revoked(leases)
    told = zip(leases, answers, strict=True)
    return Reply.json({"revoked": [lease.message_id for lease, is_revoked in told if is_revoked]})


async def _settle_one(call: HotRequest, read: ItemReader) -> Reply:
    access = await call.access(Role.WRITE)
    body, document = await call.json_body()
    item = read(access, Fields(document, text=body))
    (answer,) = await call.services.settler.settle([item])
    match answer:
        case Refused():
            raise answer.error
        case Settled(outcome=Settlement.LAPSED):
            raise lost(item.lease)
    status = 202 if isinstance(answer, Queued) else 200
    return Reply.json(settled_document(item, answer), status=status)


def _acknowledgment(access: Access, fields: Fields) -> SettleItem:
    lease = lease_of(access, fields)
    if fields.is_empty:
        # Nearly every ack names its lease and nothing else.
        return SettleItem(lease=lease, verb=Verb.ACK)
    lease = _with_handler_time(lease, fields)
    status = fields.choice("status", ("completed", "failed"))
    error = fields.text("error", max_bytes=MAX_ERROR_BYTES)
    result = fields.json("result", max_bytes=MAX_RESULT_BYTES)
    fields.refuse_rest()
    if status == "failed":
        return SettleItem(lease=lease, verb=Verb.NACK, error=error or "")
    return SettleItem(lease=lease, verb=Verb.ACK, result=result)


def _failure(access: Access, fields: Fields) -> SettleItem:
    lease = _with_handler_time(lease_of(access, fields), fields)
    error = fields.text("error", max_bytes=MAX_ERROR_BYTES)
    delay_ms = fields.number("delay_ms", least=0, most=MAX_DELAY_MS)
    verb = Verb.DEAD_LETTER if fields.flag("dead_letter") else Verb.NACK
    uncounted = fields.flag("uncounted")
    fields.refuse_rest()
    return SettleItem(lease=lease, verb=verb, error=error or "", delay_ms=delay_ms, uncounted=uncounted)


def _with_handler_time(lease: LeaseRef, fields: Fields) -> LeaseRef:
    """The lease with the time that its handler ran, if the body tells it."""
    handler_ms = fields.number("handler_ms", least=0, most=MAX_HANDLER_MS)
    return lease if handler_ms is None else replace(lease, handler_ms=handler_ms)


def lease_of(access: Access, fields: Fields) -> LeaseRef:
    """The lease that a body names."""
    queue = queue_ref(access.environment, fields.required_text("queue"))
    message_id = check_id(fields.required_text("id"), what="message")
    return LeaseRef(queue=queue, message_id=MessageId(message_id), token=fields.required_text("lease"))


def _whole_lease(access: Access, fields: Fields) -> LeaseRef:
    lease = lease_of(access, fields)
    fields.refuse_rest()
    return lease


def settled_document(item: SettleItem, answer: SettleAnswer) -> dict[str, Any]:
    """The answer for one item: what became of its message."""
    head = {"id": item.lease.message_id}
    match answer:
        # This case comes first because it is by far the most frequent.
        case Settled(outcome=Settlement.DONE):
            return {**head, "status": _DONE[item.verb]}
        case Queued():
            return {**queued_document(answer), **head, "lease_kept_ms": answer.lease_kept_ms}
        case Refused():
            return {**head, "status": "refused", "problem": problem(answer.error)}
        case Settled(outcome=Settlement.LAPSED):
            return {**head, "status": "lapsed", "problem": problem(lost(item.lease))}
        case Settled(outcome=Settlement.DEAD):
            return {**head, "status": "dead"}
        case Settled():
            return {**head, "status": _DONE[item.verb]}


_DONE = {Verb.ACK: "acked", Verb.NACK: "nacked", Verb.DEAD_LETTER: "dead"}


def lost(lease: LeaseRef) -> LeaseLost:
    return LeaseLost(
        f"the lease of message `{lease.message_id}` lapsed or was settled before; nothing changed"
    )


ROUTES = (
    HotRoute(path="/api/v1/ack", endpoints={"POST": ack}),
    HotRoute(path="/api/v1/ack/batch", endpoints={"POST": ack_batch}),
    HotRoute(path="/api/v1/nack", endpoints={"POST": nack}),
    HotRoute(path="/api/v1/extend", endpoints={"POST": extend}),
    HotRoute(path="/api/v1/revoked", endpoints={"POST": revoked}),
)
