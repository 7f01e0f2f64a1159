"""Decodes packed lives into Arrow columns, without a loop over the lives that were copied from leases.

Each form is decoded on its own (`telemetry.lives` describes them), and the rows are put back in their order.
Names and keys are cut out per life; the attempts of lives in full are read one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from weir.telemetry import lives
from weir.telemetry.lives import packed_size

PARTS = (
    "scheduled_ms",
    "backoff_ms",
    "blocked_ms",
    "paused_ms",
    "queue_limit_ms",
    "environment_limit_ms",
    "unasked_ms",
    "unknown_ms",
)
"""The parts of a wait that records hold; `turn_ms` is the rest of the wait."""
NUMBERS = {
    "outcome": np.uint8,
    "reason": np.uint8,
    "enqueued_ms": np.uint64,
    "available_ms": np.uint64,
    "handed_out_ms": np.uint64,
    "ended_ms": np.uint64,
    "priority": np.uint8,
    "attempts": np.uint32,
    "leased_ms": np.uint64,
    **dict.fromkeys((*PARTS, "turn_ms"), np.uint64),
    "payload_bytes": np.uint32,
}
"""Columns of numbers with their types."""
IDS = ("message_id", "blocked_by_id")
"""Columns of 16 bytes; zeros if there is no id."""
ATTEMPT_COLUMNS = ("attempt_started_ms", "attempt_ended_ms", "attempt_end", "attempt_consumer")
"""Columns of lists, with an element per attempt."""

_HEAD = packed_size(lives.LIFE_HEAD)
_MEMBER, _HANDED_OUT = packed_size(lives.MEMBER), packed_size(lives.HANDED_OUT)
_ORIGIN, _ORIGIN_END = packed_size(lives.ORIGIN), packed_size(lives.ORIGIN_END)
_FREED = _HANDED_OUT + packed_size(lives.FREED_BY)
_FULL, _ATTEMPT = packed_size(lives.LIFE_FULL), packed_size(lives.LIFE_ATTEMPT)
_LEAST = {
    lives.DIRECT: _HEAD + 1 + _MEMBER + _HANDED_OUT + _ORIGIN + _ORIGIN_END,
    lives.FREED: _HEAD + 1 + _MEMBER + _HANDED_OUT + _ORIGIN + _ORIGIN_END + _FREED,
    lives.FULL: _HEAD + _FULL,
}
Numbers = NDArray[np.int64]
_Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedLives:
    """Where the records of some entries are."""

    raw: NDArray[np.uint8]
    entries: Numbers
    """For each life, the position of its entry."""
    starts: Numbers
    sizes: Numbers
    broken: NDArray[np.bool_]
    """For each entry, whether it cannot be read; its lives are then left out."""


def find_lives(records: pa.BinaryArray, counts: NDArray[np.uint32]) -> PackedLives:
    """Find the records in some entries; `counts` says how many lives each entry holds."""
    offsets = np.frombuffer(records.buffers()[1], np.int32)[
        records.offset : records.offset + len(records) + 1
    ]
    raw = np.frombuffer(records.buffers()[2] or b"", np.uint8)
    begins, lengths = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    wanted = counts.astype(np.int64)
    broken = (wanted < 1) | (lengths < wanted * (2 + _HEAD))
    found = _located(raw, begins, np.where(broken, 0, wanted))
    total = np.bincount(found.entries, weights=found.sizes, minlength=len(records)).astype(np.int64)
    broken |= total + 2 * wanted != lengths
    # The records of an entry are where they are expected only if the sizes add up.
    found = _located(raw, begins, np.where(broken, 0, wanted))
    broken[found.entries[~_sound(raw, found)]] = True
    kept = ~broken[found.entries]
    return PackedLives(
        raw=raw,
        entries=found.entries[kept],
        starts=found.starts[kept],
        sizes=found.sizes[kept],
        broken=broken,
    )


def _located(raw: NDArray[np.uint8], begins: Numbers, counts: Numbers) -> PackedLives:
    entries = np.repeat(np.arange(len(counts)), counts)
    firsts = np.cumsum(counts) - counts
    within = np.arange(len(entries)) - firsts[entries]
    (sizes,) = _fields(">I2", raw, begins[entries] + 2 * within)
    before = np.cumsum(sizes) - sizes
    starts = begins[entries] + 2 * counts[entries] + before - before[firsts[entries]]
    return PackedLives(
        raw=raw, entries=entries, starts=starts, sizes=sizes, broken=np.zeros(len(counts), bool)
    )


def _sound(raw: NDArray[np.uint8], found: PackedLives) -> NDArray[np.bool_]:
    """Whether each record has a known form, and the size that its parts add up to."""
    forms = raw[found.starts]
    good = np.zeros(len(forms), bool)
    for form, least in _LEAST.items():
        mine = np.flatnonzero((forms == form) & (found.sizes >= least))
        starts, sizes = found.starts[mine], found.sizes[mine]
        if form == lives.FULL:
            good[mine] = [
                _has_size(raw, start, size)
                for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
            ]
        else:
            tail = _FREED if form == lives.FREED else 0
            named = raw[starts + _HEAD].astype(np.int64) + raw[starts + sizes - tail - 1]
            good[mine] = named + least <= sizes
    return good


def _has_size(raw: NDArray[np.uint8], start: int, size: int) -> bool:
    at, end = start + _HEAD + _FULL, start + size
    attempts = int(raw[at - 1])
    at += int(raw[at - 2])
    for _ in range(attempts):
        if at + _ATTEMPT > end:
            return False
        at += _ATTEMPT + int(raw[at + _ATTEMPT - 1])
    return at == end


def life_columns(found: PackedLives) -> pa.Table:
    """One row per life, in their order."""
    forms = found.raw[found.starts]
    data = found.raw.tobytes()
    parts = [
        (where, _decode(form, found, data, where))
        for form in _LEAST
        if len(where := np.flatnonzero(forms == form)) or form == lives.DIRECT
    ]
    if len(parts) == 1:
        return parts[0][1]
    table = pa.concat_tables([rows for _, rows in parts])
    return table.take(pa.array(np.argsort(np.concatenate([where for where, _ in parts]))))


def _decode(form: int, found: PackedLives, data: bytes, where: Numbers) -> pa.Table:
    starts, sizes = found.starts[where], found.sizes[where]
    _, outcome, reason, ended, handler = _fields(lives.LIFE_HEAD, found.raw, starts)
    head = {"outcome": outcome, "reason": reason, "ended_ms": ended}
    read = _read_full if form == lives.FULL else _read_leased
    columns, texts = read(form, found.raw, data, starts, sizes, head)
    columns |= head
    table = {name: pa.array(_fitting(columns[name], kind)) for name, kind in NUMBERS.items()}
    table |= {name: pa.array(columns[name].tolist(), pa.binary(16)) for name in IDS}
    table["handler_ms"] = pa.array(
        np.maximum(handler - 1, 0).astype(np.uint32), mask=np.asarray(handler == 0)
    )
    return pa.table({**table, **texts})


def _read_leased(
    form: int, raw: NDArray[np.uint8], data: bytes, starts: Numbers, sizes: Numbers, head: _Columns
) -> tuple[_Columns, Mapping[str, pa.Array]]:
    """Lives that were copied from leases: one attempt each, and readings that are still to be subtracted."""
    names = raw[starts + _HEAD].astype(np.int64)
    ends = starts + sizes - (_FREED if form == lives.FREED else 0)
    payloads, keys = _fields(lives.ORIGIN_END, raw, ends - _ORIGIN_END)
    origins = ends - _ORIGIN_END - keys - _ORIGIN
    name_at = starts + _HEAD + 1
    _, ids, attempts, enqueued, _, _, priority = _fields(lives.MEMBER, raw, name_at + names)
    available, _, _, *since = _fields(lives.ORIGIN, raw, origins)
    handed_out, *until = _fields(lives.HANDED_OUT, raw, origins - _HANDED_OUT)
    blocked, blockers = np.zeros(len(starts), np.int64), np.zeros(len(starts), "V16")
    if form == lives.FREED:
        freed, *since = _fields(lives.HANDED_OUT, raw, ends)
        (blockers,) = _fields(lives.FREED_BY, raw, ends + _HANDED_OUT)
        blocked = np.maximum(freed - enqueued, 0)
    clocks = [np.maximum(stop - start, 0) for start, stop in zip(since, until, strict=True)]
    waits = np.maximum(handed_out - enqueued, 0)
    none = np.zeros(len(starts), np.int64)
    columns = {
        "message_id": ids, "blocked_by_id": blockers, "enqueued_ms": enqueued, "available_ms": available,
        "handed_out_ms": handed_out, "priority": priority, "attempts": attempts,
        "leased_ms": np.maximum(head["ended_ms"] - handed_out, 0), "payload_bytes": payloads,
        **_split(waits, (none, none, blocked, *clocks)),
    }  # fmt: skip
    texts = {
        "key": _texts(data, origins + _ORIGIN, keys),
        **_attempt_lists(
            np.arange(len(starts) + 1),
            handed_out,
            np.maximum(head["ended_ms"], handed_out),
            head["outcome"],
            _texts(data, name_at, names),
        ),
    }
    return columns, texts


def _read_full(
    form: int, raw: NDArray[np.uint8], data: bytes, starts: Numbers, sizes: Numbers, head: _Columns
) -> tuple[_Columns, Mapping[str, pa.Array]]:
    """Lives that were written out."""
    ids, enqueued, available, handed_out, priority, attempts, waits, leased, *rest = _fields(
        lives.LIFE_FULL, raw, starts + _HEAD
    )
    *parts, blockers, payloads, keys, counts = rest
    columns = {
        "message_id": ids, "blocked_by_id": blockers, "enqueued_ms": enqueued, "available_ms": available,
        "handed_out_ms": handed_out, "priority": priority, "attempts": attempts, "leased_ms": leased,
        "payload_bytes": payloads, **_split(waits, parts),
    }  # fmt: skip
    key_at = starts + _HEAD + _FULL
    at = _attempts_at(raw, key_at + keys, counts)
    began, ended, how, names = _fields(lives.LIFE_ATTEMPT, raw, at)
    offsets = np.concatenate(([0], np.cumsum(counts)))
    texts = {
        "key": _texts(data, key_at, keys),
        **_attempt_lists(offsets, began, ended, how, _texts(data, at + _ATTEMPT, names)),
    }
    return columns, texts


def _attempts_at(raw: NDArray[np.uint8], begins: Numbers, counts: Numbers) -> Numbers:
    """Where each attempt begins. They follow each other, and each ends with its consumer's name."""
    found = []
    for at, count in zip(begins.tolist(), counts.tolist(), strict=True):
        for _ in range(count):
            found.append(at)
            at += _ATTEMPT + int(raw[at + _ATTEMPT - 1])
    return np.array(found, np.int64)


