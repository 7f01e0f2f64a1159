"""Keeps the findings of audits: one row per audit, and the known drift of each queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pyarrow as pa

from weir.model.names import EnvironmentRef, QueueRef
from weir.warehouse import tables
from weir.warehouse.audit_reader import Counts, audit_query, named
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.ingest import GapRow
from weir.warehouse.reading.audits import NEWEST, PastAudit
from weir.warehouse.reading.questions import ask_operator

# Arrow does not take a list of pairs for a map by itself, so the types are spelled out.
_QUEUE_DRIFT = pa.schema(
    [
        *((name, pa.string()) for name in tables.QUEUES.dimensions),
        ("last_at", pa.timestamp("ms", tz="UTC")),
        ("audit", pa.uint64()),
        ("ledger_drift", pa.map_(pa.string(), pa.int64())),
        ("tier_drift", pa.uint64()),
        ("live_drift", pa.uint64()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One audit in the history."""

    number: int
    started_ms: int
    drift: int | None
    """None if the audit could not finish; then `reason` says why."""
    reason: str
    ledger_drift: int
    tier_drift: int
    live_drift: int
    queues: int
    events: int
    held_ms: int
    """For how long the pipeline was paused."""
    took_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDrift:
    """The known drift of one queue."""

    queue: QueueRef
    last_ms: int
    """The time of its newest event that had landed."""
    ledger_drift: Counts
    """Odometer - counted - lost in gaps, by counter."""
    tier_drift: int = 0
    live_drift: int = 0

    @property
    def size(self) -> int:
        return sum(map(abs, self.ledger_drift)) + self.tier_drift + self.live_drift


class AuditHistory:
    """Writes the history; the caller holds the lease of the audit."""

    def __init__(self, connection: ClickHouseConnection) -> None:
        self._connection = connection

    def next_number(self) -> int:
        """The number of the next audit. Numbers order the audits, so that no clock has to."""
        return int(self._connection.rows(audit_query("newest_number"))[0]["number"]) + 1

    def newest(self, *, limit: int) -> list[PastAudit]:
        """The newest audits, newest first."""
        question = ask_operator("audits", limit=limit, before=NEWEST)
        return [PastAudit(**row) for row in self._connection.rows(question.sql, question.parameters)]

    def read_known(self) -> dict[QueueRef, QueueDrift]:
        """Every queue with known drift."""
        found = map(_drift_in, self._connection.rows(audit_query("known_drift")))
        return {one.queue: one for one in found}

    def record(self, audit: AuditRecord) -> None:
        row = {
            **{name: getattr(audit, name) for name in AuditRecord.__slots__ if name != "started_ms"},
            "started_at": _time(audit.started_ms),
        }
        self._connection.insert_rows(tables.AUDITS, [row], token=uuid4().hex)

    def record_drift(
        self, audit: AuditRecord, queues: Iterable[QueueDrift], environments: Mapping[EnvironmentRef, int]
    ) -> None:
        """Note the drift of every queue that drifts now, and no drift for queues that drifted only before."""
        self._record_queues(audit.number, {one.queue: one for one in queues})
        self._record_environments(audit, environments)

    def _record_queues(self, number: int, now: Mapping[QueueRef, QueueDrift]) -> None:
        before = self.read_known()
        gone = [
            QueueDrift(queue=queue, last_ms=old.last_ms, ledger_drift=())
            for queue, old in before.items()
            if queue not in now
        ]
        changed = [one for one in now.values() if before.get(one.queue) != one]
        rows = [_row_of(one, number) for one in (*gone, *changed)]
        block = pa.Table.from_pylist(rows, schema=_QUEUE_DRIFT)
        self._connection.insert(tables.QUEUE_DRIFT, block, token=uuid4().hex)

    def _record_environments(self, audit: AuditRecord, sums: Mapping[EnvironmentRef, int]) -> None:
        rows = [
            {
                "organization": scope.organization,
                "project": scope.project,
                "environment": scope.environment,
                "number": audit.number,
                "started_at": _time(audit.started_ms),
                "drift": drift,
            }
            for scope, drift in sums.items()
        ]
        self._connection.insert_rows(tables.ENVIRONMENT_DRIFT, rows, token=uuid4().hex)


def remember_drift(connection: ClickHouseConnection, gaps: Sequence[GapRow]) -> None:
    """Note the drift of the queues that gaps hit; call this before the first event after the gaps lands.

    Without the note, the next audit would take an older loss for a part of the gap. A queue that has sent an
    event since the gap began is left alone, so calling this too late or twice does no harm.
    """
    for gap in gaps:
        if gap.metric == "queue":
            connection.command(
                audit_query("remember_drift"),
                {
                    "ledger": tables.LEDGER,
                    "shard": gap.shard,
                    "until_ms": int(gap.from_id.partition("-")[0]),
                },
            )


def _drift_in(row: Mapping[str, Any]) -> QueueDrift:
    return QueueDrift(
        queue=QueueRef(**{name: row[name] for name in tables.QUEUES.dimensions}),
        last_ms=row["last_ms"],
        ledger_drift=tuple(row["ledger_drift"]),
        tier_drift=row["tier_drift"],
        live_drift=row["live_drift"],
    )


def _row_of(one: QueueDrift, number: int) -> dict[str, Any]:
    return {
        **{name: getattr(one.queue, name) for name in tables.QUEUES.dimensions},
        "last_at": _time(one.last_ms),
        "audit": number,
        "ledger_drift": list(named(one.ledger_drift).items()),
        "tier_drift": one.tier_drift,
        "live_drift": one.live_drift,
    }


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1_000, UTC)
