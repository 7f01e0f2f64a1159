"""What a dry run counted is what is done: the same selection, and nothing that came later."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.deadletters.http_api import Api, served
from tests.deadletters.world import World

from weir.control.principals import Role
from weir.deadletters.bulk_actions import BulkAction
from weir.deadletters.counted import CountedBy
from weir.deadletters.log_selection import LogSelection, NewLogReplay
from weir.errors import Conflict
from weir.model.limits import MAX_TIME_MS

REDRIVES, PURGES = "/api/v1/dlq/redrives", "/api/v1/dlq/purges"
CANCELLATIONS = "/api/v1/queues/orders/messages/cancellations"
ORDERS = {"filter": {"queue": "orders"}}


@pytest.fixture
async def api(world: World) -> AsyncIterator[Api]:
    async with served(world) as api:
        yield api


async def counted(api: Api, path: str, body: dict[str, Any], *, works: bool = True) -> str:
    """The id of a dry run, which is completed unless nobody works on it."""
    answer = await api.client.post(path, json={**body, "dry_run": True})
    assert answer.status_code == 202, answer.text
    while works and await api.world.runner.step(answer.json()["id"]):
        pass
    return str(answer.json()["id"])


async def done(api: Api, path: str, body: dict[str, Any]) -> BulkAction:
    answer = await api.client.post(path, json=body)
    assert answer.status_code == 202, answer.text
    while await api.world.runner.step(answer.json()["id"]):
        pass
    return await api.world.bulk_actions.find(api.world.environment, answer.json()["id"])


@pytest.mark.parametrize("path", [REDRIVES, PURGES])
@pytest.mark.parametrize("stated", [{}, ORDERS])
async def test_what_died_after_the_dry_run_is_not_taken(api: Api, path: str, stated: dict[str, Any]) -> None:
    queue = await api.world.define("orders")
    await api.world.kill(queue, 1, 2, 3)
    dry_run = await counted(api, path, ORDERS)
    await api.world.kill(queue, 4, 5)
    action = await done(api, path, {"from_dry_run": dry_run, **stated})
    assert (action.state, action.done, action.expected) == ("completed", 3, 3)
    assert await api.world.summary() == {"orders": 2}
    await api.world.check_exact()
    records = (
        "SELECT details FROM weir.audit_log WHERE environment = %s AND action IN ('dlq.redrive', 'dlq.purge')"
    )
    details = [row["details"] for row in await api.world.rows(records + " ORDER BY id")]
    assert details[-1]["from_dry_run"] == dry_run
    assert details[-1]["filter"] == {"queue": "orders"}


async def test_the_patch_and_the_limits_of_the_request_hold(api: Api) -> None:
    queue = await api.world.define("orders")
    await api.world.kill(queue, {"n": 1}, {"n": 2})
    asked = {"filter": {"expression": "payload.n == 1"}, "patch": '{"m": 1}'}
    dry_run = await counted(api, REDRIVES, asked)
    action = await done(api, REDRIVES, {"from_dry_run": dry_run, "canary": 1})
    assert (action.patch, action.canary, action.done) == ('{"m": 1}', 1, 1)
    assert await api.world.waiting(queue) == [b'{"n":1,"m":1}']


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (PURGES, {}),
        (REDRIVES, {"filter": {"queue": "mails"}}),
        (REDRIVES, {"filter": {"queue": "orders", "reason": "expired"}}),
        (REDRIVES, {"all": True}),
        (REDRIVES, {**ORDERS, "patch": '{"m": 1}'}),
    ],
)
async def test_a_dry_run_of_something_else_is_refused(api: Api, path: str, body: dict[str, Any]) -> None:
    for name in ("orders", "mails"):
        await api.world.kill(await api.world.define(name), 1)
    dry_run = await counted(api, REDRIVES, ORDERS)
    answer = await api.client.post(path, json={"from_dry_run": dry_run, **body})
    assert answer.status_code == 409
    assert dry_run in answer.json()["detail"]
    assert await api.world.summary() == {"orders": 1, "mails": 1}


async def test_a_purge_by_a_dry_run_keeps_to_what_it_said_about_attempts(api: Api) -> None:
    await api.world.kill(await api.world.define("orders"), 1)
    dry_run = await counted(api, PURGES, ORDERS)
    more = {"from_dry_run": dry_run, "include_unexhausted": True}
    assert (await api.client.post(PURGES, json=more)).status_code == 409


async def test_a_dry_run_that_is_not_finished_or_not_here_is_refused(api: Api) -> None:
    await api.world.kill(await api.world.define("orders"), 1)
    dry_run = await counted(api, REDRIVES, ORDERS, works=False)
    answer = await api.client.post(REDRIVES, json={"from_dry_run": dry_run})
    assert answer.status_code == 409
    assert "pending, so its count is not complete" in answer.json()["detail"]
    stranger = await api.token(Role.ADMIN, environment="another")
    body = {"from_dry_run": dry_run}
    assert (await api.client.post(REDRIVES, json=body, headers=stranger)).status_code == 404
    assert (await api.client.post(REDRIVES, json={"from_dry_run": "x"})).status_code == 422
    both = {"from_dry_run": dry_run, "dry_run": True}
    assert (await api.client.post(REDRIVES, json=both)).status_code == 422
    real = (await api.client.post(REDRIVES, json=ORDERS)).json()["id"]
    assert (await api.client.post(REDRIVES, json={"from_dry_run": real})).status_code == 409


async def test_what_was_pushed_after_the_dry_run_is_not_cancelled(api: Api) -> None:
    queue = await api.world.define("orders")
    await api.world.define("mails")
    await api.world.push(queue, 1, 2)
    every = {"filter": {"state": "ready"}}
    dry_run = await counted(api, CANCELLATIONS, every)
    api.world.clock.advance(1)
    await api.world.push(queue, 3)
    elsewhere = CANCELLATIONS.replace("orders", "mails")
    assert (await api.client.post(elsewhere, json={"from_dry_run": dry_run})).status_code == 409
    other = {"from_dry_run": dry_run, "filter": {"state": "scheduled"}}
    assert (await api.client.post(CANCELLATIONS, json=other)).status_code == 409
    action = await done(api, CANCELLATIONS, {"from_dry_run": dry_run, **every})
    assert action.done == 2
    assert await api.world.waiting(queue) == [b"3"]


async def test_a_replay_takes_the_span_that_was_counted(world: World) -> None:
    for name in ("orders", "again", "other"):
        await world.define(name)

    async def asked(**more: Any) -> BulkAction:
        new = NewLogReplay(**{"selection": LogSelection(queue="orders", key="c1"), "into": "again", **more})
        return await world.bulk_actions.create_log_replay(world.environment, new, expected=5, by="t")

    dry = await asked(dry_run=True)
    async with world.database.connection() as connection:
        await connection.execute(
            "UPDATE weir.dead_letter_tasks SET state = 'completed' WHERE id = %s", (dry.id,)
        )
    world.clock.advance(60_000)
    counted_by = CountedBy(dry_run=dry.id, is_stated=True)
    action = await asked(counted=counted_by)
    assert action.log_selection == dry.log_selection
    assert dry.log_selection is not None
    assert dry.log_selection.to_ms < world.clock.now_ms()
    bare = await asked(selection=LogSelection(queue="orders"), counted=CountedBy(dry_run=dry.id))
    assert bare.log_selection == dry.log_selection
    for more in (
        {"into": "other"},
        {"selection": LogSelection(queue="orders", key="c2")},
        {"selection": LogSelection(queue="orders", key="c1", to_ms=5, from_ms=1)},
        {"selection": LogSelection(queue="other", key="c1")},
    ):
        with pytest.raises(Conflict, match="counted another"):
            await asked(counted=counted_by, **more)
    assert LogSelection(queue="orders").to_ms == MAX_TIME_MS
