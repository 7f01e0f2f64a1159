"""Reads the bodies of messages from events of the kind `log`, as scripts write them.

`bodies` begins with a `LOGGED` record per life, in the order of the lives. Then follow, for each message, its
idempotency key, its headers as JSON, and its payload. A message that was left out has none of these.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, chain
from struct import Struct

import pyarrow as pa

from weir.telemetry.lives import codes_of
from weir.telemetry.log_layout import LOGGED

_LOGGED = Struct(">" + "".join({"I1": "B", "I4": "I"}[code] for code in codes_of(LOGGED)))
_NOTHING: tuple[bool, bytes, bytes, bytes] = (False, b"", b"", b"")


def split_bodies(data: bytes, count: int) -> list[tuple[bool, bytes, bytes, bytes]] | None:
    """Per message: whether it was left out, idempotency key, headers and payload; None if unreadable."""
    at = count * _LOGGED.size
    if len(data) < at:
        return None
    heads = list(_LOGGED.iter_unpack(data[:at]))
    ends = list(accumulate(chain.from_iterable(head[1:] for head in heads), initial=at))
    if ends[-1] != len(data):
        return None
    return [
        (
            heads[number][0] == 1,
            data[ends[3 * number] : ends[3 * number + 1]],
            data[ends[3 * number + 1] : ends[3 * number + 2]],
            data[ends[3 * number + 2] : ends[3 * number + 3]],
        )
        for number in range(count)
    ]


def body_columns(bodies: Iterable[bytes], counts: Iterable[int]) -> dict[str, pa.Array]:
    """The bodies of some events as columns, a row per message. Unreadable events were set aside before."""
    rows = [
        row
        for data, count in zip(bodies, counts, strict=True)
        for row in split_bodies(data, count) or [_NOTHING] * count
    ]
    columns = list(zip(*rows, strict=True)) if rows else [(), (), (), ()]
    return {
        "left_out": pa.array([int(one) for one in columns[0]], pa.uint8()),
        "idempotency_key": _texts(columns[1]),
        "headers": _texts(columns[2]),
        "payload": pa.array(columns[3], pa.binary()),
    }


def _texts(values: Iterable[bytes]) -> pa.Array:
    return pa.array([value.decode(errors="replace") for value in values], pa.string())
