"""Bodies of hot-path requests: read within limits, parsed strictly, and checked field by field.

Payloads keep their bytes: they are cut out of the body, never parsed and written again. A JSON parser changes
numbers (integers over 64 bit, `1.10`, `1E5`) and white space. So orjson parses the body to check it, because
msgspec checks less strictly. Then msgspec cuts each payload out of the body.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import msgspec
import orjson
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from weir.api.limits import Limits
from weir.api.problems import invalid
from weir.errors import InvalidInput, Malformed, TooLarge, UnsupportedMedia
from weir.model.message import parse_json

JSON_TYPES = ("application/json",)
FORM = "application/x-www-form-urlencoded"
"""The content type that curl and other tools send for every body, unless they are told otherwise."""
_UNSAID = ("", FORM)
"""Content types that do not tell what a body is."""


def check_encoding(headers: Mapping[str, str]) -> None:
    """Refuse a compressed body: its real size is known only after it was unpacked."""
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise UnsupportedMedia(f"the content encoding `{encoding:.32}` is not taken; send the body as it is")


def media_type(headers: Mapping[str, str], *, default: str = "") -> str:
    """The content type without its parameters."""
    return headers.get("content-type", default).partition(";")[0].strip().lower()


def is_json_type(headers: Mapping[str, str]) -> bool:
    """Whether the content type says that the body is JSON."""
    kind = media_type(headers)
    return kind in JSON_TYPES or kind.endswith("+json")


def check_json_type(headers: Mapping[str, str]) -> None:
    """Refuse a body of another type, before it is read."""
    kind = media_type(headers)
    if kind not in _UNSAID and not is_json_type(headers):
        raise UnsupportedMedia(f"the content type `{kind:.64}` is not taken; send `application/json`")


def check_is_json(headers: Mapping[str, str], body: bytes) -> None:
    """Refuse a body whose type is not said and that is not JSON."""
    if not is_json_type(headers) and not is_json(body):
        raise UnsupportedMedia("the body is not JSON, and not declared as JSON; send `application/json`")


def is_json(body: bytes) -> bool:
    """Whether the body is strict JSON, whatever its content type says."""
    try:
        parse_json(body)
    except Malformed:
        return False
    return True


def check_parts(body: bytes, *, most: int) -> None:
    """Refuse JSON of too many objects and lists. What is not JSON at all is left to its reader."""
    if body.count(b"[") + body.count(b"{") <= most:
        return
    try:
        layer = [orjson.loads(body)]
    except orjson.JSONDecodeError:
        return
    parts = 0
    while layer:
        inner = (parent.values() if isinstance(parent, dict) else parent for parent in layer)
        layer = [one for children in inner for one in children if isinstance(one, dict | list)]
        parts += len(layer)
        if parts > most:
            raise TooLarge(f"the body has over {most} objects and lists; send fewer at once")


def check_length(headers: Mapping[str, str], limits: Limits) -> None:
    """Refuse a body by its announced length, before a byte is read."""
    text = headers.get("content-length")
    if text is None:
        return
    if not text.isascii() or not text.isdigit():
        raise Malformed("the header `Content-Length` is not a number")
    if int(text) > limits.max_body_bytes:
        raise too_large(limits)


def too_large(limits: Limits) -> TooLarge:
    return TooLarge(f"the body is over the limit of {limits.max_body_bytes} bytes; send less at once")


async def read_body(headers: Mapping[str, str], receive: Receive, limits: Limits) -> bytes:
    """The whole body, counted while it arrives."""
    check_encoding(headers)
    check_length(headers, limits)
    chunks: list[bytes] = []
    size, more = 0, True
    while more:
        message = await _receive_message(receive)
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limits.max_body_bytes:
            raise too_large(limits)
        chunks.append(chunk)
        more = message.get("more_body", False)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def _receive_message(receive: Receive) -> Message:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message


class _Item(msgspec.Struct):
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Push(msgspec.Struct):
    items: list[_Item]


_decode = msgspec.json.Decoder(_Push).decode


def cut_payloads(body: bytes) -> list[bytes | None]:
    """The raw payload of every item of a push, as it stands in the body; None where it is absent.

    The body must be valid JSON of that shape. If a member stands twice, the last one counts.
    """
    try:
        items = _decode(body).items
    except RecursionError:
        raise TooLarge("the body nests too deep; flatten it") from None
    return [None if item.payload is msgspec.UNSET else bytes(item.payload) for item in items]


_cut_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_cut_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


def cut_entries(body: bytes, name: str) -> list[bytes]:
    """The entries of a list, each as it stands in the body, which must be valid JSON of that shape."""
    return [bytes(one) for one in _cut_list(_member(body, name))]


def _member(body: bytes, name: str) -> msgspec.Raw:
    try:
        return _cut_members(body)[name]
    except RecursionError:
        raise TooLarge("the body nests too deep; flatten it") from None


class Fields:
    """One JSON object whose members are taken one by one; `refuse_rest` refuses members that nobody took."""

    __slots__ = ("_document", "_left", "_pointer", "_text")

    def __init__(self, document: Any, pointer: str = "#", *, text: bytes = b"") -> None:
        if not isinstance(document, dict):
            raise invalid(pointer, "expected an object")
        self._document: dict[str, Any] = document
        self._left = len(document)
        self._pointer = pointer
        self._text = text
        """The object as it was sent, for `json`."""

    @property
    def pointer(self) -> str:
        """The place of the object in the body."""
        return self._pointer

    @property
    def is_empty(self) -> bool:
        """Whether all members are taken."""
        return self._left <= 0

    def take(self, name: str) -> Any:
        """The raw value, or None; None and absent are the same."""
        if name in self._document:
            self._left -= 1
            return self._document[name]
        return None

    def text(self, name: str, *, max_bytes: int = 255) -> str | None:
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.wrong(name, "expected a string")
        if len(value) > max_bytes or (not value.isascii() and len(value.encode()) > max_bytes):
            raise self.wrong(name, f"has more than {max_bytes} bytes")
        return value

    def required_text(self, name: str, *, max_bytes: int = 255) -> str:
        value = self.text(name, max_bytes=max_bytes)
        if not value:
            raise self.wrong(name, "is missing or empty")
        return value

    def number(self, name: str, *, least: int, most: int) -> int | None:
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.wrong(name, f"expected an integer from {least} to {most}")
        return value

    def flag(self, name: str) -> bool:
        value = self.take(name)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(name, "expected true or false")
        return bool(value)

    def choice(self, name: str, options: tuple[str, ...]) -> str | None:
        value: str | None = self.take(name)
        if value is not None and value not in options:
            raise self.wrong(name, f"expected one of {', '.join(options)}")
        return value

    def array(self, name: str, *, most: int) -> list[Any]:
        value = self.take(name)
        if not isinstance(value, list) or not value:
            raise self.wrong(name, "expected a non-empty array")
        if len(value) > most:
            raise self.wrong(name, f"has {len(value)} elements; at most {most} are taken at once")
        return value

    def texts(self, name: str, *, most: int = 64, max_bytes: int = 4_096) -> Mapping[str, str] | None:
        """An object of strings."""
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, dict) or len(value) > most:
            raise self.wrong(name, f"expected an object of at most {most} strings")
        for key, text in value.items():
            if not key or not isinstance(text, str) or len(key) > 255 or len(text) > max_bytes:
                raise self.wrong(
                    name, f"expected strings of at most {max_bytes} characters under short names"
                )
        return value

    def json(self, name: str, *, max_bytes: int) -> bytes | None:
        """Any value as JSON, with its numbers as they were sent; None if it is absent or null."""
        if self.take(name) is None:
            return None
        data = msgspec.json.format(bytes(_member(self._text, name)), indent=-1)
        if len(data) > max_bytes:
            raise self.wrong(name, f"has {len(data)} bytes; at most {max_bytes} are kept")
        return data

    def base64(self, name: str) -> bytes | None:
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.wrong(name, "expected a string of base64")
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise self.wrong(name, "is not base64") from None

    def refuse_rest(self) -> None:
        """Refuse the members that nobody has taken."""
        if not self.is_empty:
            known = "it has members that this route does not know"
            raise InvalidInput(
                f"`{self._pointer}`: {known}", errors=[{"pointer": self._pointer, "detail": known}]
            )

    def wrong(self, name: str, detail: str) -> InvalidInput:
        return invalid(f"{self._pointer}/{name}", detail)


def query_document(query: Mapping[str, str], *, numbers: tuple[str, ...]) -> dict[str, Any]:
    """Query parameters as the object that a body would be."""
    document: dict[str, Any] = dict(query)
    for name in numbers:
        text = query.get(name)
        if text is not None:
            plain = text.isascii() and text.lstrip("-").isdigit() and len(text) < 20
            document[name] = int(text) if plain else text
    return document