def _split(waits: Numbers, parts: Sequence[Numbers]) -> _Columns:
    """The parts of waits by name; the time that no other part explains is `turn_ms`."""
    known = np.sum(parts, axis=0, dtype=np.int64) if len(waits) else waits
    return {**dict(zip(PARTS, parts, strict=True)), "turn_ms": np.maximum(waits - known, 0)}


def _attempt_lists(
    offsets: Numbers, began: Numbers, ended: Numbers, how: Numbers, consumers: pa.Array
) -> dict[str, pa.Array]:
    values = (
        pa.array(began.astype(np.uint64)),
        pa.array(ended.astype(np.uint64)),
        pa.array(how.astype(np.uint8)),
        consumers,
    )
    ends = pa.array(offsets.astype(np.int32))
    return {
        name: pa.ListArray.from_arrays(ends, value)
        for name, value in zip(ATTEMPT_COLUMNS, values, strict=True)
    }


def _texts(data: bytes, begins: Numbers, sizes: Numbers) -> pa.Array:
    ends = (begins + sizes).tolist()
    cut = pa.array([data[begin:end] for begin, end in zip(begins.tolist(), ends, strict=True)], pa.binary())
    try:
        return cut.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([value.decode(errors="replace") for value in cut.to_pylist()], pa.string())


