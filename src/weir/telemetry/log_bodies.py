"""Reads the bodies of messages from events of the kind `log`, as scripts write them.

`bodies` begins with a `LOGGED` record per life, in the order of the lives. Then follow, for each message, its
idempotency key, its headers as JSON, and its payload. A message that was left out has none of these.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, chain
from struct import Struct

import orjson
import pyarrow as pa

from weir.model.durations import SECOND_MS
from weir.model.logged import LoggedMessage
from weir.telemetry.codec import MetricEvent
from weir.telemetry.life_rows import lives_of
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


def logged_of(event: MetricEvent) -> list[LoggedMessage]:
    """The messages in one event of the kind `log`."""
    lives, bodies = lives_of(event), event.texts["bodies"]
    assert isinstance(bodies, bytes)
    rows = split_bodies(bodies, len(lives))
    if rows is None:
        raise ValueError("the event holds messages that cannot be read")
    first = event.values["lives_total"] - len(lives) + 1
    return [
        LoggedMessage(
            number=first + place,
            life=life,
            kept_ms=event.values["keep_s"] * SECOND_MS,
            left_out=left_out,
            headers=orjson.loads(headers) if headers else {},
            payload=payload,
            idempotency_key=key.decode() or None,
        )
        for place, (life, (left_out, key, headers, payload)) in enumerate(zip(lives, rows, strict=True))
    ]
