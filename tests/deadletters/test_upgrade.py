"""Dead letters and tasks that an older Weir wrote, after `weir migrate`."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Json, Jsonb
from tests.deadletters.world import World, numbers

from support.urls import with_database
from weir.channels.consumers import ensure_consumers
from weir.control.database import Database
from weir.control.migrate import PostgresMigrations, migrate, migrate_postgres, read_migrations
from weir.control.queue_definitions import QueueDefinitions
from weir.control.spec_register import SpecRegister
from weir.control.tenants import ensure_environment
from weir.deadletters.bulk_actions import BulkActionKind, NewBulkAction
from weir.deadletters.filters import Filter
from weir.deadletters.lineage import replay_id_of
from weir.model.ids import new_id
from weir.model.names import EnvironmentRef, QueueRef
from weir.spec.ir import Ordering
from weir.spec.language import spec_of
from weir.testing.memory import MemoryBroker

FIRST_RELEASE = {1, 2, 3, 4, 5, 10, 11, 12, 20, 21, 30, 31, 40}
DEADLINES = 22
"""Adds a function without which our own connections cannot commit; it changes no table."""
DIED_MS = 1_700_000_000_000
ADD_GROUP = """
INSERT INTO weir.dead_letter_groups
    (consumer_key, fingerprint, template, sample_id, sample_error, first_seen_ms, last_seen_ms, dead_count)
VALUES (%s, 'f', 't', %s, 'e', 0, 0, 40) RETURNING group_key
"""
ADD_LETTER = """
INSERT INTO weir.dead_letters
    (id, consumer_key, group_key, enqueued_at_ms, died_at_ms, attempts, max_attempts, reason, error, payload,
     envelope, replay_of, replay_id, replayed_at_ms)
VALUES (%s, %s, %s, %s, %s, 1, 1, 'attempts', 'e', %s,
        '{"headers": {}, "key": "k", "priority": 4, "idempotency_key": null}', %s, %s, %s)
"""


@pytest.fixture
async def old_database(postgres_url: str) -> AsyncIterator[Database]:
    """A database as the first release left it."""
    name = f"old_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    async with Database(with_database(postgres_url, name)) as database:
        shipped = [
            one
            for one in read_migrations("weir.control.migrations")
            if one.number in {*FIRST_RELEASE, DEADLINES}
        ]
        await migrate(PostgresMigrations(database), shipped)
        yield database


async def add_line(database: Database, queue: QueueRef, keys: tuple[int, int], n: int, replays: int) -> None:
    """A letter that was replayed so often and died again each time, as it was stored before."""
    letter_id, parent = new_id(), None
    async with database.connection() as connection:
        for turn in range(replays + 1):
            died_ms = DIED_MS + turn
            replay = replay_id_of(letter_id, died_at_ms=died_ms) if turn < replays else None
            values = (letter_id, *keys, DIED_MS - 300 + turn, died_ms, b'{"n": %d}' % n, parent, replay)
            await connection.execute(ADD_LETTER, (*values, None if replay is None else died_ms))
            letter_id, parent = replay or letter_id, letter_id


async def test_replays_of_before_are_redriven_in_their_original_order(
    old_database: Database, environment: EnvironmentRef
) -> None:
    queue = environment.queue("orders")
    async with old_database.connection() as connection:
        consumer = (await ensure_consumers(connection, [queue], now_ms=0))[queue]
        cursor = await connection.execute(ADD_GROUP, (consumer, new_id()))
        group = (await cursor.fetchone() or {})["group_key"]
        await connection.execute("UPDATE weir.dlq_summary SET dead_count = 40")
    dice = random.Random(1)
    for n in range(40):
        await add_line(old_database, queue, (consumer, group), n, replays=dice.choice([0, 1, 2]))
    await migrate_postgres(old_database)
    world = World(old_database, environment)
    await world.define("orders", ordering=Ordering.PER_KEY)
    await world.check_exact()
    new = NewBulkAction(kind=BulkActionKind.REDRIVE, filter=Filter(queue="orders"))
    assert (await world.work(await world.start(new))).done == 40
    seen: list[int] = []
    while deliveries := await world.broker.dequeue(queue, consumer="test", limit=100):
        seen += numbers([delivery.payload for delivery in deliveries])
        await world.broker.ack([delivery.lease for delivery in deliveries])
    assert seen == list(range(40))


ADD_DEFINITION = """
INSERT INTO weir.queue_definitions (organization, project, environment, queue, spec, defined_at_ms)
VALUES (%s, %s, %s, %s, %s, 0)
"""


async def test_a_default_age_of_before_deletes_nothing_and_another_one_was_written(
    old_database: Database, environment: EnvironmentRef
) -> None:
    scope = (environment.organization, environment.project, environment.environment)
    ages = {"default": 14 * 86_400_000, "written": 7 * 86_400_000}
    app = {"app": "A", "queues": {name: {"retention": {"max_age_ms": ms}} for name, ms in ages.items()}}
    app["queues"]["deep"] = {"retention": {"max_age_ms": 14 * 86_400_000, "max_depth": 5}}
    async with old_database.connection() as connection:
        await ensure_environment(connection, environment, now_ms=0)
        for name, age_ms in ages.items():
            spec = Jsonb({"name": name, "retention": {"max_age_ms": age_ms, "max_depth": None}})
            await connection.execute(ADD_DEFINITION, (*scope, name, spec))
        await connection.execute(ADD_SPEC, (*scope, Json(app)))
    await migrate_postgres(old_database)
    definitions = await QueueDefinitions(old_database).of(environment)
    assert {one.queue.queue: one.spec.retention.max_age_ms for one in definitions} == {
        "default": None,
        "written": ages["written"],
    }
    current = await SpecRegister(old_database, MemoryBroker()).current(environment)
    assert current is not None
    assert {
        one.name: (one.retention.max_age_ms, one.retention.max_depth)
        for one in spec_of(json.loads(current.spec)).queues
    } == {
        "default": (None, None),
        "written": (ages["written"], None),
        "deep": (None, 5),
    }


ADD_SPEC = """
INSERT INTO weir.applied_specs
    (organization, project, environment, revision, spec, source, file, actor, applied_at_ms)
VALUES (%s, %s, %s, 1, %s, '', '', '', 0)
"""
