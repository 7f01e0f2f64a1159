"""Answers whose bytes are made once: anybody may ask for them, so that asking must cost next to nothing.

The bytes are made in a thread when somebody asks for the first time. Whoever asks meanwhile waits for the
same bytes, and the event loop goes on.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Generic, TypeVar

T = TypeVar("T")
_WORTH_COMPRESSING = 1_024
_LEVEL = 9


class Once(Generic[T]):
    """A value that is made in a thread when it is asked for the first time. A failure is not remembered."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._making: asyncio.Task[T] | None = None

    async def get(self) -> T:
        if self._making is None or _failed(self._making):
            self._making = asyncio.create_task(asyncio.to_thread(self._make))
        return await asyncio.shield(self._making)


def _failed(task: asyncio.Task[T]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


@dataclass(frozen=True, kw_only=True)
class FixedAnswer:
    """A body with its tag, and the same compressed if that is worth it."""

    body: bytes
    headers: Mapping[str, str]
    tag: str
    compressed: bytes | None

    @classmethod
    def of(cls, body: bytes, *, media_type: str, headers: Mapping[str, str] | None = None) -> FixedAnswer:
        """Compresses the body, which takes milliseconds: call it in a thread."""
        compressed = gzip.compress(body, _LEVEL, mtime=0) if len(body) >= _WORTH_COMPRESSING else body
        tag = f'"{sha256(body).hexdigest()[:32]}"'
        return cls(
            body=body,
            headers={**(headers or {}), "content-type": media_type, "etag": tag, "vary": "accept-encoding"},
            tag=tag,
            compressed=compressed if len(compressed) < len(body) else None,
        )

    def answer(self, asked: Mapping[str, str]) -> tuple[bytes, int, dict[str, str]]:
        """Body, status and headers for a client that asks with these headers; 304 if it has the bytes."""
        headers = dict(self.headers)
        if self.tag in asked.get("if-none-match", ""):
            return b"", 304, headers
        if self.compressed is None or not _takes_gzip(asked.get("accept-encoding", "")):
            return self.body, 200, headers
        return self.compressed, 200, {**headers, "content-encoding": "gzip"}


def _takes_gzip(accepted: str) -> bool:
    """Whether an `Accept-Encoding` names gzip, and not with the weight 0."""
    for part in accepted.lower().split(","):
        coding, _, weight = part.partition(";")
        if coding.strip() == "gzip":
            return not weight or weight.replace(" ", "").strip("q=0.") != ""
    return False
