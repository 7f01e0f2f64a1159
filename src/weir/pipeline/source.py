"""Makes the metric streams a Spark source: the driver plans read tasks, and the tasks read Redis.

An exception in a method that Spark calls on the driver ends the query. So these methods try a few times and
then behave as if nothing were new. A failed `read` fails its task, which Spark repeats.
"""

from __future__ import annotations

import base64
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pyarrow as pa
import structlog
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from weir.errors import BrokerUnavailable, LeaseLost, Misconfigured
from weir.model.backoff import Backoff
from weir.pipeline.decoding import Ages
from weir.pipeline.definition import MetricDefinition
from weir.pipeline.offsets import BatchPlan, IdRange, Offset, ReadTask, plan_between
from weir.pipeline.ownership import STREAMS, StreamsOwner, pause_name
from weir.pipeline.partials import SPARK_SCHEMA, partials_of, record_batch
from weir.pipeline.planning import Bounds, fallback_offset, next_offset
from weir.pipeline.worker_exit import leave_if_abandoned
from weir.pipeline.worker_gc import freeze_imports, without_collector
from weir.telemetry.entries import Entries
from weir.telemetry.store import CHUNK, StreamGap, StreamStore, Tail
from weir.telemetry.stream_ids import StreamId, parse_id
from weir.telemetry.streams import EVENT_LAYOUT, Stream, stream_key
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.ingest import read_landed_positions

_log = structlog.get_logger(__name__)

FORMAT = "weir-streams"
PACKED_CHUNK = 500
"""Entries per read of metrics whose entries hold many records: at 15 kB each, Redis sends 7.5 MB."""
BODIES_CHUNK = 32
"""Entries per read of the log: at the usual 64 kB each, Redis sends 2 MB; at worst it sends 35 MB."""
PLAN = "plan"
"""The name of the note in Redis that mirrors the newest batch in Spark's journal (0011)."""

# An exception ends the query, and the supervisor waits before it starts another.
_ATTEMPTS = 3
_BACKOFF = Backoff(first_s=0.1, longest_s=1.6, factor=4)
_NO_TAILS: Mapping[Stream, Tail] = {}
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of the source, which pass through Spark as one text."""

    redis_url: str
    clickhouse_url: str
    definitions: Mapping[str, MetricDefinition]
    ages: Ages
    archived: bool
    """Whether the events are encoded for the archive."""
    shards: int
    max_events: int
    max_read_tasks: int
    read_task_events: int
    owner: str | None
    """The holder of the lease on the streams, which planning requires; None plans without a lease."""

    def as_text(self) -> str:
        return base64.b64encode(pickle.dumps(self)).decode()

    @classmethod
    def from_text(cls, text: str) -> SourceOptions:
        # The text comes from the driver of this very job, which Spark trusts with pickled code anyway.
        options: SourceOptions = pickle.loads(base64.b64decode(text))
        return options

    @property
    def streams(self) -> tuple[Stream, ...]:
        return tuple((metric, shard) for metric in self.definitions for shard in range(self.shards))


class StreamsDataSource(DataSource):
    """`spark.readStream.format("weir-streams")`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SPARK_SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return StreamsReader(SourceOptions.from_text(self.options["options"]))


@dataclass(frozen=True, slots=True)
class RedisStreamIds:
    """The ids of one stream in Redis."""

    store: StreamStore
    key: str

    def neighbours(self, times_ms: Sequence[int]) -> Sequence[tuple[StreamId | None, StreamId | None]]:
        return self.store.neighbours(self.key, times_ms)

    def windows(self, spans_ms: Sequence[tuple[int, int]], *, limit: int) -> Sequence[Sequence[StreamId]]:
        return self.store.windows(self.key, spans_ms, limit=limit)

    def last_until(self, position: str) -> str | None:
        return self.store.last_until(self.key, position)


@dataclass
class ReadTaskPartition(InputPartition):
    read_task: ReadTask


class StreamsReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches on the driver; `read` runs in the tasks, each with a copy of the reader."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._store: StreamStore | None = None
        self._target: Offset | None = None
        self._settled: Offset | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_store": None, "_target": None, "_settled": None}

    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        """The start without a checkpoint: the newest planned batch, or else the newest landed position."""
        # Repeating the planned batch is safe because of its token. The landed positions serve only if the
        # plan is gone too (0011).
        plan = self._retry(lambda: self._streams().recall(PLAN))
        if plan is not None:
            return Offset.from_json(plan["start"]).as_json()
        return fallback_offset(
            read_landed_positions(ClickHouseConnection(self._options.clickhouse_url))
        ).as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.max_events)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, object]:  # noqa: N802
        begin = Offset.from_json(start)
        max_events = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_events
        bounds = Bounds(
            max_events=max_events,
            max_read_tasks=self._options.max_read_tasks,
            read_task_events=self._options.read_task_events,
            packed=frozenset(name for name, one in self._options.definitions.items() if one.holds_lives),
        )
        end = self._retry(lambda: self._plan(begin, bounds), otherwise=begin)
        return end.as_json()

    def reportLatestOffset(self) -> dict[str, object] | None:  # noqa: N802
        tails = self._retry(self._tails, otherwise=_NO_TAILS)
        return Offset(positions={stream: tail.last_id for stream, tail in tails.items()}).as_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        tails = self._retry(self._tails, otherwise=_NO_TAILS)
        self._target = Offset(positions={stream: tail.last_id for stream, tail in tails.items()})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One partition per read task."""
        # The plan is noted before anything is read, so that a lost checkpoint repeats exactly this batch.
        self._retry(lambda: self._note_plan(start, end))
        plan = plan_between(Offset.from_json(start), Offset.from_json(end))
        return [ReadTaskPartition(read_task) for read_task in plan.read_tasks]

    def commit(self, end: dict[str, Any]) -> None:
        with suppress(BrokerUnavailable, LeaseLost):
            self._retry(lambda: self._commit(Offset.from_json(end)))

    def stop(self) -> None:
        self.close()
        leave_if_abandoned()

    def close(self) -> None:
        """Close the connections; the next call opens them again."""
        if self._store is not None:
            self._store.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The entries of a read task, added up."""
        assert isinstance(partition, ReadTaskPartition)
        freeze_imports()
        store = StreamStore(self._options.redis_url)
        try:
            with without_collector():
                for partial in partials_of(
                    partition.read_task,
                    self._contents(store, partition.read_task),
                    definitions=self._options.definitions,
                    ages=self._options.ages,
                    archived=self._options.archived,
                ):
                    yield record_batch(partial)
        finally:
            store.close()

    def _contents(
        self, store: StreamStore, read_task: ReadTask
    ) -> Iterator[tuple[IdRange, Entries | StreamGap]]:
        for piece in read_task.ranges:
            key = stream_key(piece.metric, piece.shard)
            definition = self._options.definitions[piece.metric]
            for content in store.read(
                key,
                after=piece.after,
                until=piece.until,
                chunk=_chunk(definition),
                max_bytes=definition.kind.max_bytes,
            ):
                if isinstance(content, StreamGap):
                    # Without the lease, the next owner may have landed and trimmed the missing entries.
                    self._require_lease(store)
                yield piece, content

    def _plan(self, start: Offset, bounds: Bounds) -> Offset:
        """The end of the next batch."""
        if self._is_paused():
            return start
        plan = self._streams().recall(PLAN)
        # A batch that was planned before a restart keeps its end: another end would be another token.
        if plan is not None and plan["start"] == start.as_json() and plan["end"] != plan["start"]:
            return Offset.from_json(plan["end"])
        # Spark asks for the next batch only when the last one is durable, so the last one can be settled.
        self._settle(start)
        if self._streams().is_held():
            return start
        tails = self._tails()
        self._streams().require_shards(self._options.shards)
        self._require_known_layouts()
        if self._target is not None:
            tails = {stream: _capped(tail, self._target.position(stream)) for stream, tail in tails.items()}
        return next_offset(start, tails, bounds=bounds, probe=self._probe, now_ms=time.time_ns() // 1_000_000)

    def _is_paused(self) -> bool:
        """Whether this pipeline plans nothing for now; raises `LeaseLost` if another owns the streams."""
        if self._options.owner is None:
            return False
        # The lease ended while Redis was away, and the driver will take it again. A drain does not wait for
        # that: it fails below.
        if self._target is None and self._streams().read_lease(STREAMS) is None:
            return True
        self._require_lease(self._streams())
        return self._streams().is_held(name=pause_name(StreamsOwner.from_text(self._options.owner)))

    def _require_lease(self, store: StreamStore) -> None:
        held = store.read_lease(STREAMS)
        if self._options.owner is not None and (held is None or held.holder != self._options.owner):
            raise LeaseLost(
                "this pipeline's lease on the streams ended; it goes on once it has the lease again"
            )

    def _note_plan(self, start: dict[str, Any], end: dict[str, Any]) -> None:
        self._require_registered(Offset.from_json(start), Offset.from_json(end))
        self._require_lease(self._streams())
        self._streams().remember(PLAN, {"start": start, "end": end})

    def _commit(self, end: Offset) -> None:
        self._require_lease(self._streams())
        self._settle(end)

    def _require_registered(self, start: Offset, end: Offset) -> None:
        """Refuse a batch that was planned with a metric which is not registered any more."""
        moved = {stream[0] for stream, at in end.positions.items() if at != start.position(stream)}
        for name in sorted(moved - {*self._options.definitions}):
            raise Misconfigured(
                f"a batch that was planned before holds events of the metric `{name}`, which is not "
                "registered; register it again, and remove it when the batch has landed"
            )

    def _require_known_layouts(self) -> None:
        """Stop before events of a newer Weir are read, because they would be set aside and then trimmed.

        Call this after the tails were read. A writer announces its version before it writes, so every event
        before these tails is of an announced version.
        """
        names = {
            f"{EVENT_LAYOUT}{name}": definition.kind.version
            for name, definition in self._options.definitions.items()
        }
        for name, version in self._streams().read_announced(list(names), shards=self._options.shards).items():
            if version > names[name]:
                raise Misconfigured(
                    f"Redis holds `{name}` of version {version}, and this pipeline knows {names[name]}; "
                    "start the pipeline of a newer Weir, or with the newer definition of the metric"
                )

    def _settle(self, offset: Offset) -> None:
        """Trim the streams and publish the position, after a batch is durable."""
        if offset == self._settled:
            return
        # Note the new start before trimming: a start from the old note would ask for trimmed entries.
        done, plan = offset.as_json(), self._streams().recall(PLAN)
        if plan is None or plan["start"] != done:
            self._streams().remember(PLAN, {"start": done, "end": done})
        self._streams().settle({stream_key(*stream): at for stream, at in offset.positions.items()})
        self._settled = offset

    def _probe(self, stream: Stream) -> RedisStreamIds:
        return RedisStreamIds(self._streams(), stream_key(*stream))

    def _tails(self) -> Mapping[Stream, Tail]:
        streams = self._options.streams
        sized = {stream_key(*one) for one in streams if self._options.definitions[one[0]].holds_bodies}
        tails = self._streams().tails([stream_key(*stream) for stream in streams], sized=sized)
        return {stream: tail for stream, tail in zip(streams, tails, strict=True) if tail is not None}

    def _streams(self) -> StreamStore:
        if self._store is None:
            self._store = StreamStore(self._options.redis_url, timeout_s=5)
        return self._store

    def _retry(self, call: Callable[[], T], *, otherwise: T | None = None) -> T:
        """Try a few times; then return `otherwise`, or raise if there is none."""
        for attempt in range(_ATTEMPTS):
            try:
                return call()
            except BrokerUnavailable as error:
                _log.warning("the streams are out of reach", attempt=attempt + 1, error=str(error))
                if attempt + 1 == _ATTEMPTS and otherwise is None:
                    raise
                time.sleep(_BACKOFF.pause_s(attempt + 1))
        assert otherwise is not None
        return otherwise


def planned_batch(options: SourceOptions) -> BatchPlan:
    """The newest planned batch, which Spark is about to run."""
    with closing(StreamsReader(options)) as reader:
        # Spark asks for a batch's partitions, which notes the plan, before it hands the batch to the job.
        plan = reader._retry(lambda: reader._streams().recall(PLAN))
    if plan is None:
        raise BrokerUnavailable("the plan of the batch is not in Redis; the batch will be repeated")
    return plan_between(Offset.from_json(plan["start"]), Offset.from_json(plan["end"]))


def settle_planned(options: SourceOptions) -> None:
    """Settle the newest planned batch; call this only when it is known to be durable."""
    with closing(StreamsReader(options)) as reader:
        plan = reader._retry(lambda: reader._streams().recall(PLAN))
        if plan is not None:
            reader.commit(plan["end"])


def _capped(tail: Tail, position: str) -> Tail:
    """The tail of the same stream without the entries after `position`."""
    last = min(tail.last_id, position, key=parse_id)
    return replace(tail, last_id=last)


def _chunk(definition: MetricDefinition) -> int:
    """How many entries of a metric to read at once."""
    if definition.holds_bodies:
        return BODIES_CHUNK
    return PACKED_CHUNK if definition.holds_lives else CHUNK
