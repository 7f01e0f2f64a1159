"""The relay brings each message once and in order, whatever dies; queues that refuse wait alone."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from outbox.world import Dying, World
from support.pgbouncer import pooled_url
from support.waiting import until
from weir.outbox import apush, push
from weir.spec.ir import QueueSpec, Retention


def values(deliveries: list[Any]) -> list[Any]:
    return [json.loads(one.payload) for one in deliveries]


async def test_a_message_arrives_as_it_was_pushed(world: World) -> None:
    async with await psycopg.AsyncConnection.connect(world.url) as connection:
        await apush(connection, "receipts", {"order": 42}, key="k", headers={"a": "b"}, priority=7)
        await apush(connection, "receipts", b"\x00\xff", idempotency_key="once")
    async with world.relaying():
        await until(world.empty)
    first, second = sorted(await world.take(), key=lambda one: one.payload, reverse=True)
    assert (first.payload, first.key, first.headers, first.priority) == (b'{"order":42}', "k", {"a": "b"}, 7)
    assert (second.payload, second.idempotency_key) == (b"\x00\xff", "once")


async def test_a_delay_counts_from_the_push(world: World) -> None:
    async with await psycopg.AsyncConnection.connect(world.url) as connection:
        await apush(connection, "receipts", 1, delay=3_600)
        await connection.execute(
            "UPDATE weir_outbox.messages SET created_at = created_at - interval '30 minutes'"
        )
    async with world.relaying():
        await until(world.empty)
    state = await world.broker.state(world.queue)
    assert (state.depth, state.delayed) == (1, 1)


@pytest.mark.parametrize("transactions", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
async def test_transactions_of_which_a_third_roll_back_lose_and_double_nothing_while_relays_die(
    world: World, transactions: int
) -> None:
    """Relays die before a push, after it and before its rows are deleted, and by losing their connection."""
    writing = asyncio.create_task(asyncio.to_thread(_write, world.url, transactions=transactions))
    chance = random.Random(7)
    deaths = 0
    while not (writing.done() and await world.empty()):
        dying = Dying(world.weir, lives=chance.randint(1, 12))
        async with world.relaying(dying):
            done, _ = await asyncio.wait(
                [asyncio.create_task(dying.died.wait())], timeout=chance.uniform(0.05, 0.4)
            )
            deaths += len(done)
            if not done:
                await _terminate_relays(world.url)
    committed = await writing
    found = values(await world.take())
    counted = Counter(number for _, number in found)
    assert (set(counted) - committed, committed - set(counted)) == (set(), set())
    assert set(counted.values()) == {1}
    assert 0.6 < len(committed) / transactions < 0.74
    assert deaths >= transactions // 1_000
    by_key: dict[str, list[int]] = defaultdict(list)
    for key, number in found:
        by_key[key].append(number)
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def _write(url: str, *, transactions: int) -> set[int]:
    """Write with few keys, so that order matters; the numbers of the transactions that committed."""
    chance = random.Random(1)
    committed = set()
    with psycopg.connect(url) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.commit()
        for number in range(transactions):
            key = f"k{chance.randint(0, 20)}"
            connection.execute("INSERT INTO orders VALUES (%s, %s)", (number, key))
            push(connection, "receipts", [key, number], key=key)
            if chance.random() < 1 / 3:
                connection.rollback()
            else:
                connection.commit()
                committed.add(number)
    return committed


async def _terminate_relays(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'weir-outbox-relay' AND datname = current_database()"
        )


async def test_several_relays_side_by_side_bring_each_message_once(world: World) -> None:
    with psycopg.connect(world.url) as connection:
        for number in range(3_000):
            push(connection, "receipts", [number % 7, number], key=f"k{number % 7}")
    async with world.relaying(), world.relaying(), world.relaying():
        await until(world.empty)
    found = values(await world.take())
    assert sorted(number for _, number in found) == list(range(3_000))
    assert all(
        [number for key, number in found if key == one] == list(range(one, 3_000, 7)) for one in range(7)
    )


async def test_another_relay_takes_over_within_seconds(world: World) -> None:
    dying = Dying(world.weir, lives=1)
    async with await psycopg.AsyncConnection.connect(world.url) as connection:
        await apush(connection, "receipts", 1)
    first = world.relaying(dying)
    await first.__aenter__()
    await dying.died.wait()
    async with world.relaying():
        await first.__aexit__(None, None, None)
        await until(world.empty)
    assert values(await world.take()) == [1]


async def test_a_queue_that_is_full_or_missing_holds_up_only_itself(world: World) -> None:
    small = world.queue.scope.queue("small")
    await world.broker.define(small, QueueSpec(name="small", retention=Retention(max_depth=2)))
    async with await psycopg.AsyncConnection.connect(world.url) as connection:
        for number in range(5):
            await apush(connection, "small", number, key="k")
            await apush(connection, "missing", number)
            await apush(connection, "receipts", number)
    async with world.relaying():
        await until(lambda: _count(world, 5))
        found: list[int] = []
        while len(found) < 5:
            found += await until(lambda: _taken(world, small))
        await world.broker.define(world.queue.scope.queue("missing"), QueueSpec(name="missing"))
        await until(world.empty)
    assert found == [0, 1, 2, 3, 4]
    assert len(await world.take(world.queue.scope.queue("missing"))) == 5


async def _count(world: World, wanted: int) -> bool:
    return (await world.broker.state(world.queue)).depth == wanted


async def _taken(world: World, queue: Any) -> list[int]:
    return values(await world.take(queue))


async def test_a_message_that_can_never_be_pushed_is_set_aside_and_the_others_go_on(world: World) -> None:
    async with await psycopg.AsyncConnection.connect(world.url) as connection:
        await apush(connection, "receipts", "first", key="k", idempotency_key="once")
        await apush(connection, "receipts", "other", key="k", idempotency_key="once")
        for number in range(5):
            await apush(connection, "receipts", number)
        # A row that nobody could have pushed: the API refuses the whole request for it.
        await connection.execute(
            "INSERT INTO weir_outbox.messages (id, queue, payload, is_json, priority) "
            "VALUES (gen_random_uuid(), 'receipts', '1', true, 99)"
        )
    async with world.relaying():
        await until(lambda: _failed(world, 2))
    problems = sorted(row["problem"] for row in await world.rows("problem, position"))
    assert "priority" in problems[0] + problems[1]
    assert "idempotency key" in problems[0] + problems[1]
    assert sorted(map(str, values(await world.take()))) == ["0", "1", "2", "3", "4", "first"]


async def _failed(world: World, count: int) -> bool:
    rows = await world.rows("failed_at, position")
    return len(rows) == count and all(row["failed_at"] for row in rows)


async def test_large_messages_go_out_in_requests_that_the_api_takes(world: World) -> None:
    async with await psycopg.AsyncConnection.connect(world.url) as connection:
        for number in range(6):
            await apush(connection, "receipts", f"{number}" * 600_000, key="k")
    async with world.relaying():
        await until(world.empty)
    assert [one[0] for one in values(await world.take())] == list("012345")


@pytest.mark.parametrize("url", ["postgresql://127.0.0.1:1/none"])
async def test_a_database_that_is_away_is_waited_for(world: World, url: str) -> None:
    world.url, real = url, world.url
    async with world.relaying():
        await asyncio.sleep(0)
    world.url = real
    async with world.relaying():
        async with await psycopg.AsyncConnection.connect(real) as connection:
            await apush(connection, "receipts", 1)
        await until(world.empty)


async def test_behind_a_pooler_messages_arrive_once_and_no_session_keeps_anything(world: World) -> None:
    with pooled_url(world.url) as url:
        await asyncio.to_thread(_write, world.url, transactions=200)
        behind = replace(world, url=url)
        async with behind.relaying(), behind.relaying():
            await until(world.empty)
            with psycopg.connect(url, autocommit=True, prepare_threshold=None) as looker:
                for _ in range(6):
                    row = looker.execute(
                        "SELECT (SELECT count(*) FROM pg_prepared_statements),"
                        " (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')"
                    ).fetchone()
                    assert row == (0, 0)
    numbers = [number for _, number in values(await world.take())]
    assert len(numbers) == len(set(numbers))


async def test_a_relay_whose_parts_were_taken_over_pushes_nothing_and_begins_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    other = uuid4()
    async with world.relaying():
        with psycopg.connect(world.url, autocommit=True) as connection:

            def holders() -> list[object]:
                rows = connection.execute("SELECT holder FROM weir_outbox.parts").fetchall()
                return [row[0] for row in rows]

            async def has_all() -> bool:
                return len(holders()) == 8 and all(holders())

            await until(has_all)
            connection.execute(
                "UPDATE weir_outbox.parts SET holder = %s, held_until = clock_timestamp() + interval '1 s'",
                (other,),
            )

            async def noticed() -> bool:
                return "another relay took over" in caplog.text

            await until(noticed)

            async def has_them_again() -> bool:
                return other not in holders()

            await until(has_them_again)
