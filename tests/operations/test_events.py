"""System events reach every process, at once and after an absence, in order and none left out."""

from __future__ import annotations

import asyncio

from weir.control.database import Database
from weir.model.names import EnvironmentRef
from weir.model.tasks import cancelled
from weir.operations.events import SystemEvent, SystemEvents


class Heard:
    def __init__(self, database: Database, name: str) -> None:
        self.events = SystemEvents(database=database, process=name)
        self.heard: list[int] = []
        self.events.on("spec.applied", self._hear)

    async def _hear(self, event: SystemEvent) -> None:
        self.heard.append(event.payload["n"])


async def test_an_event_reaches_every_process_within_a_second(
    database: Database, environment: EnvironmentRef
) -> None:
    processes = [Heard(database, f"p{n}") for n in range(3)]
    for process in processes:
        await process.events.catch_up()
    tasks = [asyncio.create_task(process.events.run()) for process in processes]
    try:
        await processes[0].events.publish("spec.applied", environment=environment, payload={"n": 1})
        async with asyncio.timeout(1):
            while any(process.heard != [1] for process in processes):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    finally:
        await cancelled(tasks)


async def test_what_was_published_during_an_absence_is_caught_up_in_order(database: Database) -> None:
    absent = Heard(database, "absent")
    await absent.events.catch_up()
    publisher = SystemEvents(database=database, process="publisher")
    await asyncio.gather(*(publisher.publish("spec.applied", payload={"n": n}) for n in range(8)))
    await publisher.publish("nobody.listens")
    await publisher.publish("spec.applied", payload={"n": 8})
    assert await absent.events.catch_up() == 10
    assert sorted(absent.heard) == list(range(9))
    assert absent.heard[-1] == 8
    assert await absent.events.catch_up() == 0


async def test_a_process_hears_nothing_from_before_its_start(database: Database) -> None:
    publisher = SystemEvents(database=database, process="publisher")
    await publisher.publish("spec.applied", payload={"n": 1})
    fresh = Heard(database, "fresh")
    await fresh.events.catch_up()
    await publisher.publish("spec.applied", payload={"n": 2})
    await fresh.events.catch_up()
    assert fresh.heard == [2]