def _fitting(values: NDArray[Any], kind: Any) -> NDArray[Any]:
    """Values cut to the range of their column; only a made-up record has larger ones."""
    fitting: NDArray[Any] = np.clip(values, 0, np.iinfo(kind).max if kind is not np.uint64 else None)
    return fitting.astype(kind)


def _fields(layout: str, raw: NDArray[np.uint8], at: Numbers) -> list[NDArray[Any]]:
    """The fields of a record at each of these places: numbers as 64 bits, texts of 16 bytes as they are."""
    kinds, packed = _packed(layout)
    size = packed.itemsize
    if not len(at):
        return [np.zeros(0, "V16" if kind == "c" else np.int64) for kind in kinds]
    rows = np.ascontiguousarray(sliding_window_view(raw, size)[at]).view(packed)[:, 0]
    found = []
    for number, kind in enumerate(kinds):
        column = rows[f"f{number}"]
        if kind == "6":
            column = (column["high"].astype(np.int64) << 32) + column["low"]
        found.append(column if kind == "c" else column.astype(np.int64))
    return found


@cache
def _packed(layout: str) -> tuple[list[str], np.dtype[Any]]:
    types = {"I1": "u1", "I2": ">u2", "I4": ">u4", "I8": ">u8", "c16": "V16"}
    six = np.dtype([("high", ">u2"), ("low", ">u4")])
    codes = lives.codes_of(layout)
    fields = [(f"f{number}", six if code == "I6" else types[code]) for number, code in enumerate(codes)]
    return [code[0] if code[0] == "c" else code[1] for code in codes], np.dtype(fields)
