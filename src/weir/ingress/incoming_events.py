"""Reads the events of a request (JSON, GitHub's form, CloudEvents in three modes) and their sender's ids."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

from weir.errors import Malformed, TooLarge, UnsupportedMedia
from weir.model.header_keys import MAX_KEY_CHARACTERS, key_in_header
from weir.model.limits import MAX_PAYLOAD_DEPTH
from weir.model.message import check_depth, may_be_deep, parse_json
from weir.spec.ir import SignatureScheme, WebhookSpec

_SPACE = re.compile(r"[ \t\n\r]*")
_REQUIRED = ("specversion", "id", "source", "type")
_JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"
_ID_HEADERS = {
    SignatureScheme.STANDARD: "webhook-id",
    SignatureScheme.GITHUB: "x-github-delivery",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingEvent:
    """One event: its JSON, byte for byte, and the sender's id for it, if there is one."""

    payload: bytes
    id: str | None
    media_type: str


def events_of(webhook: WebhookSpec, headers: Mapping[str, str], body: bytes) -> list[IncomingEvent]:
    """The events of a request; raises an error of the tree if a body cannot be accepted."""
    media_type = headers.get("content-type", _JSON).partition(";")[0].strip().lower()
    if not body:
        raise Malformed("the body is empty; send the event")
    if media_type == _FORM and _scheme(webhook) is SignatureScheme.GITHUB:
        media_type, body = _JSON, _form_payload(body)
    if media_type.startswith("application/cloudevents-batch"):
        return _batch(media_type, body)
    if media_type.startswith("application/cloudevents"):
        return [_structured(media_type, body)]
    if "ce-specversion" in headers:
        return [_binary(media_type, headers, body)]
    document = _checked(media_type, body)
    return [IncomingEvent(payload=body, id=_sender_id(webhook, headers, document), media_type=media_type)]


def _scheme(webhook: WebhookSpec) -> SignatureScheme | None:
    return None if webhook.verification is None else webhook.verification.scheme


def _form_payload(body: bytes) -> bytes:
    """The JSON in GitHub's form, which GitHub sends unless it is set to `application/json`."""
    try:
        fields = parse_qsl(body.decode("ascii"), strict_parsing=True, errors="strict", max_num_fields=1)
    except ValueError:
        fields = []
    match fields:
        case [("payload", text)]:
            return text.encode()
    raise Malformed("the form must have one field `payload`; or let the webhook send `application/json`")


def _checked(media_type: str, body: bytes) -> Any:
    """The value of a JSON body, checked."""
    if media_type == _JSON or media_type.endswith("+json"):
        return parse_event(body)
    raise UnsupportedMedia(f"the content type `{media_type:.64}` is not accepted here; send `{_JSON}`")


def parse_event(body: bytes) -> Any:
    """The value of a strict JSON text of bounded depth."""
    value = parse_json(body)
    # A stranger chooses the nesting, and code that reads a payload may recurse into it.
    if may_be_deep(body, MAX_PAYLOAD_DEPTH):
        check_depth(value, MAX_PAYLOAD_DEPTH)
    return value


def _sender_id(webhook: WebhookSpec, headers: Mapping[str, str], document: Any) -> str | None:
    """The sender's id of this delivery, which is the same on every retry."""
    scheme = _scheme(webhook)
    header = webhook.idempotency_header or (_ID_HEADERS.get(scheme) if scheme else None)
    if header is not None:
        return _header_id(headers.get(header.lower()), header)
    if isinstance(document, dict):
        if scheme is SignatureScheme.PAGERDUTY and isinstance(document.get("event"), dict):
            return _text_id(document["event"].get("id"))
        if scheme is SignatureScheme.STRIPE:
            return _text_id(document.get("id"))
        if scheme is SignatureScheme.SLACK:
            return _text_id(document.get("event_id"))
    return _header_id(headers.get("idempotency-key"), "Idempotency-Key")


def _header_id(value: str | None, header: str) -> str | None:
    return None if value is None else key_in_header(value, header=header)


def _text_id(value: Any) -> str | None:
    return _bounded(value) if isinstance(value, str) and value else None


def _bounded(text: str) -> str:
    """The text if it can be an idempotency key, else its digest."""
    if len(text) <= MAX_KEY_CHARACTERS and text.isprintable() and text.isascii():
        return text
    return "sha256:" + hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _event_id(attributes: Mapping[str, Any]) -> str:
    """The id of a CloudEvent, which is unique together with its `source` only."""
    return _bounded(json.dumps([attributes["source"], attributes["id"]]))


def _check_attributes(attributes: Mapping[str, Any]) -> None:
    for name in _REQUIRED:
        if not isinstance(attributes.get(name), str) or not attributes[name]:
            raise Malformed(f"a CloudEvent without `{name}`; send `specversion`, `id`, `source` and `type`")
    if attributes["specversion"] != "1.0":
        raise Malformed(f"CloudEvents `{attributes['specversion']:.16}` is not known; send version 1.0")


def _binary(media_type: str, headers: Mapping[str, str], body: bytes) -> IncomingEvent:
    attributes = {name: _attribute(headers.get(f"ce-{name}")) for name in _REQUIRED}
    _check_attributes(attributes)
    _checked(media_type, body)
    return IncomingEvent(payload=body, id=_event_id(attributes), media_type=media_type)


def _attribute(value: str | None) -> str | None:
    """A header value of the binary mode, percent-decoded once."""
    if value is None:
        return None
    try:
        return unquote_to_bytes(value.encode("latin-1")).decode()
    except UnicodeDecodeError:
        raise Malformed("a `ce-` header is not percent-encoded UTF-8") from None


def _structured(media_type: str, body: bytes) -> IncomingEvent:
    if media_type != "application/cloudevents+json":
        raise UnsupportedMedia(
            f"`{media_type:.64}` is not accepted here; send `application/cloudevents+json`"
        )
    event = parse_event(body)
    if not isinstance(event, dict):
        raise Malformed("a CloudEvent is a JSON object")
    _check_attributes(event)
    return IncomingEvent(payload=body, id=_event_id(event), media_type=media_type)


def _batch(media_type: str, body: bytes) -> list[IncomingEvent]:
    if media_type != "application/cloudevents-batch+json":
        raise UnsupportedMedia(
            f"`{media_type:.64}` is not accepted here; send `application/cloudevents-batch+json`"
        )
    events = parse_event(body)
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise Malformed("a batch of CloudEvents is a JSON array of objects")
    if not 0 < len(events) <= 1_000:
        raise TooLarge(f"a batch of {len(events)} events; send 1 to 1000 at a time")
    for event in events:
        _check_attributes(event)
    return [
        IncomingEvent(payload=payload, id=_event_id(event), media_type="application/cloudevents+json")
        for event, payload in zip(events, _slices(body.decode()), strict=True)
    ]


def _slices(text: str) -> list[bytes]:
    """The elements of a valid JSON array, byte for byte."""
    decode = json.JSONDecoder().raw_decode
    found: list[bytes] = []
    at = _skip(text, 0) + 1
    while text[at := _skip(text, at)] != "]":
        _, end = decode(text, at)
        found.append(text[at:end].encode())
        at = _skip(text, end)
        if text[at] == ",":
            at += 1
    return found


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at
