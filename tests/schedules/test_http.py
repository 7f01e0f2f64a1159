"""Schedules over HTTP: created, shown, changed, paused, run and deleted, by those who may."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from api.harness import make_client, make_token
from schedules.world import World, payloads_of
from weir.api.app import create_app
from weir.api.services import Services
from weir.control.audit_log import AuditLog
from weir.control.authentication import CachedAuthenticator
from weir.control.changes import Changes
from weir.control.database import Database
from weir.control.principals import Role
from weir.control.queue_definitions import QueueDefinitions
from weir.control.spec_register import SpecRegister
from weir.control.system_events import SystemEventKind, SystemEvents
from weir.control.tenants import Tenants
from weir.control.tokens import Tokens
from weir.exchange.attempt import DirectPusher
from weir.exchange.settle import DirectSettler
from weir.model.names import EnvironmentRef
from weir.schedules.register import follow_spec

NIGHTLY = {
    "name": "Nightly",
    "queue": "q",
    "cron": "0 3 * * *",
    "timezone": "Europe/Berlin",
    "payload": {"a": 1},
}


@pytest.fixture
def services(world: World, database: Database) -> Services:
    tokens = Tokens(database)
    return Services(
        broker=world.broker,
        authenticator=CachedAuthenticator(tokens, fresh_s=0),
        pusher=DirectPusher(world.broker),
        settler=DirectSettler(world.broker),
        tokens=tokens,
        tenants=Tenants(database),
        definitions=QueueDefinitions(database),
        changes=Changes(database, world.broker),
        audit=AuditLog(database),
        events=SystemEvents(database=database),
        schedules=world.schedules,
        specs=SpecRegister(database, world.broker, companions=(follow_spec,)),
        clock=world.clock,
    )


@pytest.fixture
async def client(services: Services, world: World) -> AsyncIterator[httpx2.AsyncClient]:
    await world.define()
    token = await make_token(services, world.environment, Role.ADMIN)
    async with make_client(create_app(services), token) as client:
        yield client


async def created(client: httpx2.AsyncClient, **changes: Any) -> httpx2.Response:
    return await client.post("/api/v1/schedules", json={**NIGHTLY, **changes})


async def test_a_schedule_is_created_shown_changed_run_paused_and_deleted(
    client: httpx2.AsyncClient, world: World
) -> None:
    made = await created(client, name="a/b ✓")
    assert made.status_code == 201, made.text
    path = "/api/v1/schedules/a%2Fb%20%E2%9C%93"
    shown = (await client.get(path)).json()
    assert (shown["origin"], shown["paused"], len(shown["next_ticks_ms"])) == ("api", False, 10)
    assert shown["next_tick_ms"] == shown["next_ticks_ms"][0]
    assert (await created(client, name="a/b ✓")).status_code == 409
    changed = await client.put(path, json={"queue": "q", "every_ms": 60_000, "payload": [1]})
    assert (changed.json()["cron"], changed.json()["every_ms"]) == (None, 60_000)
    assert (await client.post(f"{path}/run")).status_code == 202
    await world.serve()
    assert payloads_of(await world.take(world.environment.queue("q"))) == [[1]]
    [listed] = (await client.get("/api/v1/schedules")).json()["items"]
    assert (listed["last_run"]["outcome"], listed["last_run"]["asked"]) == ("pushed", True)
    assert listed["last_run"]["ended"] == "acked"
    assert (await client.post(f"{path}/pause")).json()["next_tick_ms"] is None
    assert (await client.post(f"{path}/resume")).json()["next_tick_ms"] is not None
    assert (await client.delete(path)).status_code == 204
    assert (await client.get(path)).status_code == 404
    actions = [one["action"] for one in (await client.get("/api/v1/audit-log")).json()["items"]]
    assert [one for one in reversed(actions) if one.startswith("schedule.")] == [
        "schedule.create",
        "schedule.change",
        "schedule.run",
        "schedule.pause",
        "schedule.resume",
        "schedule.delete",
    ]


async def test_each_change_is_told_to_every_process(client: httpx2.AsyncClient, database: Database) -> None:
    heard: list[str] = []
    events = SystemEvents(database=database)

    async def hear(event: Any) -> None:
        heard.append(event.payload["schedule"])

    events.on(SystemEventKind.SCHEDULE_CHANGED, hear)
    await events.catch_up()
    await created(client)
    await client.post("/api/v1/schedules/Nightly/run")
    await events.catch_up()
    assert heard == ["Nightly", "Nightly"]


@pytest.mark.parametrize(
    ("changes", "status", "said"),
    [
        ({"cron": "61 * * * *"}, 422, "bad minute"),
        ({"cron": "x"}, 422, "five fields"),
        ({"cron": None}, 422, "either `cron` or `every`"),
        ({"every_ms": 60_000}, 422, "either `cron` or `every`"),
        ({"cron": None, "every_ms": 999}, 422, "greater than or equal to 1000"),
        ({"timezone": "Mars/Olympus"}, 422, "there is no time zone `Mars/Olympus`"),
        ({"queue": "none"}, 422, "there is no queue `none`"),
        ({"queue": "forgetful"}, 422, "idempotency_window"),
        ({"payload": "x" * 65_536}, 413, "at most 65536"),
        ({"name": "a\x00b"}, 422, "control character"),
        ({"missed": "sometimes"}, 422, "skip"),
        ({"nonsense": 1}, 422, "nonsense"),
    ],
)
async def test_what_cannot_be_a_schedule_is_refused_with_the_reason(
    client: httpx2.AsyncClient, world: World, changes: dict[str, Any], status: int, said: str
) -> None:
    await world.define("forgetful", idempotency_window_ms=1_000)
    answer = await created(client, **changes)
    assert answer.status_code == status, answer.text
    assert said in answer.text
    assert (await client.get("/api/v1/schedules")).json() == {"items": []}


async def test_readers_read_writers_pause_and_run_and_admins_change(
    client: httpx2.AsyncClient, services: Services, world: World
) -> None:
    await created(client)
    path = "/api/v1/schedules/Nightly"
    allowed = {
        Role.READ: {"GET ": 200},
        Role.WRITE: {"GET ": 200, "POST /pause": 200, "POST /resume": 200, "POST /run": 202},
    }
    for role, statuses in allowed.items():
        token = await make_token(services, world.environment, role)
        async with make_client(create_app(services), token) as other:
            for request in ("GET ", "POST /pause", "POST /resume", "POST /run", "PUT ", "DELETE "):
                method, _, verb = request.partition(" ")
                body = {"queue": "q", "every_ms": 1_000} if method == "PUT" else None
                answer = await other.request(method, path + verb, json=body)
                assert answer.status_code == statuses.get(request, 403), (role, request, answer.text)


async def test_another_tenant_sees_and_changes_nothing(
    client: httpx2.AsyncClient, services: Services
) -> None:
    await created(client)
    stranger = EnvironmentRef(organization="other", project="p", environment="e")
    async with make_client(create_app(services), await make_token(services, stranger, Role.ADMIN)) as other:
        assert (await other.get("/api/v1/schedules")).json() == {"items": []}
        for method, verb in (("GET", ""), ("POST", "/run"), ("POST", "/pause"), ("DELETE", "")):
            assert (await other.request(method, f"/api/v1/schedules/Nightly{verb}")).status_code == 404
    assert (await client.get("/api/v1/schedules/Nightly")).json()["paused"] is False


async def test_what_a_spec_declares_only_the_spec_changes(client: httpx2.AsyncClient) -> None:
    text = "app A {{ queue q {{}} schedule S {{ {}, queue: q }} }}"
    applied = await client.put("/api/v1/spec", json={"source": text.format("every: 1h")})
    assert applied.status_code == 200, applied.text
    assert (await client.get("/api/v1/schedules/S")).json()["origin"] == "spec"
    body = {"queue": "q", "every_ms": 1_000}
    assert (await client.put("/api/v1/schedules/S", json=body)).status_code == 409
    assert (await client.delete("/api/v1/schedules/S")).status_code == 409
    plan = await client.post("/api/v1/spec/plan", json={"source": text.format("every: 2h")})
    assert [(one["kind"], one["path"]) for one in plan.json()["changes"]] == [("schedule", ["every_ms"])]
    await client.put("/api/v1/spec", json={"source": text.format("every: 2h")})
    assert (await client.get("/api/v1/schedules/S")).json()["every_ms"] == 7_200_000
    await client.put("/api/v1/spec", json={"source": "app A { queue q {} }"})
    assert (await client.get("/api/v1/schedules/S")).status_code == 404


async def test_a_queue_that_a_schedule_pushes_into_cannot_be_deleted(client: httpx2.AsyncClient) -> None:
    await created(client)
    answer = await client.delete("/api/v1/queues/q")
    assert (answer.status_code, "used by the schedule `Nightly`" in answer.text) == (409, True)
    await client.delete("/api/v1/schedules/Nightly")
    assert (await client.delete("/api/v1/queues/q")).status_code == 204


async def test_without_the_register_the_routes_say_so(services: Services, world: World) -> None:
    token = await make_token(services, world.environment, Role.ADMIN)
    async with make_client(create_app(replace(services, schedules=None)), token) as client:
        assert (await client.get("/api/v1/schedules")).status_code == 503
