"""Writes the SQL of a metric's tables from its definition. Pure; `pipeline.metric_migration` runs it.

    landing table ──┬── view ──▶ 5 s, 1 min and 1 h tiers, or one table of plain rows
                    └── ingest-offset view ──▶ ingest_offsets

The ingest-offset view notes how far each stream has landed, in the same insert as the rows. A start without a
checkpoint goes on from there; without the view it would count events twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from weir.pipeline.definition import MetricDefinition, column_of
from weir.telemetry.events import Aggregate, EventKind, Field
from weir.warehouse import tables
from weir.warehouse.percentiles import SKETCH_PARAMETERS
from weir.warehouse.tables import TierRetention

_TIME = "DateTime64(3, 'UTC')"
_BUCKET = "DateTime('UTC')"
_SKETCH = f"quantilesDD({SKETCH_PARAMETERS})"
_PARTITIONS = ("toDate(bucket_start)", "toYYYYMM(bucket_start)", "toYear(bucket_start)")
_STARTS = ("bucket_start", "toStartOfMinute(bucket_start)", "toStartOfHour(bucket_start)")
_IDENTITY = ("stream_at", "stream_sequence", "shard")
"""The columns that tell a plain row from all others."""
_PLAIN_STEP = 1
"""Plain rows are kept as long as the tier with this number: a month, so that the archive can rebuild them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricTable:
    """A table of a metric, with the columns that it must have."""

    name: str
    columns: tuple[tuple[str, str], ...]
    """Names and types."""
    key: frozenset[str]
    """Columns that cannot be added later."""
    create: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricView:
    """A view that copies rows of the landing table to another table."""

    name: str
    target: str
    query: str

    @property
    def create(self) -> str:
        return f"CREATE MATERIALIZED VIEW IF NOT EXISTS {self.name} TO {self.target} AS\n{self.query}"

    @property
    def replace(self) -> str:
        """The statement that gives an existing view this query; the view exists at every instant."""
        return f"ALTER TABLE {self.name} MODIFY QUERY\n{self.query}"


def tables_of(
    definition: MetricDefinition, retention: TierRetention | None = None
) -> tuple[MetricTable, ...]:
    """Every table of a metric, the landing table first."""
    days = (retention or TierRetention()).by_step
    key = [*definition.kind.dimensions, "bucket_start", *(_IDENTITY if definition.plain else ())]
    landing = _table(definition.landing, _landing_columns(definition), "ENGINE = Null")
    if definition.plain:
        engine = _engine("MergeTree", key, _PLAIN_STEP, days[_PLAIN_STEP])
        return landing, _table(definition.plain_table, _plain_columns(definition.kind), engine, key=key)
    (own,) = definition.tier_sets
    return (
        landing,
        *(
            _table(
                tier.table,
                _tier_columns(definition),
                _engine("AggregatingMergeTree", key, step, kept),
                key=key,
            )
            for step, (tier, kept) in enumerate(zip(own.tiers, days, strict=True))
        ),
    )


def kept_days(definition: MetricDefinition, retention: TierRetention) -> dict[str, int]:
    """For how many days each table of a metric keeps its rows."""
    summed = {
        tier.table: days
        for each in definition.tier_sets
        for tier, days in zip(each.tiers, retention.by_step, strict=True)
    }
    # Rows of the log say themselves until when they are kept.
    if not definition.plain or definition.holds_bodies:
        return summed
    plain_days = tables.LIVES_KEPT_DAYS if definition.holds_lives else retention.by_step[_PLAIN_STEP]
    return summed | {definition.plain_table: plain_days}


def views_of(definition: MetricDefinition) -> tuple[MetricView, ...]:
    """Every view of a metric, the ingest-offset view last."""
    offsets = MetricView(
        name=definition.offsets_view, target=tables.OFFSETS, query=_offsets_query(definition)
    )
    if definition.plain:
        table = definition.plain_table
        rows = MetricView(name=f"{table}_view", target=table, query=_plain_query(definition))
        return rows, offsets
    (own,) = definition.tier_sets
    return (
        *(
            MetricView(name=f"{tier.table}_view", target=tier.table, query=_tier_query(definition, start))
            for tier, start in zip(own.tiers, _STARTS, strict=True)
        ),
        offsets,
    )


def statements(definition: MetricDefinition, retention: TierRetention | None = None) -> list[str]:
    """The statements that make the tables of a metric; each may run twice."""
    made = [table.create for table in tables_of(definition, retention)]
    return [*made, *(view.create for view in views_of(definition))]


def _table(
    name: str, columns: Sequence[tuple[str, str, str]], engine: str, *, key: Sequence[str] = ()
) -> MetricTable:
    lines = ",\n".join(
        f"    {column} {kind}{codec and f' CODEC({codec})'}" for column, kind, codec in columns
    )
    return MetricTable(
        name=name,
        columns=tuple((column, kind) for column, kind, _ in columns),
        key=frozenset(key),
        create=f"CREATE TABLE IF NOT EXISTS {name}\n(\n{lines}\n)\n{engine}",
    )


def _engine(engine: str, key: Sequence[str], step: int, days: int) -> str:
    return (
        f"ENGINE = {engine}\n"
        f"PARTITION BY {_PARTITIONS[step]}\n"
        f"ORDER BY ({', '.join(key)})\n"
        f"TTL bucket_start + INTERVAL {days} DAY\n"
        f"SETTINGS non_replicated_deduplication_window = {tables.DEDUPLICATION_WINDOW}"
    )


