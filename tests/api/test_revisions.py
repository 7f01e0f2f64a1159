"""A change that names the revision it was made from is refused if another change came first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from support.running_api import RunningApi
from weir.model.names import EnvironmentRef

BODIES: dict[str, tuple[str, dict[str, Any], str, object, object]] = {
    # The path, what is stored, the member that changes, and its two other values.
    "queue": ("queues/work", {"ordering": "unordered"}, "concurrency", 2, 3),
    "schedule": (
        "schedules/nightly",
        {"queue": "base", "cron": "0 3 * * *"},
        "timezone",
        "Europe/Berlin",
        "Asia/Tokyo",
    ),
    "alert rule": (
        "alert-rules/{id}",
        {"name": "slow", "metric": "backlog", "operator": ">", "threshold": 5},
        "threshold",
        7,
        9,
    ),
    "channel": ("channels/mails", {"name": "Mails", "consumers": []}, "name", "Post", "Letters"),
    "environment": ("environments/{environment}", {"concurrency": 100}, "concurrency", 200, 300),
}


@pytest.fixture
async def client(api: RunningApi, environment: EnvironmentRef) -> AsyncIterator[httpx2.AsyncClient]:
    headers = {
        "authorization": f"Bearer {api.token}",
        "weir-organization": quote(environment.organization),
        "weir-project": quote(environment.project),
        "weir-environment": quote(environment.environment),
    }
    async with httpx2.AsyncClient(base_url=f"{api.url}/api/v1/", headers=headers, timeout=60) as client:
        yield client


async def made(client: httpx2.AsyncClient, environment: EnvironmentRef, kind: str) -> tuple[str, str]:
    """Make one of a kind; returns its path and its revision."""
    path, body, *_ = BODIES[kind]
    assert (await client.put("queues/base", json={})).status_code == 200
    if kind == "schedule":
        answer = await client.post("schedules", json={"name": "nightly", **body})
    elif kind == "alert rule":
        answer = await client.post("alert-rules", json=body)
    else:
        answer = await client.put(path.format(environment=quote(environment.environment, safe="")), json=body)
    assert answer.status_code in (200, 201), answer.text
    found = answer.json()
    return path.format(id=found.get("id"), environment=quote(environment.environment, safe="")), found[
        "revision"
    ]


@pytest.mark.parametrize("kind", BODIES)
async def test_a_change_of_an_old_revision_is_refused_and_shows_what_changed(
    client: httpx2.AsyncClient, environment: EnvironmentRef, kind: str
) -> None:
    path, revision = await made(client, environment, kind)
    _, body, member, second, third = BODIES[kind]
    match = {"if-match": f'"{revision}"'}
    first = await client.put(path, json={**body, member: second}, headers=match)
    assert first.status_code == 200, first.text
    assert first.json()["revision"] != revision
    late = await client.put(path, json={**body, member: third}, headers=match)
    assert late.status_code == 409, late.text
    problem = late.json()
    assert f"`{member}`" in problem["detail"]
    assert problem["changed"] == [member]
    assert problem["current"]["revision"] == first.json()["revision"]
    stored = problem["current"].get("definition") or problem["current"]
    assert stored[member] == second
    again = {"if-match": problem["current"]["revision"]}
    assert (await client.put(path, json={**body, member: third}, headers=again)).status_code == 200
    assert (await client.put(path, json={**body, member: second})).status_code == 200


@pytest.mark.parametrize("kind", ["queue", "schedule", "alert rule", "channel"])
async def test_what_changed_meanwhile_is_not_deleted(
    client: httpx2.AsyncClient, environment: EnvironmentRef, kind: str
) -> None:
    path, revision = await made(client, environment, kind)
    _, body, member, second, _ = BODIES[kind]
    changed = await client.put(path, json={**body, member: second})
    late = await client.delete(path, headers={"if-match": revision})
    assert (late.status_code, late.json()["changed"]) == (409, [member])
    now = changed.json()["revision"]
    assert (await client.delete(path, headers={"if-match": now})).status_code == 204


@pytest.mark.parametrize("kind", BODIES)
async def test_of_many_changes_from_one_revision_one_is_made(
    client: httpx2.AsyncClient, environment: EnvironmentRef, kind: str
) -> None:
    path, revision = await made(client, environment, kind)
    _, body, member, second, third = BODIES[kind]
    headers = {"if-match": revision}
    answers = await asyncio.gather(
        *(
            client.put(path, json={**body, member: value}, headers=headers)
            for value in (second, third, second, third)
        )
    )
    codes = sorted(answer.status_code for answer in answers)
    assert codes == [200, 409, 409, 409], [answer.text for answer in answers]


async def test_a_pause_or_a_message_is_no_new_revision(
    client: httpx2.AsyncClient, environment: EnvironmentRef
) -> None:
    path, revision = await made(client, environment, "queue")
    assert (await client.post(f"{path}/pause")).status_code == 200
    assert (await client.post("push", json={"items": [{"queue": "work", "payload": 1}]})).status_code == 201
    assert (await client.get(path)).json()["revision"] == revision
    changed = await client.patch(path, json={"priority": 1}, headers={"if-match": revision})
    assert changed.status_code == 200
    late = await client.patch(path, json={"priority": 2}, headers={"if-match": revision})
    assert (late.status_code, late.json()["changed"]) == (409, ["priority"])


@pytest.mark.parametrize("match", ['"no"', "no", "", 'W/"no.0000"'])
async def test_what_is_no_revision_matches_nothing(
    client: httpx2.AsyncClient, environment: EnvironmentRef, match: str
) -> None:
    path, _ = await made(client, environment, "queue")
    answer = await client.put(path, json={}, headers={"if-match": match})
    assert (answer.status_code, answer.json()["changed"]) == (409, [])


async def test_a_star_demands_that_it_exists(client: httpx2.AsyncClient, environment: EnvironmentRef) -> None:
    path, _ = await made(client, environment, "queue")
    assert (await client.put(path, json={}, headers={"if-match": "*"})).status_code == 200
    absent = await client.put("queues/none", json={}, headers={"if-match": "*"})
    assert (absent.status_code, "does not exist" in absent.json()["detail"]) == (409, True)
    assert (await client.get("queues/none")).status_code == 404
