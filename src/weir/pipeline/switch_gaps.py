"""Records the spans in which metrics were off as gaps: charts show them as unknown, and the audit explains
losses by them.

Redis knows the spans, because the switch is there. The process that switches records them at once. The
pipeline and the audit record them again, in case ClickHouse was away then; recording twice changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from uuid import uuid4

import structlog

from weir.errors import WeirError
from weir.telemetry.store import StreamStore
from weir.telemetry.switch import OffSpan, ShardSwitch
from weir.warehouse.audit_history import remember_drift
from weir.warehouse.audit_reader import AuditReader
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.ingest import GapRow, insert_gaps
from weir.warehouse.tables import GapKind

_log = structlog.get_logger(__name__)

Ends = Mapping[tuple[str, int, str], str]
"""The ends of recorded gaps, by metric, shard and first id; empty for an open gap."""


def record_switch_gaps(
    connection: ClickHouseConnection, switches: Sequence[ShardSwitch], *, metrics: Iterable[str]
) -> int:
    """Record each span that the warehouse lacks, or has with another end; returns how many rows it wrote."""
    now_ms = time.time_ns() // 1_000_000
    recorded = AuditReader(connection).switch_gaps()
    rows = unrecorded(switches, recorded, metrics=list(metrics), now_ms=now_ms)
    if rows:
        # Note the drift before the gaps: a gap must not explain drift that is older than the gap.
        new = [row for row in rows if (row.metric, row.shard, row.from_id) not in recorded]
        remember_drift(connection, new)
        # Metric, shard and start identify a row, so no token has to protect it from a repetition.
        insert_gaps(connection, rows, token=uuid4().hex, now_ms=now_ms)
    return len(rows)


def unrecorded(
    switches: Sequence[ShardSwitch], recorded: Ends, *, metrics: Sequence[str], now_ms: int
) -> list[GapRow]:
    """The rows that the warehouse lacks. Shards that are not given are left alone."""
    return [*_missing(switches, recorded, metrics=metrics), *_forgotten(switches, recorded, now_ms=now_ms)]


def _missing(switches: Sequence[ShardSwitch], recorded: Ends, *, metrics: Sequence[str]) -> Iterator[GapRow]:
    for switch in switches:
        for span in switch.spans:
            for metric in metrics:
                row = _row(metric, switch.shard, span)
                if recorded.get((metric, switch.shard, row.from_id)) != row.to_id:
                    yield row


def _forgotten(switches: Sequence[ShardSwitch], recorded: Ends, *, now_ms: int) -> Iterator[GapRow]:
    """Ends for open gaps that Redis does not know: it lost its data, so metrics are on and the gaps over."""
    known = {switch.shard: {_id(span.from_ms) for span in switch.spans} for switch in switches}
    for (metric, shard, from_id), to_id in recorded.items():
        if not to_id and from_id not in known.get(shard, {from_id}):
            yield GapRow(
                metric=metric,
                shard=shard,
                from_id=from_id,
                to_id=_id(now_ms),
                reason="metrics were switched off, and Redis lost its data",
                entries=None,
                kind=GapKind.SWITCHED_OFF,
            )


def _row(metric: str, shard: int, span: OffSpan) -> GapRow:
    return GapRow(
        metric=metric,
        shard=shard,
        from_id=_id(span.from_ms),
        to_id="" if span.to_ms is None else _id(span.to_ms),
        reason=f"metrics were switched off by {span.by}: {span.reason}".removesuffix(": "),
        entries=None,
        kind=GapKind.SWITCHED_OFF,
    )


def _id(time_ms: int) -> str:
    """The id that the first entry of a millisecond would have."""
    return f"{time_ms}-0"


class SwitchGapRecorder:
    """Records the spans of a running pipeline whenever they changed."""

    def __init__(
        self, store: StreamStore, clickhouse_url: str, *, metrics: Sequence[str], shards: int
    ) -> None:
        self._store = store
        self._url = clickhouse_url
        self._metrics = metrics
        self._shards = shards
        self._recorded: Sequence[ShardSwitch] | None = None

    def record(self) -> None:
        """Record what changed since the last time; a failure is logged, and the next call tries again."""
        try:
            switches = self._store.read_switches(shards=self._shards)
            if switches != self._recorded:
                connection = ClickHouseConnection(self._url, timeout_s=5, connect_timeout_s=5)
                try:
                    record_switch_gaps(connection, switches, metrics=self._metrics)
                finally:
                    connection.close()
                self._recorded = switches
        except WeirError as error:
            _log.warning("the spans without metrics are not recorded yet", error=str(error))
