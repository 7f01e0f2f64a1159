"""The variables of input expressions: the fields of the message by name, and `message` with its metadata."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

import orjson

from weir.errors import InvalidInput
from weir.model.message import Delivery
from weir.model.receipts import HOOK, SOURCE_IP, receipt_of, sent_headers
from weir.spec.cel import NUL_ESCAPE, compile_expression, compile_mapping, readable
from weir.spec.ir import MessageField
from weir.spec.message_values import conformed

_ANY_KEY = orjson.OPT_NON_STR_KEYS


def inputs_of(
    inputs: tuple[tuple[str, str], ...],
    delivery: Delivery,
    fields: tuple[MessageField, ...],
    more: Mapping[str, Any],
) -> dict[str, Any]:
    """The values of inputs for a delivery and `more` variables; InvalidInput if there are none."""
    mapping = compile_mapping(inputs)
    return mapping.evaluate({**variables_of(delivery, fields, names=mapping.variables), **readable(more)})


def received_inputs(
    inputs: tuple[tuple[str, str], ...], body: bytes, about: Mapping[str, Any]
) -> dict[str, Any]:
    """The values of inputs for what a webhook received."""
    return compile_mapping(inputs).evaluate(received(body, **about))


def received_key(text: str, body: bytes, about: Mapping[str, Any]) -> str:
    """The value of an expression for what a webhook received, as a key, or a digest that can be one."""
    value = compile_expression(text).evaluate(received(body, **about))
    try:
        key = value if isinstance(value, str) else orjson.dumps(value, default=str, option=_ANY_KEY).decode()
    except TypeError as error:
        raise InvalidInput(f"`{text}` has no JSON form, so it is no key: {error}") from None
    if not key or len(key) > 255 or len(key.encode(errors="replace")) > 255 or not key.isprintable():
        return "sha256:" + hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()
    return key


def variables_of(
    delivery: Delivery, fields: tuple[MessageField, ...], *, names: Collection[str]
) -> dict[str, Any]:
    """The variables of a delivery, checked against the message type; InvalidInput if they do not fit.

    `message` is among them only if `names` asks for it.
    """
    values = _fields(delivery)
    if fields:
        values = conformed(fields, values, what=f"a message of `{delivery.queue.queue}`")
    return {"message": _about(delivery), **values} if "message" in names else values


def _about(delivery: Delivery) -> dict[str, Any]:
    return {
        "id": delivery.message_id,
        "attempt": delivery.attempt,
        "key": readable(delivery.key),
        "queue": readable(delivery.queue.queue),
        "headers": readable(dict(delivery.headers)),
        "enqueued_at": _time(delivery.enqueued_at_ms),
    }


def _fields(delivery: Delivery) -> dict[str, Any]:
    headers = delivery.headers
    if HOOK in headers:
        return received(
            delivery.payload,
            headers=sent_headers(headers),
            source_ip=headers.get(SOURCE_IP, ""),
            received_at_ms=receipt_of(headers)[0] or delivery.enqueued_at_ms,
            webhook=headers[HOOK],
        )
    value = payload_value(delivery.payload, headers)
    return value if isinstance(value, dict) else {"payload": value}


def received(
    body: bytes, *, headers: Mapping[str, str], source_ip: str, received_at_ms: int, webhook: str
) -> dict[str, Any]:
    """The variables of a message that a webhook received."""
    return {
        "payload": payload_value(body, headers),
        "headers": readable(dict(headers)),
        "source_ip": source_ip,
        "received_at": _time(received_at_ms),
        "webhook": webhook,
    }


def payload_value(payload: bytes, headers: Mapping[str, str]) -> Any:
    """The payload as data: a JSON value, the fields of a form, or text, by its content type."""
    media_type = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media_type == "application/x-www-form-urlencoded":
        try:
            return readable(dict(parse_qsl(payload.decode(), keep_blank_values=True, max_num_fields=1_000)))
        except ValueError:
            raise InvalidInput("the payload is not a form, though its content type says so") from None
    if media_type == "application/json" or media_type.endswith("+json"):
        try:
            value = orjson.loads(payload)
        except orjson.JSONDecodeError as error:
            raise InvalidInput(f"the payload is not JSON ({error})") from None
        return readable(value) if NUL_ESCAPE in payload else value
    return readable(payload.decode(errors="replace"))


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
