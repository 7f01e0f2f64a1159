"""Messages that ended are told from their lives; `landing` while the pipeline is behind, 404 if unknown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx2
import pytest

from support.lives import land_lives
from support.warehouse import NOW_MS, WarehouseRig
from weir.api.app import create_app
from weir.api.services import Services
from weir.model.ids import MessageId, new_id
from weir.model.inspection import WaitParts
from weir.model.lives import AttemptEnd, Life, LifeAttempt, LifeOutcome
from weir.model.message import DeathReason, NewMessage

from .harness import Tenant, define, make_client


@pytest.fixture
async def rig(warehouse_url: str) -> AsyncIterator[WarehouseRig]:
    rig = WarehouseRig(warehouse_url)
    yield rig
    await rig.aclose()


@pytest.fixture
async def client(services: Services, tenant: Tenant, rig: WarehouseRig) -> AsyncIterator[httpx2.AsyncClient]:
    async with make_client(create_app(replace(services, warehouse=rig.warehouse)), tenant.token) as client:
        yield client


def life_of(tenant: Tenant, **changes: object) -> Life:
    """Waited 3 s, had an attempt that lapsed after 4 s and 1 s of back-off, and was acked after 2 s."""
    began = NOW_MS - 10_000
    life = Life(
        queue=tenant.environment.queue("it's \\ q"),
        message_id=MessageId(new_id()),
        key="k",
        outcome=LifeOutcome.ACKED,
        reason=None,
        enqueued_at_ms=began,
        available_at_ms=began,
        handed_out_at_ms=began + 8_000,
        ended_at_ms=began + 10_000,
        priority=4,
        attempts=2,
        last_attempts=(
            LifeAttempt(
                started_at_ms=began + 3_000, ended_at_ms=began + 7_000, end=AttemptEnd.LAPSED, consumer="w1"
            ),
            LifeAttempt(
                started_at_ms=began + 8_000, ended_at_ms=began + 10_000, end=AttemptEnd.ACKED, consumer="w2"
            ),
        ),
        handler_ms=1_900,
        leased_ms=6_000,
        parts=WaitParts(paused_ms=2_000, turn_ms=1_000, backoff_ms=1_000),
        blocked_by_id=None,
        payload_bytes=17,
    )
    return replace(life, **changes)  # type: ignore[arg-type]


async def test_a_message_that_ended_is_shown_with_its_life(
    client: httpx2.AsyncClient, rig: WarehouseRig, tenant: Tenant
) -> None:
    life = life_of(tenant)
    land_lives(rig.connection, [life])
    found = (await client.get(f"/api/v1/messages/{life.message_id}")).json()
    assert (found["state"], found["queue"], found["message"]) == ("done", life.queue.queue, None)
    told = found["life"]
    assert (told["outcome"], told["attempts"], told["handler_ms"], told["leased_ms"]) == (
        "acked",
        2,
        1_900,
        6_000,
    )
    assert [(one["attempt"], one["end"], one["consumer"]) for one in told["last_attempts"]] == [
        (1, "lapsed", "w1"), (2, "acked", "w2"),
    ]  # fmt: skip
    assert [(one["reason"], one["waited_ms"]) for one in told["parts"]] == [
        ("backoff", 1_000), ("paused", 2_000), ("turn", 1_000),
    ]  # fmt: skip
    assert [one["what"] for one in found["items"]] == [
        "enqueued", "attempt started", "attempt lapsed", "attempt started", "attempt acked", "done",
    ]  # fmt: skip


async def test_why_is_told_after_the_end_until_the_last_attempt_began(
    client: httpx2.AsyncClient, rig: WarehouseRig, tenant: Tenant
) -> None:
    life = life_of(tenant)
    land_lives(rig.connection, [life])
    why = (await client.get(f"/api/v1/messages/{life.message_id}/why")).json()
    assert (why["state"], why["waited_ms"], why["leased_ms"]) == ("done", 4_000, 4_000)
    assert why["until_ms"] - why["enqueued_at_ms"] == why["waited_ms"] + why["leased_ms"]


async def test_one_that_was_cancelled_while_it_waited_waited_until_its_end(
    client: httpx2.AsyncClient, rig: WarehouseRig, tenant: Tenant
) -> None:
    life = life_of(
        tenant,
        outcome=LifeOutcome.CANCELLED,
        handed_out_at_ms=None,
        attempts=0,
        last_attempts=(),
        handler_ms=None,
        leased_ms=0,
        parts=WaitParts(turn_ms=10_000),
    )
    land_lives(rig.connection, [life])
    why = (await client.get(f"/api/v1/messages/{life.message_id}/why")).json()
    assert (why["state"], why["until_ms"], why["waited_ms"]) == ("cancelled", life.ended_at_ms, 10_000)
    found = (await client.get(f"/api/v1/messages/{life.message_id}")).json()
    assert (found["state"], found["items"][-1]["what"]) == ("cancelled", "cancelled")
    touched = await client.post(f"/api/v1/messages/{life.message_id}/run")
    assert (touched.status_code, "was cancelled" in touched.json()["detail"]) == (409, True)


async def test_an_expired_message_says_why_it_died(
    client: httpx2.AsyncClient, rig: WarehouseRig, tenant: Tenant
) -> None:
    life = life_of(tenant, outcome=LifeOutcome.EXPIRED, reason=DeathReason.EXPIRED)
    land_lives(rig.connection, [life])
    found = (await client.get(f"/api/v1/messages/{life.message_id}")).json()
    assert (found["state"], found["life"]["reason"]) == ("dead", "expired")


async def test_nothing_is_told_of_the_lives_of_others(
    services: Services, rig: WarehouseRig, tenant: Tenant, other: Tenant
) -> None:
    life = life_of(tenant)
    land_lives(rig.connection, [life])
    async with make_client(create_app(replace(services, warehouse=rig.warehouse)), other.token) as stranger:
        for tail in ("", "/why"):
            assert (await stranger.get(f"/api/v1/messages/{life.message_id}{tail}")).status_code == 404


async def test_a_message_that_ended_just_now_is_landing_and_an_unknown_one_is_not_found(
    client: httpx2.AsyncClient, services: Services, rig: WarehouseRig, tenant: Tenant
) -> None:
    queue = tenant.environment.queue(await define(services, tenant.environment, "q"))
    (sent,) = await services.broker.enqueue(queue, [NewMessage(payload=b"1")])
    await services.broker.cancel(queue, [sent.message_id])
    rig.tails.by_shard = {0: (NOW_MS, 1)}
    never = await client.get(f"/api/v1/messages/{sent.message_id}")
    assert (never.status_code, "the pipeline is behind" in never.json()["detail"]) == (404, True)
    landed = f"(fromUnixTimestamp64Milli(toInt64({NOW_MS - 1_000}), 'UTC'), 0)"
    rig.connection.command(
        "INSERT INTO ingest_offsets (metric, shard, position, events, landed_at) "
        f"VALUES ('life', 0, {landed}, 1, now64(3))"
    )
    found = (await client.get(f"/api/v1/messages/{sent.message_id}")).json()
    assert (found["state"], found["life"], found["items"]) == ("landing", None, [])
    why = await client.get(f"/api/v1/messages/{sent.message_id}/why")
    assert (why.status_code, "has not landed yet" in why.json()["detail"]) == (409, True)
    rig.tails.by_shard = {}
    assert (await client.get(f"/api/v1/messages/{sent.message_id}")).status_code == 404
    land_lives(rig.connection, [life_of(tenant, message_id=sent.message_id)])
    assert (await client.get(f"/api/v1/messages/{sent.message_id}")).json()["state"] == "done"