def _landing_columns(definition: MetricDefinition) -> list[tuple[str, str, str]]:
    kind = definition.kind
    columns = [(name, "String") for name in kind.dimensions]
    columns += [("bucket_start", _BUCKET), ("shard", "UInt16"), ("rebuilt", "UInt8")]
    columns += [("last_at", _TIME), ("last_sequence", "UInt32"), ("events", "UInt64")]
    if definition.plain:
        columns += _raw_columns(kind)
    else:
        columns += [(column_of(one, by), _number(one, by)) for one, by in _aggregates(kind)]
        columns += [(kind.samples, "Array(UInt32)")] if kind.samples else []
    return [(name, type_, "") for name, type_ in columns]


def _raw_columns(kind: EventKind) -> list[tuple[str, str]]:
    numbers = [(field.name, f"UInt{8 * field.width}") for field in kind.fields]
    return [*numbers, *((text.name, "String") for text in kind.texts)]


def _plain_columns(kind: EventKind) -> list[tuple[str, str, str]]:
    return [
        *((name, "String", "ZSTD(1)") for name in kind.dimensions),
        ("bucket_start", _BUCKET, "DoubleDelta, ZSTD(1)"),
        ("stream_at", _TIME, "DoubleDelta, ZSTD(1)"),
        ("stream_sequence", "UInt32", "T64, ZSTD(1)"),
        ("shard", "UInt16", "T64, ZSTD(1)"),
        ("events", "UInt64", "T64, ZSTD(1)"),
        *((name, type_, "ZSTD(1)") for name, type_ in _raw_columns(kind)),
    ]


def _tier_columns(definition: MetricDefinition) -> list[tuple[str, str, str]]:
    kind = definition.kind
    return [
        *((name, "String", "ZSTD(1)") for name in kind.dimensions),
        ("bucket_start", _BUCKET, "DoubleDelta, ZSTD(1)"),
        ("events", "SimpleAggregateFunction(sum, UInt64)", "T64, ZSTD(1)"),
        *((column_of(one, by), *_kept(one, by)) for one, by in _aggregates(kind)),
        *_sample_columns(kind),
    ]


def _sample_columns(kind: EventKind) -> Iterator[tuple[str, str, str]]:
    if kind.samples:
        yield f"{kind.samples}_count", "SimpleAggregateFunction(sum, UInt64)", "T64, ZSTD(1)"
        yield f"{kind.samples}_sum", "SimpleAggregateFunction(sum, UInt64)", "T64, ZSTD(1)"
        yield f"{kind.samples}_max", "SimpleAggregateFunction(max, UInt32)", "T64, ZSTD(1)"
        yield f"{kind.samples}_sketch", f"AggregateFunction({_SKETCH}, UInt32)", "ZSTD(1)"


def _aggregates(kind: EventKind) -> list[tuple[Field, Aggregate]]:
    return [(field, aggregate) for field in kind.fields for aggregate in field.aggregates]


def _number(field: Field, aggregate: Aggregate) -> str:
    return "UInt64" if aggregate is Aggregate.SUM else f"UInt{8 * field.width}"


def _kept(field: Field, aggregate: Aggregate) -> tuple[str, str]:
    """Type and codec of an aggregate in a tier."""
    number = _number(field, aggregate)
    if aggregate is Aggregate.LAST:
        # A tuple per field, not one for all: a further field is then a further column.
        return f"SimpleAggregateFunction(max, Tuple(at {_TIME}, sequence UInt32, value {number}))", "ZSTD(1)"
    return f"SimpleAggregateFunction({aggregate}, {number})", "T64, ZSTD(1)"


def _tier_query(definition: MetricDefinition, start: str) -> str:
    kind = definition.kind
    columns = [
        *kind.dimensions,
        f"{start.replace('bucket_start', 'e.bucket_start')} AS bucket_start",
        "sum(e.events) AS events",
        *(f"{_merged(one, by)} AS {column_of(one, by)}" for one, by in _aggregates(kind)),
    ]
    if kind.samples:
        samples = f"e.{kind.samples}"
        columns += [
            f"sum(length({samples})) AS {kind.samples}_count",
            f"sum(arraySum({samples})) AS {kind.samples}_sum",
            f"max(arrayMax({samples})) AS {kind.samples}_max",
            f"quantilesDDArrayState({SKETCH_PARAMETERS})({samples}) AS {kind.samples}_sketch",
        ]
    groups = ", ".join([*kind.dimensions, "bucket_start"])
    return f"SELECT\n    {_lines(columns)}\nFROM {definition.landing} AS e\nGROUP BY {groups}"


def _merged(field: Field, aggregate: Aggregate) -> str:
    column = f"e.{column_of(field, aggregate)}"
    if aggregate is Aggregate.LAST:
        return f"max(tuple(e.last_at, e.last_sequence, {column}))"
    return f"{aggregate}({column})"


def _plain_query(definition: MetricDefinition) -> str:
    kind = definition.kind
    columns = [
        *kind.dimensions,
        "bucket_start",
        "last_at AS stream_at",
        "last_sequence AS stream_sequence",
        "shard",
        "events",
        *(name for name, _ in _raw_columns(kind)),
    ]
    return f"SELECT\n    {_lines(columns)}\nFROM {definition.landing}"


def _offsets_query(definition: MetricDefinition) -> str:
    columns = [
        f"'{definition.name}' AS metric",
        "e.shard AS shard",
        "max(tuple(e.last_at, e.last_sequence)) AS position",
        "sum(e.events) AS events",
        "now64(3, 'UTC') AS landed_at",
    ]
    return f"SELECT\n    {_lines(columns)}\nFROM {definition.landing} AS e\nWHERE rebuilt = 0\nGROUP BY shard"


def _lines(columns: Sequence[str]) -> str:
    return ",\n    ".join(columns)
