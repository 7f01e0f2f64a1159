"""Raw entries of a stream, between Redis and the decoder, as ids, lengths and one run of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weir.telemetry.events import MAX_EVENT_BYTES, STREAM_FIELD

# These markers stand for entries that are not events. No event begins so, because no layout version is 0.
MISSING, OVERSIZED = b"\x00\x01", b"\x00\x02"

_FIELD = STREAM_FIELD.encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """Consecutive entries of one stream."""

    ids: NDArray[np.uint64]
    """Shape (n, 2): milliseconds and sequence."""
    lengths: NDArray[np.uint32]
    data: bytes

    def __len__(self) -> int:
        return len(self.lengths)


def entries_of(
    reply: Sequence[tuple[bytes, Sequence[bytes]]], *, max_bytes: int = MAX_EVENT_BYTES
) -> Entries:
    """The reply of XRANGE as entries; an entry without an event, or longer than `max_bytes`, is a marker."""
    payloads = [_payload(fields, max_bytes) for _, fields in reply]
    return Entries(
        ids=parse_ids([entry_id for entry_id, _ in reply]),
        lengths=np.fromiter(map(len, payloads), np.uint32, len(payloads)),
        data=b"".join(payloads),
    )


def _payload(fields: Sequence[bytes], max_bytes: int) -> bytes:
    # Nearly every entry has just this field, so that case comes before the search.
    if len(fields) == 2 and fields[0] == _FIELD:
        payload = fields[1]
    else:
        payload = next(
            (value for name, value in zip(fields[::2], fields[1::2], strict=False) if name == _FIELD), MISSING
        )
    return payload if len(payload) <= max_bytes else OVERSIZED


def parse_ids(ids: Sequence[bytes]) -> NDArray[np.uint64]:
    """Stream ids (`ms-sequence`) as pairs of numbers."""
    # Parses all ids at once, without a loop in Python.
    text = b" ".join(ids).replace(b"-", b" ").decode()
    return np.fromstring(text, dtype=np.uint64, sep=" ").reshape(-1, 2)
