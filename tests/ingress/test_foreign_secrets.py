"""Two organizations with the same names of projects, environments and secrets: neither signs as the other."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from urllib.parse import quote

import httpx2
import pytest
from standardwebhooks import Webhook

from ingress import signing
from ingress.house import House, open_house
from outbound.receiver import receiving
from support.waiting import until
from weir.control.database import Database
from weir.control.sealing import KEY_BYTES, SealingKeys
from weir.model.names import EnvironmentRef

OURS, THEIRS = (f"whsec_{base64.b64encode(letter * 32).decode()}" for letter in (b"o", b"t"))
BODY = b'{"forged": true}'


@pytest.fixture
async def both(
    environment: EnvironmentRef, database: Database, redis_url: str
) -> AsyncIterator[tuple[House, House]]:
    keys = SealingKeys(b"k" * KEY_BYTES)
    async with database.connection() as connection:
        await connection.execute("DELETE FROM weir.hook_names")
    neighbour = replace(environment, organization=f"{environment.organization} 2")
    async with (
        open_house(environment, database, redis_url, keys=keys) as us,
        open_house(neighbour, database, redis_url, keys=keys) as them,
    ):
        yield us, them


async def put_secret(house: House, name: str, value: str, **options: int) -> httpx2.Response:
    return await house.client.put(f"/api/v1/secrets/{name}", json={"value": value, **options})


async def gone(house: House, queue: str) -> None:
    """Wait until a queue is empty: its message died."""
    async with asyncio.timeout(20):
        state = await house.broker.state(house.environment.queue(queue))
        while state.depth or state.running:
            await asyncio.sleep(0.02)
            state = await house.broker.state(house.environment.queue(queue))


def webhook(name: str, secret: str) -> str:
    verify = f'verify standard {{ secret: "{secret}" }}'
    return f"app A {{ queue In {{}} webhook {name} {{ queue: In, {verify} }} }}"


async def send(to: House, name: str, headers: dict[str, str]) -> int:
    """The status that a sender with these headers gets."""
    path = "/".join(quote(part, safe="") for part in (*to.environment.names, name))
    signed = {"content-type": "application/json", **headers}
    return (await to.client.post(f"/hook/{path}", content=BODY, headers=signed)).status_code


def signed_with(secret: str) -> dict[str, str]:
    return signing.standard(secret, BODY, int(time.time()))


async def test_a_delivery_is_never_signed_with_a_neighbours_secret_or_a_variable(
    both: tuple[House, House], monkeypatch: pytest.MonkeyPatch
) -> None:
    us, them = both
    monkeypatch.setenv("BSECRET", THEIRS)
    monkeypatch.setenv("ONLY_HERE", THEIRS)
    assert (await put_secret(them, "BSECRET", THEIRS)).status_code == 200
    await them.apply(webhook("theirs", "BSECRET"))
    assert await send(them, "theirs", signed_with(THEIRS)) == 202
    async with receiving() as receiver:
        for name in ("BSECRET", "ONLY_HERE", "NOWHERE"):
            target = f'deliver: {receiver.url} {{ secret: "{name}" }}'
            await us.apply(f"app A {{ queue Out {{ delivery {{ max_attempts: 1 }} {target} }} }}")
            await us.client.post("/api/v1/queues/Out/messages", content=BODY)
            async with us.working():
                await gone(us, "Out")
        assert receiver.requests == []
        await put_secret(us, "BSECRET", OURS)
        await us.apply(f'app A {{ queue Out {{ deliver: {receiver.url} {{ secret: "BSECRET" }} }} }}')
        await us.client.post("/api/v1/queues/Out/messages", content=BODY)
        async with us.working():
            await until(lambda: len(receiver.requests) == 1)
        headers, body = receiver.requests[0]
    with pytest.raises(Exception, match="No matching signature"):
        Webhook(THEIRS).verify(body, headers)
    Webhook(OURS).verify(body, headers)
    forged = {name: headers[name] for name in headers if name.startswith("webhook-")}
    assert await send(them, "theirs", forged) == 401
    assert await them.depth("In") == 1


async def test_nobody_learns_which_secrets_a_neighbour_or_the_server_has(
    both: tuple[House, House], monkeypatch: pytest.MonkeyPatch
) -> None:
    us, them = both
    monkeypatch.setenv("ONLY_HERE", THEIRS)
    await put_secret(them, "BSECRET", THEIRS)
    told = []
    for name in ("BSECRET", "ONLY_HERE", "PATH", "NOWHERE"):
        await us.apply(webhook("ours", name))
        plan = await us.client.post("/api/v1/spec/plan", json={"source": webhook("ours", name)})
        answers = [
            await us.client.get("/api/v1/webhooks"),
            await us.client.get("/api/v1/secrets"),
            await us.client.delete(f"/api/v1/secrets/{name}"),
            await us.client.delete(f"/api/v1/secrets/{name}?only_old=true"),
        ]
        assert await send(us, "ours", signed_with(THEIRS)) == 401
        seen = [(one.status_code, {**one.json(), "instance": ""}) for one in answers]
        told.append(json.dumps([seen, plan.json()["warnings"]]).replace(name, "NAME"))
        assert [one.status_code for one in answers] == [200, 200, 404, 404]
        assert "which is not stored (a variable of the server is not read)" in told[-1]
    assert len(set(told)) == 1
    assert [one["name"] for one in (await them.client.get("/api/v1/secrets")).json()["items"]] == ["BSECRET"]


async def test_both_values_hold_while_a_secret_is_replaced_and_no_answer_shows_them(
    both: tuple[House, House],
) -> None:
    us, _ = both
    await us.apply(webhook("ours", "HOOK"))
    asked = [await put_secret(us, "HOOK", OURS), await put_secret(us, "HOOK", THEIRS)]
    for value in (OURS, THEIRS):
        assert await send(us, "ours", signed_with(value)) == 202
    (item,) = asked[1].json()["items"]
    assert item["previous_until_ms"] - item["set_at_ms"] == 86_400_000
    ended = await us.client.delete("/api/v1/secrets/HOOK?only_old=true")
    assert ended.status_code == 204
    statuses = [await send(us, "ours", signed_with(value)) for value in (OURS, THEIRS)]
    assert statuses == [401, 202]
    asked += [
        await us.client.get("/api/v1/secrets"),
        await put_secret(us, "HOOK", "short and seen"),
        await put_secret(us, "HOOK", "seen" * 2_000),
        await us.client.put("/api/v1/secrets/HOOK", json={"value": ["seen by nobody in an answer"]}),
        await us.client.get("/api/v1/audit-log"),
    ]
    assert [one.status_code for one in asked] == [200, 200, 200, 422, 422, 422, 200]
    assert [text for one in asked for text in (OURS, THEIRS, "seen") if text in one.text] == []
    recorded = [(one["action"], one["target"]) for one in asked[-1].json()["items"]]
    assert recorded.count(("secret.set", "HOOK")) == 2
    assert ("secret.end_old", "HOOK") in recorded


async def test_repeats_of_one_request_replace_nothing(both: tuple[House, House]) -> None:
    us, _ = both
    await put_secret(us, "HOOK", OURS)
    await asyncio.gather(*(put_secret(us, "HOOK", THEIRS) for _ in range(4)))
    assert us.store is not None
    assert us.store.of(us.environment, "HOOK") == [THEIRS, OURS]
