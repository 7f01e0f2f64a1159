"""A thousand letters of nearly a megabyte: pages end, batches are small, and the event loop goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.deadletters.http_api import Api, served
from tests.deadletters.large import add_letters, watched_loop
from tests.deadletters.world import World

from weir.deadletters.bulk_action_batch import BATCH_BYTES, DELETE_BYTES
from weir.deadletters.bulk_actions import BulkActionKind, NewBulkAction
from weir.deadletters.filters import Filter
from weir.deadletters.store import PAGE_BYTES
from weir.model.message import Failure
from weir.model.names import QueueRef
from weir.spec.ir import EnqueueTo

PAYLOAD_BYTES = 1_000_000
HELD_S = 0.05
"""Processor time; a page or a batch took 5 ms on an idle machine, and without a bound it takes seconds."""


def redrive(*, expression: str | None = None, **asked: Any) -> NewBulkAction:
    return NewBulkAction(
        kind=BulkActionKind.REDRIVE, filter=Filter(queue="orders", expression=expression), **asked
    )


def purge(**asked: Any) -> NewBulkAction:
    return replace(redrive(**asked), kind=BulkActionKind.PURGE)


@pytest.fixture
async def large(world: World) -> World:
    await add_letters(world, await world.define("orders"), count=1_000, payload_bytes=PAYLOAD_BYTES)
    return world


async def test_a_page_of_large_letters_ends_and_goes_on_at_its_cursor(
    large: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(large) as api:
        for path, query in (("/api/v1/dlq/letters", {"queue": "orders"}), ("/admin/queues/orders/dlq", {})):
            # The first request builds what later ones find.
            await api.client.get(path, params={"limit": 1, **query})
            assert await _walk(api, path, query, monkeypatch) == 6


async def _walk(api: Api, path: str, query: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Read three pages; how many letters they hold."""
    seen: list[str] = []
    for _ in range(3):
        with watched_loop(monkeypatch) as held:
            answer = await api.client.get(path, params={"limit": 500, **query})
        assert answer.status_code == 200
        assert len(answer.content) < PAGE_BYTES + 2 * PAYLOAD_BYTES
        assert held.longest_s < HELD_S
        page = answer.json()
        query = {**query, "before": page["next_before"]}
        seen += [one["id"] for one in page.get("items", page.get("dead_letters"))]
    assert len(seen) == len(set(seen))
    return len(seen)


async def test_the_pages_of_a_queue_hold_every_letter_once(world: World) -> None:
    queue = await world.define("orders")
    await add_letters(world, queue, count=20, payload_bytes=300_000)
    seen: list[str] = []
    page = await world.letters.newest(queue, limit=500)
    while True:
        assert sum(len(letter.payload) for letter in page.letters) < PAGE_BYTES + 300_100
        seen += [letter.id for letter in page.letters]
        if page.next is None:
            break
        page = await world.letters.newest(queue, before=page.next, limit=500)
    assert len(seen) == len(set(seen)) == 21


async def test_a_batch_of_large_letters_reads_few_bytes_and_holds_the_event_loop_shortly(
    large: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for asked in (
        redrive(patch='{"seen": true}', dry_run=True),
        redrive(expression="payload.n > 0", dry_run=True),
        redrive(patch='{"seen": true}'),
        redrive(expression="payload.n > 0"),
        redrive(),
        purge(expression="payload.n > 0"),
    ):
        action = await large.start(asked)
        await large.runner.step(action.id)
        with watched_loop(monkeypatch) as held:
            stepped = await large.runner.step(action.id)
        assert stepped is not None
        assert 2 <= stepped.scanned <= 2 * (BATCH_BYTES // PAYLOAD_BYTES + 2)
        assert held.longest_s < HELD_S
        await large.bulk_actions.cancel(large.environment, action.id, by="test")
    counted = await large.work(await large.start(redrive(dry_run=True)), steps=2)
    assert counted.matched == (await large.summary())["orders"]


async def test_a_purge_of_large_letters_is_bounded_and_exact(large: World) -> None:
    action = await large.work(await large.start(purge()), steps=1)
    assert 1 < action.done <= DELETE_BYTES // PAYLOAD_BYTES + 2
    await large.check_exact()
    action = await large.work(action)
    assert (action.done, action.scanned) == (1_001, 1_001)
    assert await large.summary() == {"orders": 0}


async def test_copies_of_large_letters_go_out_in_small_batches_in_the_order_of_death(world: World) -> None:
    await world.define("parked", action=EnqueueTo(queue="notices"))
    orders = await world.define("orders", dead_letter_queue="parked")
    await add_letters(world, orders, count=8)
    parked: QueueRef = world.environment.queue("parked")
    assert await world.copier.run_round()
    assert (await world.broker.state(parked)).depth <= 2 * BATCH_BYTES // PAYLOAD_BYTES
    while await world.copier.run_round():
        pass
    assert (await world.broker.state(parked)).depth == 9


async def test_hundreds_of_long_errors_of_many_kinds_are_stored_beside_the_event_loop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await world.define("orders")
    messages = await world.push(queue, *range(300))
    for delivery in await world.broker.dequeue(queue, consumer="test", limit=300):
        error = f"{delivery.message_id} " + 400 * '"a1 b2" 10.0.0.1:80 \\ '
        await world.broker.nack([Failure(lease=delivery.lease, error=error)])
    with watched_loop(monkeypatch) as held:
        await world.move()
    assert held.longest_s < HELD_S
    assert await world.summary() == {"orders": len(messages)}
    (letter, *_) = await world.newest(queue)
    assert letter.error.endswith('"a1 b2" 10.0.0.1:80 \\ ')
