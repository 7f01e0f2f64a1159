"""What `weir bench dlq` measures on: a table filled in chunks, counted and indexed like a real one."""

from __future__ import annotations

from tests.deadletters.world import World

from benches.dlq_rows import SQL, Sizes, fill
from weir.control.database import fetch


async def test_a_table_filled_in_chunks_is_counted_and_has_its_indexes_back(lone_world: World) -> None:
    database = lone_world.database
    async with database.connection() as connection:
        before = await fetch(connection, SQL["index_definitions"])
    await fill(database, lone_world.environment, Sizes(rows=5_000, purge=700, redrive=300, chunk=1_000))
    await lone_world.check_exact()
    counts = await lone_world.counts()
    assert (sum(counts.values()), counts["purge-me"], counts["redrive-me"]) == (5_000, 700, 300)
    async with database.connection() as connection:
        after = await fetch(connection, SQL["index_definitions"])
    assert {row["indexdef"] for row in after} == {row["indexdef"] for row in before}
