"""The audit finds what cannot happen, repairs it, and says how much it was."""

from __future__ import annotations

import asyncio

from tests.deadletters.world import World

from weir.deadletters.audit import DeadLetterAuditor, last_audit


async def vandalise(lone_world: World, statement: str) -> None:
    async with lone_world.database.connection() as connection:
        await connection.execute(statement.encode())


async def test_an_honest_summary_has_no_drift(lone_world: World) -> None:
    queue = await lone_world.define("orders")
    await lone_world.kill(queue, 1, 2, 3)
    audit = await lone_world.auditor.audit()
    assert audit is not None
    assert (audit.consumers, audit.letters, audit.drift) == (1, 3, 0)
    assert await last_audit(lone_world.database) == audit


async def test_drift_is_repaired_and_published(lone_world: World) -> None:
    queue = await lone_world.define("orders")
    await lone_world.kill(queue, 1, 2, 3)
    await vandalise(lone_world, "UPDATE weir.dlq_summary SET dead_count = 10")
    await vandalise(lone_world, "UPDATE weir.dead_letter_groups SET dead_count = 1")
    audit = await lone_world.auditor.audit()
    assert audit is not None
    assert audit.drift == 7 + 2
    await lone_world.check_exact()
    again = await lone_world.auditor.audit(force=True)
    assert again is not None
    assert again.drift == 0


async def test_an_empty_summary_is_counted_afresh(lone_world: World) -> None:
    queue = await lone_world.define("orders")
    await lone_world.kill(queue, 1, 2, 3)
    await vandalise(lone_world, "TRUNCATE weir.dlq_summary")
    await lone_world.auditor.audit()
    assert await lone_world.summary() == {"orders": 3}


async def test_a_lost_row_of_the_summary_is_counted_afresh_by_the_next_change(lone_world: World) -> None:
    queue = await lone_world.define("orders")
    await lone_world.kill(queue, 1, 2, 3)
    await vandalise(lone_world, "TRUNCATE weir.dlq_summary")
    await lone_world.kill(queue, 4)
    assert await lone_world.summary() == {"orders": 4}
    await vandalise(lone_world, "TRUNCATE weir.dlq_summary")
    letters = await lone_world.newest(queue)
    await lone_world.letters.delete(queue, letters[0].id, by="test")
    assert await lone_world.summary() == {"orders": 3}


async def test_audits_keep_their_interval_and_never_meet(lone_world: World) -> None:
    queue = await lone_world.define("orders")
    await lone_world.kill(queue, 1)
    assert await lone_world.auditor.audit() is not None
    lone_world.clock.advance(599_999)
    assert await lone_world.auditor.audit() is None
    lone_world.clock.advance(1)
    audits = await asyncio.gather(*(lone_world.auditor.audit() for _ in range(4)))
    assert len([audit for audit in audits if audit is not None]) == 1


async def test_a_bounded_audit_goes_on_where_the_last_one_stopped(lone_world: World) -> None:
    for name in ("a", "b", "c"):
        lone_world.clock.advance(1)
        await lone_world.kill(await lone_world.define(name), 1, 2)
    await vandalise(lone_world, "UPDATE weir.dlq_summary SET dead_count = dead_count + 1")
    bounded = DeadLetterAuditor(lone_world.database, clock=lone_world.clock, interval_ms=1, max_letters=3)
    drifts = []
    for _ in range(3):
        lone_world.clock.advance(10)
        audit = await bounded.audit()
        assert audit is not None
        drifts.append((audit.consumers, audit.drift))
    assert drifts == [(1, 1), (1, 1), (1, 1)]
    await lone_world.check_exact()


async def test_lineage_is_forgotten_after_its_retention(lone_world: World) -> None:
    queue = await lone_world.define("orders")
    old, young = await lone_world.kill(queue, 1), await lone_world.kill(queue, 2)
    await lone_world.letters.redrive(queue, old[0], by="test")
    lone_world.clock.advance(1_000_000)
    await lone_world.letters.redrive(queue, young[0], by="test")
    await DeadLetterAuditor(
        lone_world.database, clock=lone_world.clock, keep_replayed_ms=500_000
    ).forget_replayed()
    async with lone_world.database.connection() as connection:
        cursor = await connection.execute("SELECT id::text FROM weir.dead_letters")
        assert [row["id"] for row in await cursor.fetchall()] == young
