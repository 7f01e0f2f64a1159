"""Reading a request's body: bounded in size, never decompressed. The server bounds the time that it takes."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from weir.api.limits import Limits
from weir.errors import Malformed, TooLarge, UnsupportedMedia

JSON_TYPES = ("application/json",)


def check_encoding(headers: Mapping[str, str]) -> None:
    """Compressed bodies are refused: their real size is not known before it is too late."""
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise UnsupportedMedia(f"the content encoding `{encoding:.32}` is not taken; send the body as it is")


def check_json_type(headers: Mapping[str, str]) -> None:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in JSON_TYPES and not kind.endswith("+json"):
        raise UnsupportedMedia(f"the content type `{kind:.64}` is not taken; send `application/json`")


def check_length(headers: Mapping[str, str], limits: Limits) -> None:
    """Refuse by the announced length, before a byte is read."""
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
        message = await _message(receive)
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limits.max_body_bytes:
            raise too_large(limits)
        chunks.append(chunk)
        more = message.get("more_body", False)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def _message(receive: Receive) -> Message:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message
