"""Describes a metric as data: the layout of its events, how they become rows, and the tables that take them.

A new metric needs a definition, its tables (`pipeline.metric_tables` writes their SQL) and code that emits
its events. The code of the pipeline does not change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from weir.errors import Misconfigured
from weir.model.limits import MAX_NAME_BYTES
from weir.telemetry.events import (
    LIFE,
    LOG,
    QUEUE,
    WORKER,
    WORKER_LAG,
    Aggregate,
    EventKind,
    Field,
)
from weir.warehouse import tables

RESERVED = frozenset(
    {"at_ms", "bucket_start", "events", "last", "last_at", "last_sequence", "rebuilt", "shard", "stream_at"}
    | {"stream_ms", "stream_sequence"}
)
"""Columns of every metric; a dimension, field, text or list of samples cannot have such a name."""
# Names become columns, tables, keys and folders.
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_WIDTHS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDefinition:
    """A metric: its events, and whether they are summed in buckets or kept as plain rows."""

    kind: EventKind
    plain: bool = False
    """One row per event in one table, with texts and without sums, instead of sums in tiers."""
    derived: tuple[tables.TierSet, ...] = ()
    """Further tiers that views fill from the landing table."""
    holds_lives: bool = False
    """Each event holds packed lives, and each life becomes a row."""
    holds_bodies: bool = False
    """Each event also holds the headers and payloads of its messages, and says how long they are kept."""

    @property
    def name(self) -> str:
        return self.kind.name

    @property
    def landing(self) -> str:
        """The table that takes the inserts and stores nothing; views copy the rows to the other tables."""
        return f"{self.name}_events_landing"

    @property
    def offsets_view(self) -> str:
        """The view that notes how far each stream has landed, with the same insert as the rows."""
        return f"{self.name}_ingest_offsets_view"

    @property
    def tier_sets(self) -> tuple[tables.TierSet, ...]:
        """The tiers of the sums; none if the rows are plain."""
        own = () if self.plain else (tables.tier_set(f"{self.name}_metrics", *self.kind.dimensions),)
        return (*own, *self.derived)

    @property
    def tiers(self) -> tuple[str, ...]:
        """Every table that a rebuild of a time range replaces."""
        summed = tuple(tier.table for each in self.tier_sets for tier in each.tiers)
        return (*summed, *((self.plain_table,) if self.plain else ()))

    @property
    def plain_table(self) -> str:
        """The table of plain rows."""
        if self.holds_bodies:
            return tables.LOG
        return tables.LIVES if self.holds_lives else f"{self.name}_rows"

    @property
    def bucket_ms(self) -> int:
        """The width of a landing row's bucket."""
        return tables.BUCKET_MS


def column_of(field: Field, aggregate: Aggregate) -> str:
    """The landing column of an aggregate; it has a prefix only if its field has several aggregates."""
    return field.name if len(field.aggregates) == 1 else f"{aggregate}_{field.name}"


QUEUE_METRIC = MetricDefinition(kind=QUEUE, derived=(tables.ENVIRONMENTS,))
WORKER_METRIC = MetricDefinition(kind=WORKER)
WORKER_LAG_METRIC = MetricDefinition(kind=WORKER_LAG)
LIFE_METRIC = MetricDefinition(kind=LIFE, plain=True, holds_lives=True)
LOG_METRIC = MetricDefinition(kind=LOG, plain=True, holds_lives=True, holds_bodies=True)
DEFINITIONS: tuple[MetricDefinition, ...] = (
    QUEUE_METRIC,
    WORKER_METRIC,
    WORKER_LAG_METRIC,
    LIFE_METRIC,
    LOG_METRIC,
)


def by_name(definitions: Iterable[MetricDefinition]) -> dict[str, MetricDefinition]:
    """The definitions by name; refuses an invalid one, and two with the same name or table."""
    found: dict[str, MetricDefinition] = {}
    owners: dict[str, str] = {}
    for definition in definitions:
        require_valid(definition)
        if definition.name in found:
            raise Misconfigured(f"metric `{definition.name}` is defined twice; rename one of them")
        for table in (definition.landing, *definition.tiers):
            if table in owners:
                raise Misconfigured(
                    f"metrics `{owners[table]}` and `{definition.name}` would share the table `{table}`; "
                    "rename one of them"
                )
            owners[table] = definition.name
        found[definition.name] = definition
    return found


def require_valid(definition: MetricDefinition) -> None:
    """Refuse a definition whose events or tables cannot be made."""
    for problem in _problems(definition):
        raise Misconfigured(f"metric `{definition.name!s:.60}`: {problem}")


def _problems(definition: MetricDefinition) -> Iterable[str]:
    kind = definition.kind
    names = [*kind.dimensions, *(field.name for field in kind.fields_and_texts)]
    names += [kind.samples] if kind.samples else []
    for name in (kind.name, *names):
        if not _NAME.fullmatch(name):
            yield (
                f"`{name!s:.60}` is not a valid name; use at most 40 lower-case letters, digits and "
                "underscores, and begin with a letter"
            )
    for name in names:
        if name in RESERVED:
            yield f"`{name}` is a column of every metric; choose another name"
        if names.count(name) > 1:
            yield f"`{name}` stands for two things; rename one of them"
    yield from _kind_problems(kind)
    if definition.plain and kind.samples:
        yield "plain rows have no samples; use a field, or sum the events"
    if not definition.plain and kind.texts:
        yield "texts cannot be summed; remove them, or set `plain=True`"
    if not definition.plain and not any(field.aggregates for field in kind.fields) and not kind.samples:
        yield "no field has an aggregate, so nothing would be summed; name one, or set `plain=True`"


def _kind_problems(kind: EventKind) -> Iterable[str]:
    if not kind.dimensions:
        yield "there are no dimensions; name at least one"
    for name in sorted(kind.may_be_empty - {*kind.dimensions}):
        yield f"`{name}` may be empty and is not a dimension; name one"
    for layout in kind.layouts:
        for field in layout.fields:
            if field.width not in _WIDTHS:
                yield f"field `{field.name}` has the width {field.width}; use 1, 2, 4 or 8 bytes"
        for text in layout.texts:
            if not 1 <= text.max_bytes <= kind.max_bytes:
                yield f"text `{text.name}` may have 1 to {kind.max_bytes} bytes, not {text.max_bytes}"
        longest = layout.header_size + len(kind.dimensions) * MAX_NAME_BYTES
        longest += sum(text.max_bytes for text in layout.texts)
        if longest > kind.max_bytes:
            yield f"its longest event has {longest} bytes, and {kind.max_bytes} fit; shorten its texts"
    if kind.version > 255:
        yield "it has more than 255 versions; drop the earliest, whose events are long gone"
