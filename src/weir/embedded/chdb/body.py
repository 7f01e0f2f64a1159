"""Reads request bodies: chunked or with a length, compressed or not, forms or plain."""

from __future__ import annotations

import email.parser
import email.policy
import zlib
from collections.abc import Callable, Iterator, Mapping
from io import BufferedIOBase

from weir.embedded.chdb.http_errors import Gone, RequestRefused

_READ_SIZE = 1 << 20


def raw_body(stream: BufferedIOBase, headers: Mapping[str, str]) -> Iterator[bytes]:
    """The bytes of the body as they arrive."""
    if "chunked" in (headers.get("Transfer-Encoding") or "").lower():
        return _read_chunked(stream)
    return _read_counted(stream, int(headers.get("Content-Length") or 0))


def _read_counted(stream: BufferedIOBase, left: int) -> Iterator[bytes]:
    while left:
        data = stream.read(min(left, _READ_SIZE))
        if not data:
            raise Gone("the body ended early")
        left -= len(data)
        yield data


def _read_chunked(stream: BufferedIOBase) -> Iterator[bytes]:
    while size := _chunk_size(stream.readline(64)):
        data = stream.read(size)
        if len(data) < size:
            raise Gone("the body ended early")
        stream.read(2)
        yield data
    while stream.readline(1024) not in (b"\r\n", b"\n", b""):
        continue


def _chunk_size(line: bytes) -> int:
    try:
        return int(line.split(b";")[0], 16)
    except ValueError:
        raise Gone("the body is not chunked as it claims") from None


def decoded(chunks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """The bytes of the body without their Content-Encoding."""
    decode = _decoder(encoding.lower())
    for chunk in chunks:
        if data := decode(chunk):
            yield data


def _decoder(encoding: str) -> Callable[[bytes], bytes]:
    if encoding in ("", "identity"):
        return lambda data: data
    if encoding == "gzip":
        return zlib.decompressobj(31).decompress
    if encoding == "deflate":
        return zlib.decompressobj().decompress
    if encoding == "lz4":
        import lz4.frame

        return lz4.frame.LZ4FrameDecompressor().decompress  # type: ignore[no-any-return]
    if encoding == "zstd":
        from backports import zstd

        return zstd.ZstdDecompressor().decompress
    raise RequestRefused(89, "UNKNOWN_COMPRESSION_METHOD", f"Unknown compression method: {encoding[:40]}")


def form(body: bytes, content_type: str) -> tuple[dict[str, str], dict[str, bytes]]:
    """Fields and files of a multipart form."""
    head = b"Content-Type: " + content_type.encode("latin-1") + b"\r\n\r\n"
    message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
    fields: dict[str, str] = {}
    files: dict[str, bytes] = {}
    for part in message.iter_parts():
        name = str(part.get_param("name", header="content-disposition"))
        data = part.get_payload(decode=True)
        if not isinstance(data, bytes):
            continue
        if part.get_filename() is not None:
            files[name] = data
        else:
            fields[name] = data.decode("utf-8", "surrogateescape")
    return fields, files
