"""Push: put messages into queues, many at once or one raw body; an answer for every item."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from weir.admission.kinds import OperationType
from weir.api.auth import Access, queue_ref
from weir.api.bodies import (
    FORM,
    JSON_TYPES,
    Fields,
    cut_payloads,
    is_json,
    media_type,
    query_document,
)
from weir.api.hot import HotRequest, HotRoute, decoded
from weir.api.wire import Reply
from weir.broker.layout import id_text
from weir.control.principals import Role
from weir.errors import InvalidInput, WeirError
from weir.exchange.seam import PushAnswer, Pushed, PushItem, Queued, Refused, ResumedCall
from weir.model.beside_loop import LARGE_BYTES, beside_loop
from weir.model.ids import MessageId, NamedCall, check_id, owned_slot
from weir.model.limits import MAX_BATCH, MAX_COUNT, MAX_DELAY_MS, MAX_PRIORITY, MAX_SPAN_MS, MAX_TIME_MS
from weir.model.message import NewMessage, check_depth, check_json_payload, may_be_deep
from weir.model.names import check_name
from weir.model.problem_documents import problem

BINARY = "application/octet-stream"
_LAST_ID = 1 << 128
_LAST_DIGITS = 1 << 48
"""How many values the last twelve digits of an id have: the digits behind its last dash."""
MAX_SLOT_BYTES = 64
"""The longest name of a call slot, which is an id and a number."""
_NUMBERS = ("priority", "deliver_at_ms", "delay_ms", "ttl_ms", "idempotency_window_ms")


async def push(call: HotRequest) -> Reply:
    """`POST /api/v1/push`: a mixed batch."""
    access = await call.access(Role.WRITE)
    call.admit(OperationType.PUSH)
    key = call.idempotency_key()
    body, document = await call.json_body()
    fields = Fields(document)
    entries = fields.array("items", most=MAX_BATCH)
    naming = _naming(access, fields, body)
    fields.refuse_rest()
    most = call.services.limits.max_depth
    if len(body) < LARGE_BYTES:
        payloads = _payloads(body, entries, limit=most)
    else:
        payloads = await beside_loop(_payloads, len(body), body, entries, limit=most)
    named = None if naming is None else naming.call
    ids = [None] * len(entries) if naming is None else naming.ids(len(entries))
    items = [
        _plain_item(access, entry, raw, named, message_id)
        or _item(access, Fields(entry, f"#/items/{index}"), raw, named, message_id)
        for index, (entry, raw, message_id) in enumerate(zip(entries, payloads, ids, strict=True))
    ]
    if naming is not None and any(item.queue != items[0].queue for item in items):
        raise fields.wrong("call", "is for items of one queue")
    return await _answer(call, access, items, key=key, body=body, single=False)


async def push_raw(call: HotRequest) -> Reply:
    """`POST /api/v1/queues/{queue}/messages`: the body is the payload, byte for byte."""
    access = await call.access(Role.WRITE)
    call.admit(OperationType.PUSH)
    key = call.idempotency_key()
    kind = media_type(call.headers, default=BINARY)
    options = Fields(query_document(call.query(), numbers=_NUMBERS), "query")
    payload = await call.body()
    if await beside_loop(_takes_as_json, len(payload), kind, payload, limit=call.services.limits.max_depth):
        headers = {}
    else:
        headers = {"content-type": call.headers.get("content-type", BINARY)[:255]}
    queue = queue_ref(access.environment, decoded(call.parameters["queue"]))
    message = _message(options, payload, headers)
    options.refuse_rest()
    return await _answer(
        call, access, [PushItem(queue=queue, message=message)], key=key, body=payload, single=True
    )


def _takes_as_json(kind: str, payload: bytes, *, limit: int) -> bool:
    """Whether the payload is JSON, which is checked; False for bytes of any other kind."""
    if kind not in JSON_TYPES and not (kind == FORM and is_json(payload)):
        return False
    check_json_payload(payload, limit=limit)
    return True


def _payloads(body: bytes, entries: list[Any], *, limit: int) -> list[bytes | None]:
    """The raw payload of every entry. A payload that could nest too deep is checked level by level."""
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            Fields(entry, f"#/items/{index}")
    slices = cut_payloads(body)
    for entry, raw in zip(entries, slices, strict=True):
        if raw is not None and may_be_deep(raw, limit):
            check_depth(entry["payload"], limit)
    return slices


@dataclass(frozen=True, slots=True)
class _Naming:
    """The call that a producer named for a whole request, and the ids of its messages."""

    call: NamedCall
    first_id: int

    def ids(self, count: int) -> Sequence[MessageId]:
        """Ids that follow each other, so that a repeated request has the same ones."""
        last = self.first_id % _LAST_DIGITS
        if last + count > _LAST_DIGITS:
            return [MessageId(id_text((self.first_id + place).to_bytes(16))) for place in range(count)]
        # Nearly always they differ only in their last twelve digits.
        front = id_text(self.first_id.to_bytes(16))[:-12]
        return [MessageId(f"{front}{number:012x}") for number in range(last, last + count)]


def _naming(access: Access, fields: Fields, body: bytes) -> _Naming | None:
    if (document := fields.take("call")) is None:
        return None
    named = Fields(document, "#/call")
    slot = _slot(access, named)
    number = named.number("number", least=1, most=MAX_COUNT)
    first_id = UUID(check_id(named.required_text("first_id"), what="message")).int
    if number is None:
        raise named.wrong("number", "is missing")
    if first_id >= _LAST_ID - MAX_BATCH:
        raise named.wrong("first_id", "leaves no room for the ids behind it")
    named.refuse_rest()
    return _Naming(NamedCall(slot=slot, id=str(number), digest=_digest(access, body)), first_id)


def _slot(access: Access, fields: Fields) -> str:
    """The slot as Redis knows it: each token has slots of its own. A queued message is known by its name."""
    name = check_name(fields.required_text("slot", max_bytes=MAX_SLOT_BYTES), what="call slot")
    return owned_slot(access.principal.token_id, name)


def _digest(access: Access, body: bytes) -> bytes:
    """Stands for a request: its body, and the environment that its items are for."""
    digest = hashlib.blake2b(body, digest_size=16)
    digest.update(repr(access.environment).encode())
    return digest.digest()


def _plain_item(
    access: Access,
    entry: dict[str, Any],
    raw: bytes | None,
    named: NamedCall | None,
    message_id: MessageId | None,
) -> PushItem | None:
    """Read an entry of the common form quickly: a queue, a payload and perhaps keys. None for any other."""
    queue, key, once = entry.get("queue"), entry.get("key"), entry.get("idempotency_key")
    window_ms = entry.get("idempotency_window_ms")
    given = 2 + (key is not None) + (once is not None) + (window_ms is not None)
    if raw is None or len(entry) != given or (window_ms is not None and once is None):
        return None
    # 63 characters have at most 252 bytes, so a name this short is within the limit of 255 bytes.
    if not isinstance(queue, str) or not 0 < len(queue) < 64:
        return None
    if key is not None and (not isinstance(key, str) or len(key) > 63):
        return None
    if once is not None and (not isinstance(once, str) or len(once) > 63):
        return None
    if window_ms is not None and (window_ms.__class__ is not int or not 0 < window_ms <= MAX_SPAN_MS):
        return None
    if message_id is not None:
        message = NewMessage(
            payload=raw,
            key=key,
            idempotency_key=once,
            idempotency_window_ms=window_ms,
            id=message_id,
        )
        return PushItem(queue=queue_ref(access.environment, queue), message=message, named=named)
    message = NewMessage(payload=raw, key=key, idempotency_key=once, idempotency_window_ms=window_ms)
    return PushItem(queue=queue_ref(access.environment, queue), message=message)


def _item(
    access: Access,
    fields: Fields,
    raw: bytes | None,
    named: NamedCall | None,
    message_id: MessageId | None,
) -> PushItem:
    queue = queue_ref(access.environment, fields.required_text("queue"))
    headers: dict[str, str] = dict(fields.texts("headers") or ())
    fields.take("payload")
    binary = fields.base64("payload_base64")
    if (raw is None) == (binary is None):
        raise fields.wrong("payload", "give exactly one of `payload` and `payload_base64`")
    if binary is not None:
        headers.setdefault("content-type", BINARY)
    payload = raw if raw is not None else binary
    assert payload is not None
    message = _message(fields, payload, headers)
    resumes = None
    if (call := fields.take("call")) is not None:
        resumed_id, resumes = _resumed_call(access, Fields(call, f"{fields.pointer}/call"))
        message = replace(message, id=resumed_id)
    fields.refuse_rest()
    if message_id is not None:
        if resumes is not None:
            raise fields.wrong("call", "and the `call` of the request exclude each other")
        return PushItem(queue=queue, message=replace(message, id=message_id), named=named)
    return PushItem(queue=queue, message=message, resumes=resumes)


def _resumed_call(access: Access, fields: Fields) -> tuple[MessageId, ResumedCall]:
    """The id of a message, and the call in which a client in direct mode sent it and got no answer."""
    slot = _slot(access, fields)
    number = fields.number("number", least=1, most=MAX_COUNT)
    place = fields.number("place", least=0, most=MAX_BATCH - 1)
    message_id = check_id(fields.required_text("message_id"), what="message")
    if number is None or place is None:
        raise fields.wrong("number" if number is None else "place", "is missing")
    fields.refuse_rest()
    return MessageId(message_id), ResumedCall(call=NamedCall(slot=slot, id=str(number)), place=place)


def _message(fields: Fields, payload: bytes, headers: dict[str, str]) -> NewMessage:
    key, partition = fields.text("key"), fields.text("partition")
    if key is not None and partition is not None and key != partition:
        raise fields.wrong("partition", "is another word for `key`; give one of them")
    once = fields.text("idempotency_key")
    window_ms = fields.number("idempotency_window_ms", least=1, most=MAX_SPAN_MS)
    if window_ms is not None and once is None:
        raise fields.wrong("idempotency_window_ms", "is for an `idempotency_key`; give both or neither")
    deliver_at_ms = fields.number("deliver_at_ms", least=0, most=MAX_TIME_MS)
    delay_ms = fields.number("delay_ms", least=0, most=MAX_DELAY_MS)
    if deliver_at_ms is not None and delay_ms is not None:
        raise fields.wrong("delay_ms", "and `deliver_at_ms` say the same; give one of them")
    return NewMessage(
        payload=payload,
        headers=headers,
        key=key if key is not None else partition,
        deliver_at_ms=deliver_at_ms,
        delay_ms=delay_ms,
        ttl_ms=fields.number("ttl_ms", least=1, most=MAX_SPAN_MS),
        idempotency_key=once,
        idempotency_window_ms=window_ms,
        priority=fields.number("priority", least=0, most=MAX_PRIORITY),
    )


async def _answer(
    call: HotRequest, access: Access, items: list[PushItem], *, key: str | None, body: bytes, single: bool
) -> Reply:
    if key is None:
        reply, _ = await _push(call, items, single=single)
        return reply
    route = f"{call.scope['path']}?{call.scope.get('query_string', b'').decode('latin-1')}"

    async def first() -> tuple[Reply, bool]:
        return await _push(call, keyed(items, key), single=single)

    return await call.services.idempotency.run_once(
        environment=access.environment, route=route, key=key, body=body, first=first
    )


def keyed(items: list[PushItem], key: str) -> list[PushItem]:
    """The items, each with an idempotency key derived from the key of the request. So the broker recognizes
    a repeated request, whichever process gets it."""
    if any(item.message.idempotency_key is not None for item in items):
        raise InvalidInput("`Idempotency-Key` and `idempotency_key` exclude each other; give one of them")
    return [
        replace(item, message=replace(item.message, idempotency_key=f"request:{index}:{key}"))
        for index, item in enumerate(items)
    ]


async def _push(call: HotRequest, items: Sequence[PushItem], *, single: bool) -> tuple[Reply, bool]:
    """The answer, and whether all items were taken: a refusal may end."""
    answers = await call.services.pusher.push(items)
    failed = uniform_error(answers)
    if failed is not None:
        raise failed
    documents = [answer_document(answer) for answer in answers]
    queued = [answer for answer in answers if isinstance(answer, Queued)]
    reply = Reply.json(
        documents[0] if single else {"items": documents},
        status=202 if queued else 201,
        headers=queued_headers(queued),
    )
    return reply, not any(isinstance(answer, Refused) for answer in answers)


def uniform_error(answers: Sequence[Any]) -> WeirError | None:
    """The error of the whole request; None unless every item was refused.

    A retryable error goes before others, then the highest status.
    """
    errors = [answer.error for answer in answers if isinstance(answer, Refused)]
    if len(errors) < len(answers):
        return None
    return max(errors, key=lambda error: (error.retryable, error.status), default=None)


def answer_document(answer: PushAnswer) -> dict[str, Any]:
    """One item's answer."""
    match answer:
        case Pushed():
            return {"status": "duplicate" if answer.duplicate else "accepted", "id": answer.message_id}
        case Queued():
            return queued_document(answer)
        case Refused():
            return {"status": "refused", "problem": problem(answer.error)}


def queued_headers(queued: Sequence[Queued]) -> tuple[tuple[bytes, bytes], ...]:
    """The headers that say when to ask again and, if all queued items are in one operation, where."""
    if not queued:
        return ()
    wait_ms = max((answer.estimated_wait_ms or 0 for answer in queued), default=0)
    headers = [(b"retry-after", str(max(1, -(-wait_ms // 1000))).encode())]
    if len({answer.operation_id for answer in queued}) == 1:
        headers.append((b"location", f"/api/v1/operations/{queued[0].operation_id}".encode()))
    return tuple(headers)


def queued_document(answer: Queued) -> dict[str, Any]:
    """The answer for a queued operation: its position and the estimated wait."""
    document = {
        "status": "queued",
        "operation_id": answer.operation_id,
        "position": answer.position,
        "estimated_wait_ms": answer.estimated_wait_ms,
        "reason": answer.reason,
    }
    return document if answer.message_id is None else {**document, "id": answer.message_id}


ROUTES = (
    HotRoute(path="/api/v1/push", endpoints={"POST": push}),
    HotRoute(path="/api/v1/queues/{queue}/messages", endpoints={"POST": push_raw}, elsewhere=("GET",)),
)
