"""Metrics off and on: a gap of its own kind, in which every count is explained, so that drift is 0."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.pipeline.audits import audited
from tests.pipeline.flow import Flow

from weir.broker.broker import HEARTBEAT_MS
from weir.broker.metrics_switch import MetricsSwitch
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.model.clock import SystemClock
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef, QueueRef
from weir.pipeline.drift_audit import AuditReport, PipelineAuditor
from weir.pipeline.job import PipelineOptions
from weir.pipeline.switch_gaps import record_switch_gaps
from weir.serve.pipeline import read_live
from weir.spec.ir import QueueSpec
from weir.telemetry.store import StreamStore
from weir.telemetry.streams import switch_key
from weir.warehouse.audit_reader import AuditReader
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.tables import GapKind

SPEC = QueueSpec(name="q")


class LaterClock(SystemClock):
    """A clock that a test can set forward."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class Installation:
    """A real broker and its switch, and a pipeline that is moved by hand."""

    def __init__(
        self, options: PipelineOptions, warehouse: ClickHouseConnection, scope: EnvironmentRef
    ) -> None:
        self.options, self.warehouse, self.scope = options, warehouse, scope
        self.clock = LaterClock()
        connection = RedisConnection(url=options.redis_url)
        self.broker = RedisBroker(connection, shards=options.shards, clock=self.clock)
        self.switch = MetricsSwitch(connection, shards=options.shards)
        self.store = StreamStore(options.redis_url)
        self.flow = Flow(options)

    async def close(self) -> None:
        await self.broker.aclose()
        await self.switch.aclose()
        self.store.close()
        self.flow.close()

    async def define(self, name: str) -> QueueRef:
        queue = self.scope.queue(name)
        await self.broker.define(queue, SPEC)
        return queue

    async def push(self, queue: QueueRef, count: int) -> None:
        await self.broker.enqueue(queue, [NewMessage(payload=b"x") for _ in range(count)])

    async def take(self, queue: QueueRef, count: int) -> None:
        got = await self.broker.dequeue(queue, consumer="c", limit=count)
        await self.broker.ack([one.lease for one in got])

    async def set(self, *, on: bool) -> None:
        (await self.switch.switch(on=on, by="anna", reason="a load test")).require_all()

    async def beat(self) -> None:
        """The next heartbeats, without the wait for them."""
        self.clock.ahead_ms += HEARTBEAT_MS
        for shard in range(self.options.shards):
            await self.broker.heartbeat(shard)

    async def move(self) -> None:
        await asyncio.to_thread(self.flow.move)

    async def audit(self) -> AuditReport:
        auditor = PipelineAuditor(self.store, self.warehouse, metrics=["queue"], shards=self.options.shards)
        live, _ = await read_live(self.broker, auditor)
        return await asyncio.to_thread(audited, auditor, live)

    def record(self) -> int:
        switches = self.store.read_switches(shards=self.options.shards)
        return record_switch_gaps(self.warehouse, switches, metrics=["queue", "worker"])


@pytest.fixture
async def installation(
    options: PipelineOptions, warehouse: ClickHouseConnection, environment: EnvironmentRef
) -> AsyncIterator[Installation]:
    made = Installation(options, warehouse, environment)
    yield made
    await made.close()


def nonzero(lost: object) -> dict[str, int]:
    assert isinstance(lost, dict)
    return {name: count for name, count in lost.items() if count}


async def test_what_was_counted_while_off_is_explained_and_shown_by_counter(
    installation: Installation,
) -> None:
    here = installation
    busy, emptied = await here.define("busy"), await here.define("emptied")
    await here.push(busy, 5)
    await here.push(emptied, 4)
    await here.move()
    await here.set(on=False)
    await here.push(busy, 12)
    await here.take(emptied, 4)
    midst = await here.audit()
    assert (midst.drift, midst.complete) == (0, True), "live queues are ahead, and it is known why"
    assert [gap.open for gap in midst.gaps] == [True] * here.options.shards
    await here.set(on=True)
    await here.push(busy, 1)
    await here.beat()
    await here.move()
    report = await here.audit()
    assert report.drift == 0
    assert nonzero(report.lost) == {"enqueued": 12, "dequeued": 4, "acked": 4}
    assert {(gap.kind, gap.open) for gap in report.gaps} == {(GapKind.SWITCHED_OFF, False)}
    assert {gap.reason for gap in report.gaps} == {"metrics were switched off by anna: a load test"}
    assert (await here.audit()).lost == report.lost, "explained once"


async def test_a_loss_after_metrics_are_on_again_is_drift(installation: Installation) -> None:
    here = installation
    queue = await here.define("q")
    await here.push(queue, 1)
    await here.move()
    await here.set(on=False)
    await here.push(queue, 3)
    await here.set(on=True)
    await here.push(queue, 1)
    await here.move()
    assert (await here.audit()).drift == 0
    here.broker._runner._metrics = b"0"
    await here.push(queue, 2)
    here.broker._runner._metrics = b"1"
    await here.push(queue, 1)
    await here.move()
    report = await here.audit()
    assert (report.drift, nonzero(report.lost)) == (2, {"enqueued": 3})


async def test_drift_from_before_metrics_were_off_stays_drift(installation: Installation) -> None:
    here = installation
    queue = await here.define("q")
    await here.push(queue, 1)
    here.broker._runner._metrics = b"0"
    await here.push(queue, 2)
    here.broker._runner._metrics = b"1"
    await here.push(queue, 1)
    await here.move()
    await here.set(on=False)
    here.record()
    await here.push(queue, 3)
    await here.set(on=True)
    await here.push(queue, 1)
    await here.move()
    report = await here.audit()
    assert (report.drift, nonzero(report.lost)) == (2, {"enqueued": 3})


async def test_off_and_on_again_and_again_keeps_every_span(installation: Installation) -> None:
    here = installation
    queue = await here.define("q")
    for _ in range(3):
        await here.push(queue, 1)
        await here.move()
        await here.set(on=False)
        await here.push(queue, 2)
        await here.set(on=True)
    await here.push(queue, 1)
    await here.move()
    report = await here.audit()
    assert (report.drift, nonzero(report.lost)) == (0, {"enqueued": 6})
    assert len(report.gaps) == 3 * here.options.shards


async def test_recording_twice_changes_nothing_and_the_end_is_recorded_when_it_is_known(
    installation: Installation,
) -> None:
    here = installation
    await here.set(on=False)
    both = 2 * here.options.shards
    assert (here.record(), here.record()) == (both, 0)
    assert set(AuditReader(here.warehouse).switch_gaps().values()) == {""}
    await here.set(on=True)
    assert (here.record(), here.record()) == (both, 0)
    assert "" not in AuditReader(here.warehouse).switch_gaps().values()


async def test_a_gap_that_redis_forgot_ends(installation: Installation) -> None:
    here = installation
    await here.set(on=False)
    here.record()
    for shard in range(here.options.shards):
        await here.broker._runner.client.execute_command("DEL", switch_key(shard))
    assert here.record() == 2 * here.options.shards
    assert not any(gap.open for gap in AuditReader(here.warehouse).gaps())
    assert here.record() == 0
