"""Calls are heard of once, at the seam."""

from __future__ import annotations

import inspect

import pytest
from prometheus_client import CollectorRegistry

from weir.broker.broker import Broker
from weir.broker.observed import Observed, PrometheusObserver
from weir.errors import NotFound
from weir.model.lives import Life
from weir.model.logged import LoggedMessage
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef, QueueRef
from weir.spec.ir import QueueSpec
from weir.testing.clocks import ManualClock
from weir.testing.conformance import BrokerConformance
from weir.testing.conformance.lives import ReadLives
from weir.testing.conformance.log import ReadLog
from weir.testing.memory import MemoryBroker


class TestObservedBroker(BrokerConformance):
    @pytest.fixture
    def broker(self, memory: MemoryBroker) -> Observed:
        return Observed(memory, PrometheusObserver(CollectorRegistry()))

    @pytest.fixture
    def memory(self, manual_clock: ManualClock) -> MemoryBroker:
        return MemoryBroker(clock=manual_clock)

    @pytest.fixture
    def read_lives(self, memory: MemoryBroker) -> ReadLives:
        async def read(queue: QueueRef) -> list[Life]:
            return [life for life in memory.lives if life.queue == queue]

        return read

    @pytest.fixture
    def read_log(self, memory: MemoryBroker) -> ReadLog:
        async def read(queue: QueueRef) -> list[LoggedMessage]:
            return [one for one in memory.logged if one.life.queue == queue]

        return read


def test_every_verb_of_the_protocol_is_passed_on() -> None:
    verbs = {name for name, _ in inspect.getmembers(Broker, inspect.isfunction) if not name.startswith("_")}
    assert verbs <= set(vars(Observed))


async def test_calls_messages_and_errors_are_counted(environment: EnvironmentRef) -> None:
    registry = CollectorRegistry()
    observer = PrometheusObserver(registry)
    broker, queue = Observed(MemoryBroker(), observer), environment.queue("work")
    with pytest.raises(NotFound):
        await broker.enqueue(queue, [NewMessage(payload=b"x")])
    await broker.define(queue, QueueSpec(name="work"))
    await broker.enqueue(queue, [NewMessage(payload=b"x"), NewMessage(payload=b"y")])
    assert len(await broker.dequeue(queue, consumer="c", limit=5)) == 2
    assert registry.get_sample_value("weir_broker_messages_total", {"verb": "enqueue"}) == 2
    assert registry.get_sample_value("weir_broker_messages_total", {"verb": "dequeue"}) == 2
    errors = {"verb": "enqueue", "code": "not_found"}
    assert registry.get_sample_value("weir_broker_errors_total", errors) == 1
    assert "weir_broker_messages" in [family.name async for family in observer.families()]
