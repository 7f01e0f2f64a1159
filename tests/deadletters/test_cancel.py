"""Messages of a queue are cancelled by filter: counted, paced, paused, gone on with after a kill."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.deadletters.http_api import Api, served
from tests.deadletters.world import World

from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.control.database import Database
from weir.deadletters.bulk_action_states import BulkActionState
from weir.deadletters.bulk_actions import BulkAction
from weir.deadletters.message_selection import MessageSelection, NewCancellation
from weir.errors import InvalidInput
from weir.model.inspection import MessagePage, MessageState
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef, QueueRef

AUDIT = "SELECT action, target, details FROM weir.audit_log WHERE environment = %s ORDER BY id"


@pytest.fixture(params=["memory", "redis"])
async def each(
    request: pytest.FixtureRequest, shared_url: str, redis_url: str, environment: EnvironmentRef
) -> AsyncIterator[World]:
    """A world with each broker."""
    if request.param == "memory":
        async with Database(shared_url, max_size=4) as database:
            yield World(database, environment)
        return
    broker = RedisBroker(RedisConnection(url=redis_url), shards=2)
    async with Database(shared_url, max_size=4) as database:
        yield World(database, environment, server=broker)
    await broker.aclose()


async def begin(world: World, queue: QueueRef, **options: Any) -> BulkAction:
    chosen = {name: options.pop(name) for name in ("everything", "dry_run", "rate_per_s") if name in options}
    new = NewCancellation(selection=MessageSelection(queue=queue.queue, **options), **chosen)
    return await world.bulk_actions.create_cancellation(world.environment, new, by="ann")


async def put(world: World, queue: QueueRef, count: int, **options: Any) -> None:
    for start in range(0, count, 500):
        size = min(500, count - start)
        batch = [NewMessage(payload=b'{"n": 1}', **options) for _ in range(size)]
        await world.broker.enqueue(queue, batch)


async def depths(world: World, queue: QueueRef) -> tuple[int, int]:
    state = await world.broker.state(queue)
    return state.depth, state.running


async def test_what_matches_is_cancelled_in_every_state_and_the_rest_stays(each: World) -> None:
    world = each
    queue = await world.define("q", max_attempts=3)
    await put(world, queue, 3, key="k")
    leased = await world.broker.dequeue(queue, consumer="c", limit=2)
    await put(world, queue, 450, key="k")
    await put(world, queue, 5, key="k", delay_ms=3_600_000)
    await put(world, queue, 7, key="other")
    counted = await world.work(await begin(world, queue, key="k", dry_run=True))
    assert (counted.state, counted.matched, counted.done) == (BulkActionState.COMPLETED, 458, 0)
    assert await depths(world, queue) == (463, 2)
    done = await world.work(await begin(world, queue, key="k"))
    assert (done.matched, done.done, done.skipped) == (458, 458, 0)
    assert await depths(world, queue) == (7, 0)
    assert await world.broker.revoked([one.lease for one in leased]) == [True, True]
    state = await world.broker.state(queue)
    assert state.odometers["cancelled"] == 458
    assert done.scanned <= done.expected


async def test_one_state_alone_is_cancelled_if_it_is_named(world: World) -> None:
    queue = await world.define("q")
    await put(world, queue, 4)
    await put(world, queue, 5, delay_ms=3_600_000)
    done = await world.work(await begin(world, queue, state=MessageState.SCHEDULED, everything=True))
    assert done.done == 5
    assert await depths(world, queue) == (4, 0)


async def test_only_old_messages_are_cancelled_and_none_that_comes_later(world: World) -> None:
    queue = await world.define("q")
    await put(world, queue, 3)
    world.clock.advance(60_000)
    await put(world, queue, 2)
    old = await begin(world, queue, older_than_ms=30_000)
    every = await begin(world, queue, everything=True)
    world.clock.advance(1_000)
    await put(world, queue, 1)
    assert (await world.work(old)).done == 3
    assert (await world.work(every)).done == 2
    assert await depths(world, queue) == (1, 0)


async def test_header_and_text_choose_too(world: World) -> None:
    queue = await world.define("q")
    await put(world, queue, 2, headers={"tenant": "a"})
    await put(world, queue, 3, headers={"tenant": "b"})
    assert (await world.work(await begin(world, queue, header=("tenant", "a")))).done == 2
    assert (await world.work(await begin(world, queue, text='"n": 1'))).done == 3


async def test_a_rate_is_kept_and_a_paused_cancellation_goes_on_where_it_was(world: World) -> None:
    queue = await world.define("q")
    await put(world, queue, 100)
    action = await begin(world, queue, state=MessageState.READY, everything=True, rate_per_s=20)
    paced = await world.runner.step(action.id)
    assert paced is not None
    assert (paced.done, paced.next_at_ms - world.clock.now_ms()) == (10, 500)
    assert await world.runner.step(action.id) is None
    await world.bulk_actions.pause(world.environment, action.id, by="ann")
    world.clock.advance(500)
    assert await world.runner.step(action.id) is None
    await world.bulk_actions.resume(world.environment, action.id, by="ann")
    for _ in range(20):
        await world.runner.step(action.id)
        world.clock.advance(500)
    done = await world.bulk_actions.find(world.environment, action.id)
    assert (done.state, done.done) == (BulkActionState.COMPLETED, 100)


async def test_a_batch_that_was_done_and_not_saved_is_not_done_twice(world: World) -> None:
    queue = await world.define("q")
    await put(world, queue, 500)
    action = await begin(world, queue, everything=True)
    page = await world.broker.list_messages(queue, MessageState.READY, limit=200)
    await world.broker.cancel(queue, [one.message_id for one in page.messages])
    done = await world.work(action)
    assert (done.state, done.done) == (BulkActionState.COMPLETED, 300)
    assert await depths(world, queue) == (0, 0)


async def test_messages_that_end_while_they_are_cancelled_are_skipped_and_said_to_be(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await world.define("q")
    await put(world, queue, 5)
    list_messages = world.broker.list_messages

    async def list_and_end_some(*about: Any, **options: Any) -> MessagePage:
        page = await list_messages(*about, **options)
        taken = await world.broker.dequeue(queue, consumer="c", limit=2)
        await world.broker.ack([one.lease for one in taken])
        return page

    action = await begin(world, queue, state=MessageState.READY, everything=True)
    monkeypatch.setattr(world.broker, "list_messages", list_and_end_some)
    done = await world.work(action)
    assert (done.state, done.matched, done.done, done.skipped) == (BulkActionState.COMPLETED, 5, 3, 2)
    assert done.problem == "they ended before they could be cancelled"


async def test_the_audit_log_says_who_cancelled_what_and_how_it_ended(world: World) -> None:
    queue = await world.define("q")
    await put(world, queue, 2, key="k")
    action = await world.work(await begin(world, queue, key="k"))
    asked, ended = await world.rows(AUDIT)
    assert (asked["action"], asked["target"]) == ("message.cancel", action.id)
    assert asked["details"]["filter"] == {"queue": "q", "key": "k"}
    assert (ended["action"], ended["details"]["done"]) == ("message.task.completed", 2)


async def test_everything_must_be_asked_for_in_so_many_words(world: World) -> None:
    queue = await world.define("q")
    with pytest.raises(InvalidInput, match="say so with `all: true`"):
        await begin(world, queue)
    with pytest.raises(InvalidInput, match="above 0"):
        await begin(world, queue, key="k", rate_per_s=0)
    assert (await world.work(await begin(world, queue, dry_run=True))).matched == 0


@pytest.fixture
async def api(world: World) -> AsyncIterator[Api]:
    async with served(world) as api:
        yield api


async def test_it_is_asked_for_over_http_and_followed_as_a_task(api: Api) -> None:
    queue = await api.world.define("q/1")
    await put(api.world, queue, 4, key="k")
    body = {"filter": {"key": "k", "state": "ready"}}
    answer = await api.client.post("/api/v1/queues/q%2F1/messages/cancellations", json=body)
    assert answer.status_code == 202, answer.text
    task = answer.json()
    assert (task["kind"], task["expected"]) == ("cancel", 4)
    assert task["filter"] == {"queue": "q/1", "state": "ready", "key": "k"}
    assert answer.headers["location"] == f"/api/v1/dlq/tasks/{task['id']}"
    await api.world.work(await api.world.bulk_actions.find(api.world.environment, task["id"]))
    shown = (await api.client.get(answer.headers["location"])).json()
    assert (shown["state"], shown["done"]) == ("completed", 4)
    listed = (await api.client.get("/api/v1/dlq/tasks")).json()["items"]
    assert [one["id"] for one in listed] == [task["id"]]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"filter": {"state": "queued"}, "all": True}, 422),
        ({"filter": {"older_than_ms": -1}}, 422),
        ({"filter": {"key": ""}}, 422),
        ({"filter": {"key": "k"}, "rate_per_s": 0}, 422),
        ({"filter": {"key": "k"}, "surprise": 1}, 422),
    ],
)
async def test_wrong_requests_are_refused(api: Api, body: dict[str, Any], status: int) -> None:
    await api.world.define("q")
    answer = await api.client.post("/api/v1/queues/q/messages/cancellations", json=body)
    assert answer.status_code == status, answer.text


async def test_a_queue_that_does_not_exist_is_not_found(api: Api) -> None:
    answer = await api.client.post("/api/v1/queues/none/messages/cancellations", json={"all": True})
    assert answer.status_code == 404
