"""Consumers that wait for messages: how little they ask Redis meanwhile."""

from __future__ import annotations

import pytest

from support.script_runs import note_runs
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef
from weir.spec.ir import QueueSpec


async def test_a_consumer_that_waits_again_asks_once_before_it_sleeps_and_once_after(
    redis_url: str, environment: EnvironmentRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = environment.queue("q")
    broker = RedisBroker(RedisConnection(url=redis_url))
    await broker.define(queue, QueueSpec(name="q"))
    assert await broker.dequeue(queue, consumer="c", wait_ms=1) == []
    runs = note_runs(broker, monkeypatch)
    # Longer than all that is asked takes.
    assert await broker.dequeue(queue, consumer="c", wait_ms=200) == []
    assert runs == ["dequeue"] * 2
    await broker.enqueue(queue, [NewMessage(payload=b"x")])
    runs.clear()
    assert len(await broker.dequeue(queue, consumer="c", wait_ms=1)) == 1
    assert runs == ["dequeue"]
    await broker.aclose()
