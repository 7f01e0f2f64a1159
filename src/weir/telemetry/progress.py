"""Publishes and reads in Redis how far the pipeline is: its own status, and the lag of each stream."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields

from weir.telemetry.store import StreamStore, Tail
from weir.telemetry.stream_ids import is_after, parse_id
from weir.telemetry.streams import stream_key

STATUS = "status"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStatus:
    """The status that a pipeline writes every few seconds; an old one means that it does not run."""

    state: str
    """`starting`, `running`, `retrying`, `paused` or `stopped`."""
    updated_ms: int
    since_ms: int
    """When it entered this state."""
    error: str = ""
    batch: int = -1
    batch_events: int = 0
    batch_s: float = 0.0
    events: int = 0
    """Since this process started, like the next three."""
    rejected: int = 0
    gaps: int = 0
    failures: int = 0
    newest_ms: int = 0
    """Time of the newest event that has landed."""
    deaths: int = 0
    """How often a pipeline on these streams ended without a stop, as by a kill or for lack of memory."""
    died_ms: int = 0
    """When the last of them was last heard of; 0 if none ended so."""
    metrics: tuple[str, ...] = ()
    """The metrics that it moves: the package's own, and the registered ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLag:
    """How many events wait in one stream, and how long the oldest of them has waited."""

    metric: str
    shard: int
    position: str
    last_id: str
    events: int
    """An upper bound: a batch that has just landed may still be counted."""
    seconds: float


def publish_status(store: StreamStore, status: PipelineStatus) -> None:
    store.remember(STATUS, asdict(status))


def read_status(store: StreamStore) -> PipelineStatus | None:
    value = store.recall(STATUS)
    if not value:
        return None
    # A pipeline of another version may publish more or less than this program knows.
    known = {field.name: value[field.name] for field in fields(PipelineStatus) if field.name in value}
    return PipelineStatus(**known | {"metrics": tuple(known.get("metrics", ()))})


def read_lags(store: StreamStore, *, metrics: Iterable[str], shards: int, now_ms: int) -> list[StreamLag]:
    """The lag of every stream that exists, by the position that the pipeline published."""
    streams = [(metric, shard) for metric in metrics for shard in range(shards)]
    keys = [stream_key(*stream) for stream in streams]
    tails, positions = store.tails(keys), store.positions(keys)
    return [
        stream_lag(metric, shard, tail, position, now_ms=now_ms)
        for (metric, shard), tail, position in zip(streams, tails, positions, strict=True)
        if tail is not None
    ]


def stream_lag(metric: str, shard: int, tail: Tail, position: str, *, now_ms: int) -> StreamLag:
    """The lag of a stream that was read up to `position`."""
    # The entry at the position stays in the stream, and the entries before it are trimmed.
    waiting = tail.length - (0 if is_after(tail.first_id, position) else 1)
    seconds = 0.0
    if not is_after(tail.last_id, position):
        waiting = 0
    else:
        first_ms = max(parse_id(position)[0], parse_id(tail.first_id)[0])
        seconds = max(now_ms - first_ms, 0) / 1_000
    return StreamLag(
        metric=metric, shard=shard, position=position, last_id=tail.last_id, events=waiting, seconds=seconds
    )
