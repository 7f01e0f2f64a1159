"""A metric as data: what its events look like, how they add up, and where the sums go.

A further metric takes a table (a landing table and whatever views read it), a definition and someone
who emits its events; no code of the pipeline changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from weir.errors import Misconfigured
from weir.telemetry.events import QUEUE, WORKER, Aggregate, EventKind, Field
from weir.warehouse import tables


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDefinition:
    kind: EventKind
    landing: str
    """The table that takes the partial sums; views carry them to the tiers."""
    tiers: tuple[str, ...]
    """Every table that a rebuild of a time range replaces."""
    bucket_ms: int = tables.BUCKET_MS

    @property
    def name(self) -> str:
        return self.kind.name


def column_of(field: Field, aggregate: Aggregate) -> str:
    """The landing column of one aggregate of a field: prefixed only where a field has several."""
    return field.name if len(field.aggregates) == 1 else f"{aggregate}_{field.name}"


def _tables(*sets: tables.TierSet) -> tuple[str, ...]:
    return tuple(tier.table for each in sets for tier in each.tiers)


QUEUE_METRIC = MetricDefinition(
    kind=QUEUE, landing=tables.QUEUE_LANDING, tiers=_tables(tables.QUEUES, tables.ENVIRONMENTS)
)
WORKER_METRIC = MetricDefinition(kind=WORKER, landing=tables.WORKER_LANDING, tiers=_tables(tables.WORKERS))
DEFINITIONS: tuple[MetricDefinition, ...] = (QUEUE_METRIC, WORKER_METRIC)


def by_name(definitions: Iterable[MetricDefinition]) -> dict[str, MetricDefinition]:
    """The definitions by metric; refuses two of one name."""
    found: dict[str, MetricDefinition] = {}
    for definition in definitions:
        if definition.name in found:
            raise Misconfigured(f"metric `{definition.name}` is defined twice; rename one of them")
        found[definition.name] = definition
    return found
