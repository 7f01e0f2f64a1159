"""Describes a metric as data: the layout of its events, how they add up, and the tables that take the sums.

A new metric needs a landing table with its views, a definition here and code that emits its events. The code
of the pipeline does not change.
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
    """The table that takes the partial sums; views copy them to the tiers."""
    tiers: tuple[str, ...]
    """Every table that a rebuild of a time range replaces."""
    bucket_ms: int = tables.BUCKET_MS

    @property
    def name(self) -> str:
        return self.kind.name


def column_of(field: Field, aggregate: Aggregate) -> str:
    """The landing column of one aggregate of a field; it has a prefix only if there are several."""
    return field.name if len(field.aggregates) == 1 else f"{aggregate}_{field.name}"


def _tables(*sets: tables.TierSet) -> tuple[str, ...]:
    return tuple(tier.table for each in sets for tier in each.tiers)


QUEUE_METRIC = MetricDefinition(
    kind=QUEUE, landing=tables.QUEUE_LANDING, tiers=_tables(tables.QUEUES, tables.ENVIRONMENTS)
)
WORKER_METRIC = MetricDefinition(kind=WORKER, landing=tables.WORKER_LANDING, tiers=_tables(tables.WORKERS))
DEFINITIONS: tuple[MetricDefinition, ...] = (QUEUE_METRIC, WORKER_METRIC)


def by_name(definitions: Iterable[MetricDefinition]) -> dict[str, MetricDefinition]:
    """The definitions by name; two with the same name are refused."""
    found: dict[str, MetricDefinition] = {}
    for definition in definitions:
        if definition.name in found:
            raise Misconfigured(f"metric `{definition.name}` is defined twice; rename one of them")
        found[definition.name] = definition
    return found
