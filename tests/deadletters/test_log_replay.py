"""Messages of a log are sent into a queue: read, counted, paced, watched, and never sent twice."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import pytest
from redis.asyncio import Redis
from tests.deadletters.http_api import Api, served
from tests.deadletters.world import World, with_limits

from support.lives import emitted_log, land_log
from support.urls import with_database
from support.waiting import until
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.control.database import Database
from weir.deadletters.bulk_action_runner import BulkActionRunner
from weir.deadletters.bulk_action_states import BulkActionState
from weir.deadletters.bulk_actions import BulkAction
from weir.deadletters.log_selection import LogSelection, NewLogReplay
from weir.errors import BrokerUnavailable, InvalidInput, NotFound
from weir.lineage.children import Kinship, lineage_of
from weir.model.clock import SystemClock
from weir.model.durations import DAY_MS
from weir.model.logged import LoggedMessage
from weir.model.message import Delivery, Enqueued, NewMessage
from weir.model.names import EnvironmentRef, QueueRef
from weir.spec import evaluation
from weir.telemetry.tails import RedisTails
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.reading.warehouse import Warehouse, open_warehouse

AUDIT = "SELECT action, target, details FROM weir.audit_log WHERE environment = %s ORDER BY id"


@dataclass
class LoggedWorld:
    """A world on a real Redis whose queue `source` keeps a log, and the warehouse that holds it."""

    world: World
    broker: RedisBroker
    warehouse: Warehouse
    warehouse_url: str
    source: QueueRef
    target: QueueRef

    async def end(self, *payloads: str, **options: Any) -> None:
        """Let messages end, and land them in the log."""
        before = len(await emitted_log(self.broker, self.source))
        messages = [NewMessage(payload=text.encode(), **options) for text in payloads]
        await self.broker.enqueue(self.source, messages)
        deliveries = await self.broker.dequeue(self.source, consumer="c", limit=len(payloads))
        await self.broker.ack([one.lease for one in deliveries])
        await self.land((await emitted_log(self.broker, self.source))[before:])

    async def land(self, messages: Sequence[LoggedMessage]) -> None:
        with closing(ClickHouseConnection(self.warehouse_url)) as connection:
            land_log(connection, messages)

    async def begin(self, **options: Any) -> BulkAction:
        names = ("from_ms", "to_ms", "key", "expression")
        chosen = {name: options.pop(name) for name in names if name in options}
        selection = LogSelection(queue="source", **chosen)
        new = NewLogReplay(**{"selection": selection, "into": "target", **with_limits(options)})
        return await self.world.bulk_actions.create_log_replay(
            self.world.environment, new, expected=0, by="ann"
        )

    async def replayed(self) -> list[Delivery]:
        """Take what waits in the target."""
        return await self.broker.dequeue(self.target, consumer="t", limit=1_000)


@pytest.fixture
def own_redis(redis_url: str) -> str:
    """A database that no other test uses, so that its streams say how far the pipeline is."""
    return with_database(redis_url, "7")


@pytest.fixture
async def logged(
    shared_url: str, own_redis: str, warehouse_url: str, environment: EnvironmentRef
) -> AsyncIterator[LoggedWorld]:
    client = Redis.from_url(own_redis)
    await client.flushdb()
    broker = RedisBroker(RedisConnection(url=own_redis), shards=2)
    async with Database(shared_url, max_size=4) as database:
        # Redis has its own time, so all have it here.
        world = World(database, environment, server=broker, clock=SystemClock())
        warehouse = open_warehouse(warehouse_url, tails=NoTails(client, shards=2), shards=2)
        world.runner = BulkActionRunner(broker, database, log=warehouse.log)
        source = await world.define("source", log_ms=30 * DAY_MS)
        target = await world.define("target")
        yield LoggedWorld(world, broker, warehouse, warehouse_url, source, target)
        await warehouse.aclose()
    await broker.aclose()
    await client.aclose()


class NoTails(RedisTails):
    """A pipeline that has landed everything: tests land rows themselves."""

    behind = False

    async def tails(self, metric: str) -> dict[int, tuple[int, int]]:
        return {0: (2**40, 0), 1: (2**40, 0)} if NoTails.behind else {}


async def test_messages_are_sent_with_what_they_carried_and_know_where_they_came_from(
    logged: LoggedWorld,
) -> None:
    await logged.end("one", "two", key="k", headers={"a": "b"}, priority=7, idempotency_key="x" * 9)
    await logged.end("three")
    done = await logged.world.work(await logged.begin(key="k"))
    assert (done.state, done.matched, done.done) == (BulkActionState.COMPLETED, 1, 1)
    (delivery,) = await logged.replayed()
    (first, *_) = await emitted_log(logged.broker, logged.source)
    assert (delivery.payload, delivery.key, delivery.priority) == (b"one", "k", 7)
    assert delivery.headers["a"] == "b"
    assert delivery.headers["weir-replayed-from"] == first.life.message_id
    lineage = await lineage_of(logged.world.database, logged.world.environment, delivery.message_id)
    assert lineage.parent is not None
    assert (lineage.parent.message_id, lineage.parent.kind) == (first.life.message_id, Kinship.REPLAYED)
    parent = await lineage_of(logged.world.database, logged.world.environment, first.life.message_id)
    assert [one.message_id for one in parent.children] == [delivery.message_id]


async def test_time_and_cel_choose_and_a_dry_run_changes_nothing(logged: LoggedWorld) -> None:
    await logged.end(*(f'{{"n": {n}}}' for n in range(20)))
    messages = await emitted_log(logged.broker, logged.source)
    action = await logged.begin(expression="payload.n >= 15", dry_run=True)
    counted = await logged.world.work(action)
    assert (counted.state, counted.scanned, counted.matched, counted.done) == ("completed", 20, 5, 0)
    assert set(counted.samples) == {one.life.message_id for one in messages[15:]}
    assert await logged.replayed() == []
    done = await logged.world.work(await logged.begin(expression="payload.n >= 15"))
    assert (done.matched, done.done) == (5, 5)
    assert sorted(one.payload for one in await logged.replayed()) == [b'{"n": %d}' % n for n in range(15, 20)]
    nothing = await logged.world.work(await logged.begin(to_ms=messages[0].life.ended_at_ms))
    assert (nothing.state, nothing.scanned) == (BulkActionState.COMPLETED, 0)


async def test_a_batch_whose_answer_was_lost_is_not_sent_twice(
    logged: LoggedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await logged.end(*map(str, range(300)))
    action = await logged.begin(everything=True)
    enqueue, lost = logged.broker.enqueue, []

    async def lose(*args: Any, **options: Any) -> list[Enqueued]:
        answers = await enqueue(*args, **options)
        if len(lost) < 2:
            lost.append(len(answers))
            raise BrokerUnavailable("the answer was lost", retry_after_s=0)
        return answers

    monkeypatch.setattr(logged.broker, "enqueue", lose)
    monkeypatch.setattr("weir.deadletters.bulk_action_runner.RETRY_MS", 0)
    done = await logged.world.work(action)
    assert (lost, done.state, done.done) == ([300, 300], BulkActionState.COMPLETED, 300)
    assert Counter(one.payload for one in await logged.replayed()) == Counter(
        str(n).encode() for n in range(300)
    )


async def test_two_replays_of_the_same_messages_are_two_requests(logged: LoggedWorld) -> None:
    await logged.end("once")
    for _ in range(2):
        assert (await logged.world.work(await logged.begin(everything=True))).done == 1
    assert [one.payload for one in await logged.replayed()] == [b"once", b"once"]


async def test_a_replay_waits_until_the_log_is_complete_and_tells_what_is_missing(
    logged: LoggedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await logged.end("one")
    monkeypatch.setattr(NoTails, "behind", True)
    action = await logged.begin(everything=True)
    waiting = await logged.world.runner.step(action.id)
    assert waiting is not None
    assert "waiting for the pipeline" in (waiting.note or "")
    monkeypatch.setattr(NoTails, "behind", False)
    (message,) = await emitted_log(logged.broker, logged.source)
    await logged.land([replace(message, number=4)])
    monkeypatch.setattr("weir.deadletters.log_replay_batch.LANDING_MS", 0)

    async def over() -> bool:
        return (await logged.world.work(action)).state.over

    await until(over, within_s=20)
    done = await logged.world.bulk_actions.find(logged.world.environment, action.id)
    assert (done.done, done.problem) == (2, "2 messages that ended in the span are not in the log")


async def test_a_message_without_its_payload_is_skipped_and_told(logged: LoggedWorld) -> None:
    await logged.end("one")
    (message,) = await emitted_log(logged.broker, logged.source)
    await logged.land([replace(message, number=2, left_out=True, payload=b"")])
    done = await logged.world.work(await logged.begin(everything=True))
    assert (done.done, done.skipped) == (1, 1)
    assert done.problem == "the log holds it without its payload, which was too large"


@pytest.mark.parametrize(("max_depth", "canary"), [(1, 0), (None, 1)], ids=["full queue", "canary"])
async def test_what_was_skipped_before_a_batch_stopped_is_counted(
    logged: LoggedWorld, max_depth: int | None, canary: int
) -> None:
    await logged.world.define("target", max_depth=max_depth)
    await logged.end(*map(str, range(3)))
    messages = await emitted_log(logged.broker, logged.source)
    first = min(one.life.ended_at_ms for one in messages)
    life = replace(messages[0].life, ended_at_ms=first - 1)
    await logged.land([replace(messages[0], number=4, left_out=True, payload=b"", life=life)])
    action = await logged.begin(expression="attempts >= 0", canary=canary)
    begun = await logged.world.runner.step(action.id)
    assert begun is not None
    assert (begun.done, begun.scanned, begun.skipped) == (1, 2, 1)
    assert begun.problem == "the log holds it without its payload, which was too large"


async def test_a_canary_that_dies_stops_the_replay_and_its_deaths_are_counted(logged: LoggedWorld) -> None:
    await logged.end(*map(str, range(10)))
    action = await logged.begin(everything=True, canary=3)
    watched = await logged.world.runner.step(action.id)
    assert watched is not None
    assert (watched.done, len(watched.canary_ids)) == (3, 3)
    await logged.world.die(logged.target)
    await logged.world.move()
    stopped = await logged.world.work(action)
    assert (stopped.state, stopped.done, stopped.died_again) == ("stopped_by_canary", 3, 3)
    await logged.world.bulk_actions.resume(logged.world.environment, action.id, by="ann")
    await logged.world.runner.step(action.id)
    again = await logged.replayed()
    assert len(again) == 3
    await logged.broker.ack([one.lease for one in again])

    async def over() -> bool:
        return (await logged.world.work(action)).state.over

    await until(over, within_s=20)
    done = await logged.world.bulk_actions.find(logged.world.environment, action.id)
    assert (done.state, done.done) == (BulkActionState.COMPLETED, 10)
    assert len(await logged.replayed()) == 4


async def test_a_full_queue_is_waited_for(logged: LoggedWorld) -> None:
    await logged.world.define("target", max_depth=2)
    await logged.end(*map(str, range(5)))
    action = await logged.begin(everything=True)
    waiting = await logged.world.runner.step(action.id)
    assert waiting is not None
    assert (waiting.done, waiting.note) == (2, "the queue `target` is full; waiting for room")
    got: list[Delivery] = []

    async def over() -> bool:
        taken = await logged.replayed()
        got.extend(taken)
        await logged.broker.ack([one.lease for one in taken])
        return (await logged.world.work(action)).state.over and len(got) == 5

    await until(over, within_s=20)
    assert sorted(one.payload for one in got) == [b"0", b"1", b"2", b"3", b"4"]


async def test_the_audit_log_says_who_replayed_what(logged: LoggedWorld) -> None:
    await logged.end("one", key="k")
    action = await logged.world.work(await logged.begin(key="k"))
    asked, ended = await logged.world.rows(AUDIT)
    assert (asked["action"], asked["target"]) == ("log.replay", action.id)
    assert asked["details"] == {"filter": {"queue": "source", "key": "k"}, "into": "target"}
    assert (ended["action"], ended["details"]["done"]) == ("log.task.completed", 1)


async def test_what_makes_no_sense_is_refused(logged: LoggedWorld) -> None:
    with pytest.raises(InvalidInput, match="say so with"):
        await logged.begin()
    with pytest.raises(InvalidInput, match="the span is empty"):
        await logged.begin(from_ms=5, to_ms=5)
    with pytest.raises(InvalidInput, match="a message in a log has no `fingerprint`"):
        await logged.begin(expression="fingerprint == 'x'")
    with pytest.raises(InvalidInput, match="expected true or false"):
        await logged.begin(expression="attempts + 1")
    with pytest.raises(NotFound):
        await logged.begin(everything=True, into="nowhere")


@pytest.fixture
async def api(logged: LoggedWorld) -> AsyncIterator[Api]:
    async with served(logged.world, warehouse=logged.warehouse) as api:
        yield api


async def test_it_is_read_over_http_by_time_key_and_cel(api: Api, logged: LoggedWorld) -> None:
    await logged.end(*(f'{{"n": {n}}}' for n in range(7)), key="a", headers={"h": "v"})
    await logged.end("not json", key="b")
    path = "/api/v1/queues/source/log"

    async def read(**query: Any) -> dict[str, Any]:
        answer = await api.client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        page: dict[str, Any] = answer.json()
        return page

    page = await read()
    assert [one["number"] for one in page["items"]] == list(range(1, 9))
    assert (page["scanned"], page["next_cursor"], page["gaps"]) == (8, None, [])
    first, last = page["items"][0], page["items"][-1]
    assert (first["payload"], first["headers"], first["life"]["outcome"]) == ({"n": 0}, {"h": "v"}, "acked")
    assert (last["payload"], last["payload_base64"]) == (None, "bm90IGpzb24=")
    assert first["kept_until_ms"] > first["life"]["ended_at_ms"] + 29 * DAY_MS
    numbers, cursor = [], None
    while True:
        page = await read(limit=3, **({} if cursor is None else {"cursor": cursor}))
        numbers += [one["number"] for one in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert numbers == list(range(1, 9))
    assert [one["number"] for one in (await read(key="b"))["items"]] == [8]
    found = await read(where="payload.n > 4")
    assert ([one["number"] for one in found["items"]], found["unanswered"]) == ([6, 7], 1)
    until_last = await read(to=str(last["life"]["ended_at_ms"]))
    assert [one["number"] for one in until_last["items"]] == list(range(1, 8))
    for wrong in ({"where": "nothing"}, {"cursor": "x"}, {"from": "5", "to": "4"}):
        assert (await api.client.get(path, params=wrong)).status_code == 422
    assert (await api.client.get("/api/v1/queues/nowhere/log")).status_code == 404


async def test_an_expression_over_its_budget_is_its_readers_error(
    api: Api, logged: LoggedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await logged.end("1", "2", "3")
    monkeypatch.setattr(evaluation, "BATCH_S", -1)
    monkeypatch.setattr(evaluation, "TURN_S", -1)
    answer = await api.client.get("/api/v1/queues/source/log", params={"where": "payload > 0"})
    assert (answer.status_code, answer.json()["code"]) == (422, "over_budget")
    assert "processor time" in answer.json()["detail"]


async def test_it_is_replayed_over_http_and_followed_as_a_task(api: Api, logged: LoggedWorld) -> None:
    await logged.end("one", "two")
    body = {"into": "target", "all": True, "rate_per_s": 1_000}
    answer = await api.client.post("/api/v1/queues/source/log/replays", json=body)
    assert answer.status_code == 202, answer.text
    task = answer.json()
    assert (task["kind"], task["expected"], task["filter"]["into"]) == ("replay", 2, "target")
    await logged.world.work(await logged.world.bulk_actions.find(logged.world.environment, task["id"]))
    found = (await api.client.get(answer.headers["location"])).json()
    assert (found["state"], found["done"]) == ("completed", 2)
    missing = await api.client.post("/api/v1/queues/nowhere/log/replays", json=body)
    assert missing.status_code == 404


@pytest.mark.fault
async def test_a_process_that_is_killed_while_it_replays_sends_nothing_twice(
    logged: LoggedWorld, shared_url: str, own_redis: str
) -> None:
    for _ in range(6):
        await logged.end(*(str(number) for number in range(1_000)))
    action = await logged.begin(everything=True, rate_per_s=1_500)
    for kill in range(4):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _RUNNER, shared_url, own_redis, logged.warehouse_url, env=dict(os.environ)
        )

        async def further(least: int = 600 * (kill + 1)) -> bool:
            found = await logged.world.bulk_actions.find(logged.world.environment, action.id)
            return found.done >= least

        await until(further, within_s=60)
        process.kill()
        await process.wait()

    async def over() -> bool:
        return (await logged.world.work(action)).state.over

    await until(over, within_s=60)
    parents: Counter[str] = Counter()
    while deliveries := await logged.replayed():
        parents.update(delivery.headers["weir-replayed-from"] for delivery in deliveries)
        await logged.broker.ack([delivery.lease for delivery in deliveries])
    assert (len(parents), set(parents.values())) == (6_000, {1})


_RUNNER = """
import asyncio, sys
from redis.asyncio import Redis
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.control.database import Database
from weir.deadletters.bulk_action_runner import BulkActionRunner
from weir.telemetry.tails import RedisTails
from weir.warehouse.reading.warehouse import open_warehouse
class NoTails(RedisTails):
    async def tails(self, metric): return {}
async def main():
    tails = NoTails(Redis.from_url(sys.argv[2]), shards=2)
    log = open_warehouse(sys.argv[3], tails=tails, shards=2).log
    async with Database(sys.argv[1], max_size=2) as database:
        broker = RedisBroker(RedisConnection(url=sys.argv[2]), shards=2)
        await BulkActionRunner(broker, database, log=log).run()
asyncio.run(main())
"""
