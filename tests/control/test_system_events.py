"""System events reach every process, at once and after an absence, in order and none left out."""

from __future__ import annotations

import asyncio

from ingress.house import House, open_house
from weir.control.database import Database
from weir.control.sql import NamedQuery
from weir.control.system_events import SystemEvent, SystemEventKind, SystemEvents
from weir.model.asyncio_tasks import cancel_and_wait
from weir.model.names import EnvironmentRef

APPLIED = SystemEventKind.SPEC_APPLIED
FROM_ANOTHER_VERSION = NamedQuery(
    name="foreign_event",
    sentence="An event of a kind that this version does not know.",
    text="INSERT INTO weir.system_events (kind, payload, published_by) VALUES ('flag.set', '{}', 'newer')",
)


class Heard:
    def __init__(self, database: Database, name: str) -> None:
        self.events = SystemEvents(database=database, process=name)
        self.heard: list[int] = []
        self.events.on(APPLIED, self._hear)

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
        await processes[0].events.publish(APPLIED, environment=environment, payload={"n": 1})
        async with asyncio.timeout(1):
            while any(process.heard != [1] for process in processes):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    finally:
        await cancel_and_wait(tasks)


async def test_what_was_published_during_an_absence_is_caught_up_in_order(database: Database) -> None:
    absent = Heard(database, "absent")
    await absent.events.catch_up()
    publisher = SystemEvents(database=database, process="publisher")
    await asyncio.gather(*(publisher.publish(APPLIED, payload={"n": n}) for n in range(8)))
    await publisher.publish(SystemEventKind.QUEUE_FORGOTTEN)
    await publisher.publish(APPLIED, payload={"n": 8})
    assert await absent.events.catch_up() == 10
    assert sorted(absent.heard) == list(range(9))
    assert absent.heard[-1] == 8
    assert await absent.events.catch_up() == 0


async def test_a_process_hears_nothing_from_before_its_start(database: Database) -> None:
    publisher = SystemEvents(database=database, process="publisher")
    await publisher.publish(APPLIED, payload={"n": 1})
    fresh = Heard(database, "fresh")
    await fresh.events.catch_up()
    await publisher.publish(APPLIED, payload={"n": 2})
    await fresh.events.catch_up()
    assert fresh.heard == [2]


async def test_an_event_that_only_another_version_knows_is_passed_over(database: Database) -> None:
    process = Heard(database, "older")
    await process.events.catch_up()
    await database.execute(FROM_ANOTHER_VERSION)
    await process.events.publish(APPLIED, payload={"n": 1})
    assert await process.events.catch_up() == 2
    assert process.heard == [1]


async def test_the_routes_publish_every_kind_of_event_and_no_other(
    database: Database, environment: EnvironmentRef, redis_url: str
) -> None:
    heard: list[SystemEventKind] = []

    async def hear(event: SystemEvent) -> None:
        assert event.environment == environment
        heard.append(event.kind)

    async with open_house(environment, database, redis_url) as house:
        events = house.services.events
        assert events is not None
        for kind in SystemEventKind:
            events.on(kind, hear)
        await events.catch_up()
        await change_everything(house)
        assert await events.catch_up() == len(heard)
    assert heard == list(SystemEventKind)


async def change_everything(house: House) -> None:
    """Each change that a process must hear of, and a pause, which Redis tells everyone itself."""
    await house.apply("app Events { queue applied {} }")
    for method, path in (("PUT", ""), ("POST", "/pause"), ("POST", "/resume"), ("DELETE", "")):
        answer = await house.client.request(
            method, f"/api/v1/queues/defined{path}", json={} if method == "PUT" else None
        )
        assert answer.is_success, answer.text
    hourly = {"name": "hourly", "queue": "applied", "cron": "0 * * * *"}
    made = await house.client.post("/api/v1/schedules", json=hourly)
    assert made.is_success, made.text
