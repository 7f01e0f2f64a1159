"""Channels over HTTP: publish reaches every consumer once, and tokens end when they are renewed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.deadletters.http_api import Api, served
from tests.deadletters.world import World, numbers

from weir.control.database import Database
from weir.model.names import EnvironmentRef

BASE = "/channel/order%20events/consumer/orders-c"


@pytest.fixture
async def api(database: Database, environment: EnvironmentRef) -> AsyncIterator[Api]:
    async with served(World(database, environment)) as api:
        yield api


async def test_a_published_message_reaches_every_consumer_once(api: Api) -> None:
    orders, mails = await api.world.define("orders"), await api.world.define("mails")
    headers = (await api.put_channel("orders", "mails"))["orders"]
    del headers["X-Broker-Consumer-Token"]
    del api.client.headers["authorization"]
    path = "/channel/order%20events/publish"
    first = await api.client.post(path, content=b'{"n": 1}', headers={**headers, "Idempotency-Key": "k1"})
    assert first.status_code == 202
    assert [one["status"] for one in first.json()["consumers"]] == ["accepted", "accepted"]
    again = await api.client.post(path, content=b'{"n": 1}', headers={**headers, "Idempotency-Key": "k1"})
    assert [one["status"] for one in again.json()["consumers"]] == ["duplicate", "duplicate"]
    assert numbers(await api.world.waiting(orders)) == [1]
    assert numbers(await api.world.waiting(mails)) == [1]
    assert (await api.client.post(path, content=b"x")).status_code == 401
    elsewhere = await api.client.post("/channel/other/publish", content=b"x", headers=headers)
    assert elsewhere.status_code == 401


async def test_a_published_message_has_the_priority_of_each_queue(api: Api) -> None:
    queues = [await api.world.define(name, priority=priority) for name, priority in (("low", 2), ("high", 9))]
    headers = (await api.put_channel("low", "high"))["low"]
    await api.client.post("/channel/order%20events/publish", content=b'{"n": 1}', headers=headers)
    found = [await api.world.broker.dequeue(queue, consumer="test") for queue in queues]
    assert [one.priority for got in found for one in got] == [2, 9]


async def test_a_publication_that_one_queue_refused_reaches_only_that_one_when_sent_again(api: Api) -> None:
    full, open_ = await api.world.define("full", max_depth=1), await api.world.define("open")
    headers = (await api.put_channel("full", "open"))["full"]
    await api.world.push(full, {"n": 0})
    path = "/channel/order%20events/publish"
    answer = await api.client.post(path, content=b'{"n": 1}', headers=headers)
    assert answer.status_code == 503
    key = answer.json()["idempotency_key"]
    assert [one["status"] for one in answer.json()["consumers"]] == ["refused", "accepted"]
    assert numbers(await api.world.waiting(full)) == [0]
    again = await api.client.post(path, content=b'{"n": 1}', headers={**headers, "Idempotency-Key": key})
    assert again.status_code == 202
    assert numbers(await api.world.waiting(full)) == [1]
    assert numbers(await api.world.waiting(open_)) == [1]


async def test_a_rotated_token_ends_and_a_changed_channel_keeps_the_others(api: Api) -> None:
    await api.world.define("orders")
    headers = (await api.put_channel("orders"))["orders"]
    body = {"name": "Renamed", "consumers": [{"id": "orders-c", "name": "New", "queue": "orders"}]}
    assert (await api.client.put("/api/v1/channels/order%20events", json=body)).status_code == 200
    assert (await api.client.get(f"{BASE}/dlq", headers=headers)).status_code == 200
    assert (await api.client.get("/dlq-status")).json()["consumers"][0]["channelName"] == "Renamed"
    await api.client.post("/api/v1/channels/order%20events/tokens")
    assert (await api.client.get(f"{BASE}/dlq", headers=headers)).status_code == 401
    taken = {"name": "Other", "consumers": [{"id": "x", "name": "x", "queue": "orders"}]}
    assert (await api.client.put("/api/v1/channels/other", json=taken)).status_code == 409
    assert (await api.client.delete("/api/v1/channels/order%20events")).status_code == 204
    assert (await api.client.get("/dlq-status")).json()["consumers"][0]["consumerId"] == "orders"
    assert (await api.client.post("/api/v1/channels/nobody/tokens")).status_code == 404
