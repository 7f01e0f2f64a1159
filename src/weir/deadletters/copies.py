"""Copies of deaths for dead letter queues: the original message, when and why it died, and its attempts."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import NoReturn
from uuid import UUID

import orjson

from weir.deadletters.dead_letter import DeadLetter
from weir.deadletters.lineage import LINEAGE
from weir.model.clock import iso_time
from weir.model.ids import MessageId, derived_id
from weir.model.limits import MAX_PAYLOAD_BYTES
from weir.model.message import NewMessage, headers_fit
from weir.model.receipts import HOOK, SOURCE_IP, receipt_of, sent_headers
from weir.model.trace_context import trace_headers_of

DEAD_LETTER = "weir-dead-letter"
DIED_IN = "weir-died-in"
DEATH_REASON = "weir-death-reason"
ORIGINAL_BYTES = "weir-original-bytes"
CONTENT_TYPE = "content-type"
CUT_ERROR_CHARACTERS = 1_000
"""Characters of the error that are kept if all of it would not fit beside the original message."""


def copy_of(dead_letter: DeadLetter) -> NewMessage:
    """The message that tells a dead letter queue of a death. A letter always gives the same message."""
    payload = _payload(dead_letter)
    headers = {
        CONTENT_TYPE: "application/json",
        DEAD_LETTER: dead_letter.id,
        DIED_IN: dead_letter.queue.queue,
        DEATH_REASON: dead_letter.reason,
        **trace_headers_of(dead_letter.headers),
    }
    if len(payload) > MAX_PAYLOAD_BYTES:
        payload = _document(b"null", dead_letter, error=dead_letter.error_text[:CUT_ERROR_CHARACTERS])
        headers[ORIGINAL_BYTES] = str(len(dead_letter.payload))
    return NewMessage(
        payload=payload,
        id=MessageId(copy_id_of(dead_letter.id, died_at_ms=dead_letter.died_at_ms)),
        headers=_with_original_headers(headers, dead_letter),
        key=dead_letter.key,
        idempotency_key=dead_letter.id,
    )


def copy_id_of(dead_letter_id: str, *, died_at_ms: int) -> str:
    """The one id that the copy of a dead letter has, however often it is sent."""
    return derived_id(dead_letter_id, time_ms=died_at_ms, purpose=b"weir.copy")


def copied_from(message_id: str, headers: Mapping[str, str]) -> str | None:
    """The dead letter that a message is a copy of. Producers can write headers too, so the id must agree."""
    claimed = headers.get(DEAD_LETTER, "")
    try:
        expected = copy_id_of(str(UUID(claimed)), died_at_ms=UUID(message_id).int >> 80)
    except ValueError:
        return None
    return claimed if expected == message_id else None


def _payload(dead_letter: DeadLetter) -> bytes:
    original = _original_message(dead_letter)
    payload = _document(original, dead_letter, error=dead_letter.error_text)
    if len(payload) <= MAX_PAYLOAD_BYTES:
        return payload
    return _document(original, dead_letter, error=dead_letter.error_text[:CUT_ERROR_CHARACTERS])


def _document(original: bytes, dead_letter: DeadLetter, *, error: str) -> bytes:
    """The payload of a copy, joined as bytes: the original stays as it came, also numbers of any size."""
    members = (
        (b"original_message", original),
        (b"failed_at", orjson.dumps(iso_time(dead_letter.died_at_ms))),
        (b"error", orjson.dumps(error)),
        (b"attempts", orjson.dumps(dead_letter.attempts)),
    )
    return _object(*members)


def _object(*members: tuple[bytes, bytes]) -> bytes:
    return b"{" + b",".join(b'"%s":%s' % member for member in members) + b"}"


def _original_message(dead_letter: DeadLetter) -> bytes:
    """A JSON object as it is. Any other payload, and that of a webhook, becomes the member `payload`."""
    payload, headers = dead_letter.payload, dead_letter.headers
    text = _json_text(payload, headers.get(CONTENT_TYPE, "application/json"))
    if HOOK not in headers and text is not None and text.startswith(b"{"):
        return text
    body = (b"payload", text) if text is not None else _other_body(payload)
    return _object(body, *(_received(dead_letter) if HOOK in headers else ()))


def _json_text(payload: bytes, content_type: str) -> bytes | None:
    """The payload without space around it, if its content type is JSON and it is JSON."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        return None
    try:
        # Numbers stay texts: their values are not needed, and some have more digits than Python reads.
        json.loads(payload.decode(), parse_int=str, parse_float=str, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return payload.strip()


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"`{constant}` is not JSON")


def _other_body(payload: bytes) -> tuple[bytes, bytes]:
    try:
        return b"payload", orjson.dumps(payload.decode())
    except UnicodeDecodeError:
        return b"payload_base64", orjson.dumps(base64.b64encode(payload).decode())


def _received(dead_letter: DeadLetter) -> tuple[tuple[bytes, bytes], ...]:
    """The other members of a message that a webhook received, as the expressions of a queue see them."""
    headers = dead_letter.headers
    received_at_ms, webhook = receipt_of(headers)
    sent = {name: value for name, value in sent_headers(headers).items() if name not in LINEAGE}
    return (
        (b"headers", orjson.dumps(sent)),
        (b"source_ip", orjson.dumps(headers.get(SOURCE_IP, ""))),
        (b"received_at", orjson.dumps(iso_time(received_at_ms or dead_letter.enqueued_at_ms))),
        (b"webhook", orjson.dumps(webhook)),
    )


def _with_original_headers(headers: dict[str, str], dead_letter: DeadLetter) -> dict[str, str]:
    """Add the original's headers if they fit; the headers that a webhook received are in the payload."""
    if HOOK in dead_letter.headers:
        return headers
    own = {name: value for name, value in dead_letter.headers.items() if name not in LINEAGE}
    both = {**own, **headers}
    return both if headers_fit(both) else headers
