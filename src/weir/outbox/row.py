"""One row of the outbox: a push, checked before it enters the user's transaction.

A push over HTTP has the same limits, and the same check of its payload. The API takes every message that
passes here, so a message does not fail after its transaction committed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from weir.client.encoding import encode
from weir.client.values import Payload
from weir.errors import InvalidInput, Malformed, TooLarge
from weir.model.durations import Duration, to_optional_ms
from weir.model.ids import new_id
from weir.model.message import NewMessage, check_json_payload, check_message, headers_fit
from weir.model.names import check_name
from weir.model.parents import chained_headers

MAX_OUTBOX_PAYLOAD = 640 << 10
"""The most bytes of a payload. In base64, with headers, it fits into 1 MiB, the API's default limit."""


def outbox_row(
    queue: str,
    payload: Payload,
    *,
    key: str | None,
    headers: Mapping[str, str] | None,
    delay: Duration | None,
    priority: int | None,
    idempotency_key: str | None,
) -> dict[str, Any]:
    """The columns of a message; InvalidInput or TooLarge says what cannot be pushed."""
    headers = _with_parent(headers or {})
    is_json = not isinstance(payload, bytes)
    body = _json(payload) if is_json else payload
    assert isinstance(body, bytes)
    delay_ms = to_optional_ms(delay)
    check_name(queue, what="queue")
    message = NewMessage(
        payload=body,
        key=key,
        headers=headers,
        priority=priority,
        delay_ms=delay_ms,
        idempotency_key=idempotency_key,
    )
    check_message(message, max_payload=MAX_OUTBOX_PAYLOAD)
    _refuse_nul(queue, key, idempotency_key)
    return {
        "id": new_id(),
        "queue": queue,
        "key": key,
        "payload": body,
        "is_json": is_json,
        "headers": json.dumps(dict(headers)) if headers else None,
        "priority": priority,
        "delay_ms": delay_ms,
        "idempotency_key": idempotency_key,
    }


def _with_parent(headers: Mapping[str, str]) -> Mapping[str, str]:
    """The headers with the id of the message that is worked on, if a handler runs and the id fits."""
    chained = chained_headers()
    both = {**headers, **chained}
    return both if chained and headers_fit(both) else headers


def _json(payload: object) -> bytes:
    try:
        body = encode(payload)
        check_json_payload(body)
    except RecursionError:
        raise TooLarge("the payload is nested too deeply; make it flatter") from None
    except Malformed as error:
        raise InvalidInput(f"the payload has no form in strict JSON: {error.message}") from None
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the payload has no JSON form: {error}") from None
    return body


def _refuse_nul(*texts: str | None) -> None:
    """Refuse a NUL character, which PostgreSQL cannot store in a text."""
    if any("\x00" in text for text in texts if text):
        raise InvalidInput("a name holds a NUL character; remove it")
