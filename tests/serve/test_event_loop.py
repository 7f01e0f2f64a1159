"""Nothing holds the event loop of an API process for long, however large, many or old the messages are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx2
import orjson
import pytest

from support.lives import emitted_log, land_log
from support.loop_watchdog import Hold
from support.processes import frozen_tree
from support.waiting import until
from support.warehouse_template import WarehouseTemplate
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.model.message import NewMessage
from weir.model.sandbox import CHILDREN, MAX_WAITING, SANDBOX, Budget
from weir.serve.bootstrap import DEFAULT
from weir.spec.ir import QueueSpec
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.reading.log import MAX_READ_BYTES, LogReader

from .routes import QUEUE, REQUESTS, prepare
from .watched import WatchedApi, watched_api


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How many messages there are of each kind."""

    large: int
    small: int
    expired: int

    def __str__(self) -> str:
        return f"{self.large} large, {self.small} small, {self.expired} expired"


QUICK = Scale(large=60, small=10_000, expired=5_000)
FULL = Scale(large=1_000, small=1_000_000, expired=200_000)
BATCH = 1_000
TRIES = 3
"""A machine that is busy with other things makes any callback slow now and then, but not each time."""

ROWS = orjson.dumps({"rows": [{"id": n, "name": f"n{n}", "ok": True} for n in range(24_000)]})
"""Nearly a megabyte of objects, as an application sends them."""
LISTS = b"[" + b",".join([b"[]"] * 330_000) + b"]"
"""Nearly a megabyte that takes ten times as long to parse as other JSON."""
KINDS = {"rows": ROWS, "lists": LISTS}
JSON = {"content-type": "application/json"}
LOGGED = 18
MANY = 4_900
ANYTHING_BUT_A_DEFECT = tuple(status for status in range(200, 600) if status != 500)
ELSEWHERE = ("/stream", "/live")
"""Endings of routes whose answers go on; live queues have a test of their own."""


@pytest.fixture(
    scope="module", params=[QUICK, pytest.param(FULL, marks=pytest.mark.slow)], ids=["quick", "full"]
)
def api(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    postgres_url: str,
    migrated_template: str,
    warehouses: WarehouseTemplate,
) -> Iterator[WatchedApi]:
    folder = tmp_path_factory.mktemp("loop")
    with watched_api(
        folder, postgres_url=postgres_url, template=migrated_template, warehouses=warehouses
    ) as api:
        asyncio.run(fill(api, request.param))
        asyncio.run(wait_for_letters(api, request.param.expired))
        yield api


async def wait_for_letters(api: WatchedApi, count: int) -> None:
    """Wait until all expired messages are letters, so that a request is not blamed for their way there."""
    async with client_of(api) as client:

        async def arrived() -> bool:
            consumers = (await client.get("/api/v1/dlq/consumers")).json()["items"]
            return sum(one["dead_count"] for one in consumers) >= count

        await until(arrived, within_s=600)


async def fill(api: WatchedApi, scale: Scale) -> None:
    """Queues of the default environment with large messages, many small ones and expired ones, and a log."""
    async with client_of(api) as client:
        await prepare(client)
        for queue in ("rows", "lists", "small", "expired", "logged", "taken"):
            body = {"log_ms": 86_400_000} if queue == "logged" else {}
            made = await client.put(f"/api/v1/queues/{queue}", json=body)
            assert made.is_success, made.text
    async with broker_of(api) as broker:
        for start in range(0, scale.large, 10):
            for queue, payload in ((QUEUE, ROWS), ("rows", ROWS), ("lists", LISTS)):
                await push(broker, queue, payload, count=10, start=start)
        for queue, count, ttl_ms in (("small", scale.small, None), ("expired", scale.expired, 1)):
            for start in range(0, count, BATCH):
                await push(broker, queue, b'{"n":1}', count=BATCH, start=start, ttl_ms=ttl_ms)
        for _ in range(0, LOGGED, 6):
            await push(broker, "logged", ROWS, count=6)
            taken = await broker.dequeue(DEFAULT.queue("logged"), consumer="c", limit=6)
            await broker.ack([one.lease for one in taken])
        messages = await emitted_log(broker, DEFAULT.queue("logged"))
    with closing(ClickHouseConnection(api.urls.clickhouse)) as connection:
        for one in messages:
            land_log(connection, [one])


async def push(
    broker: RedisBroker, queue: str, payload: bytes, *, count: int, start: int = 0, ttl_ms: int | None = None
) -> None:
    numbers = range(start, start + count)
    messages = [NewMessage(payload=payload, key=f"k{number}", ttl_ms=ttl_ms) for number in numbers]
    await broker.enqueue(DEFAULT.queue(queue), messages)


@asynccontextmanager
async def broker_of(api: WatchedApi) -> AsyncIterator[RedisBroker]:
    broker = RedisBroker(RedisConnection(url=api.urls.redis))
    try:
        yield broker
    finally:
        await broker.aclose()


@asynccontextmanager
async def client_of(api: WatchedApi) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(
        base_url=f"http://127.0.0.1:{api.port}",
        headers={"authorization": f"Bearer {api.admin}"},
        timeout=120,
    ) as client:
        yield client


async def held_each_time(
    api: WatchedApi, method: str, path: str, *, takes: tuple[int, ...] = (200,), **options: Any
) -> list[Hold]:
    """What held the loop for too long each time that this was asked for."""
    found: list[Hold] = []
    async with client_of(api) as client:
        for _ in range(TRIES):
            api.watchdog.take()
            answer = await client.request(method, path, **options)
            assert answer.status_code in takes, answer.text[:500]
            if not (found := api.watchdog.take()):
                break
    return found


@pytest.mark.parametrize("state", ["ready", "scheduled", "leased", "retrying"])
@pytest.mark.parametrize("queue", [QUEUE, "lists", "small", "expired"])
async def test_a_page_of_messages_is_bounded(api: WatchedApi, queue: str, state: str) -> None:
    path = f"/api/v1/queues/{queue}/messages?state={state}&limit=200"
    assert not await held_each_time(api, "GET", path)
    assert not await held_each_time(api, "GET", path + "&text=nothing-like-it")


@pytest.mark.parametrize("part", ["", "/why", "/timeline"])
@pytest.mark.parametrize("queue", [QUEUE, "lists"])
async def test_a_large_message_is_shown_byte_for_byte(api: WatchedApi, queue: str, part: str) -> None:
    async with client_of(api) as client:
        listed = (await client.get(f"/api/v1/queues/{queue}/messages")).json()
    path = f"/api/v1/messages/{listed['items'][0]['message_id']}{part}"
    assert not await held_each_time(api, "GET", path)


@pytest.mark.parametrize("encoding", ["json", "base64"])
@pytest.mark.parametrize("queue", ["rows", "lists", "small", "expired"])
async def test_a_pop_of_a_thousand_is_written_beside_the_loop(
    api: WatchedApi, queue: str, encoding: str
) -> None:
    taking = {"queue": queue, "limit": 1_000, "payload_encoding": encoding, "lease_ms": 1_000}
    assert not await held_each_time(api, "POST", "/api/v1/pop", json=taking)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_large_push_is_read_beside_the_loop(api: WatchedApi, kind: str) -> None:
    payload = KINDS[kind]
    body = b'{"items":[{"queue":"other","payload":' + payload + b"}]}"
    pushed = {"method": "POST", "takes": (201, 202)}
    assert not await held_each_time(api, path="/api/v1/push", content=body, headers=JSON, **pushed)
    raw = "/api/v1/queues/other/messages"
    assert not await held_each_time(api, path=raw, content=payload, headers=JSON, **pushed)
    # curl labels every body as a form.
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert not await held_each_time(api, path=raw, content=payload, headers=form, **pushed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("headers", [JSON, {}], ids=["declared", "undeclared"])
async def test_a_large_body_is_refused_by_the_control_plane_at_little_cost(
    api: WatchedApi, kind: str, headers: dict[str, str]
) -> None:
    refused = {"method": "PUT", "takes": (413,), "content": KINDS[kind], "headers": headers}
    assert not await held_each_time(api, path="/api/v1/queues/other", **refused)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", ["/hook/Open", "/hook/default/default/default/Open"])
async def test_a_large_webhook_is_read_beside_the_loop(api: WatchedApi, path: str, kind: str) -> None:
    sent = {"takes": (202,), "content": KINDS[kind], "headers": JSON}
    assert not await held_each_time(api, "POST", path, **sent)


async def test_a_batch_of_a_thousand_is_pushed_settled_and_cancelled(api: WatchedApi) -> None:
    headers = {f"h{number}": "v" for number in range(10)}
    items = [{"queue": "taken", "payload": {"n": n}, "headers": headers} for n in range(BATCH)]
    assert not await held_each_time(api, "POST", "/api/v1/push", json={"items": items}, takes=(201, 202))
    lost = [{"queue": "taken", "id": str(uuid4()), "lease": str(uuid4())} for _ in range(BATCH)]
    settled = [{**one, "status": "completed"} for one in lost]
    acked = {"json": {"acknowledgments": settled}}
    assert not await held_each_time(api, "POST", "/api/v1/ack/batch", **acked)
    cancelled = {"json": {"ids": [one["id"] for one in lost]}}
    assert not await held_each_time(api, "POST", "/api/v1/queues/taken/messages/cancel", **cancelled)


async def test_a_search_looks_into_large_and_many_messages(api: WatchedApi) -> None:
    for wanted in ("nothing-like-it", "k7"):
        assert not await held_each_time(api, "GET", f"/api/v1/search?q={wanted}")


async def test_a_page_of_a_log_is_written_beside_the_loop(api: WatchedApi) -> None:
    assert not await held_each_time(api, "GET", "/api/v1/queues/logged/log?limit=200")


async def test_a_search_of_a_log_looks_at_a_bounded_number_of_bytes_per_request(api: WatchedApi) -> None:
    scanned: list[int] = []
    cursor: str | None = ""
    async with client_of(api) as client:
        while cursor is not None:
            asked = {"where": "size(payload.rows) == 1", **({"cursor": cursor} if cursor else {})}
            page = (await client.get("/api/v1/queues/logged/log", params=asked)).json()
            assert page["items"] == []
            scanned.append(page["scanned"])
            cursor = page["next_cursor"]
    assert sum(scanned) == LOGGED
    assert max(scanned) <= MAX_READ_BYTES // len(ROWS) + 1


async def test_an_organization_looks_through_one_log_at_a_time(
    api: WatchedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside: list[int] = []
    most: list[int] = []
    read = LogReader.read

    async def counted(*args: Any, **kwargs: Any) -> Any:
        inside.append(1)
        most.append(len(inside))
        try:
            return await read(*args, **kwargs)
        finally:
            inside.pop()

    monkeypatch.setattr(LogReader, "read", counted)
    async with client_of(api) as client:
        asked = [client.get("/api/v1/queues/logged/log?limit=2") for _ in range(4)]
        assert [one.status_code for one in await asyncio.gather(*asked)] == [200] * 4
    assert set(most) == {1}


@pytest.mark.parametrize("one", REQUESTS, ids=lambda one: one.route)
async def test_every_route_lets_the_loop_go(api: WatchedApi, one: Any) -> None:
    if one.path.partition("?")[0].endswith(ELSEWHERE):
        return
    token = {"authorization": f"Bearer {api.operator}"} if one.operator else {}
    asked = {"json": one.body, "headers": token, "takes": ANYTHING_BUT_A_DEFECT}
    assert not await held_each_time(api, one.method, one.path, **asked)


async def test_queued_pushes_of_large_messages_are_carried_out_in_the_background(api: WatchedApi) -> None:
    body = b'{"items":[{"queue":"other","key":"a","payload":' + ROWS + b"}]}"
    async with client_of(api) as client:
        with frozen_tree(api.redis.pid):
            pushes = [client.post("/api/v1/push", content=body, headers=JSON) for _ in range(20)]
            answers = await asyncio.gather(*pushes)
        assert [one.status_code for one in answers].count(202) >= 5
        assert not await held_each_time(api, "GET", "/api/v1/operations")
        api.watchdog.take()

        async def done() -> bool:
            stats = (await client.get("/api/v1/operations/stats")).json()
            return not stats["system_health"]["queue_depth"]

        await until(done, within_s=60)
    assert not [hold for hold in api.watchdog.take() if hold.ms > 2 * api.watchdog.bound_ms]


async def test_thousands_of_queues_are_listed_and_watched_beside_the_loop(api: WatchedApi) -> None:
    async with broker_of(api) as broker:
        for number in range(MANY):
            name = f"many{number}"
            await broker.define(DEFAULT.queue(name), QueueSpec(name=name))
            await push(broker, name, b"1", count=1)
    async with client_of(api) as client, client.stream("GET", "/api/v1/live") as live:
        api.watchdog.take()
        events = live.aiter_lines()
        for _ in range(4):
            while not await anext(events):
                pass
        assert not api.watchdog.take()
    for path in ("/api/v1/queues", "/metrics", "/api/v1/search?q=many1", "/admin/queues"):
        assert not await held_each_time(api, "GET", path)
    assert not await held_each_time(api, "POST", "/api/v1/pop", json={"limit": 1_000})


async def test_an_app_of_thousands_of_queues_is_planned_declared_and_listed_beside_the_loop(
    api: WatchedApi,
) -> None:
    queues = "\n".join(f"  queue of_app{number} {{}}" for number in range(MANY))
    source = {"source": f"app Large {{\n{queues}\n}}"}
    assert not await held_each_time(api, "POST", "/api/v1/apps/Large/plan", json=source)
    assert not await held_each_time(api, "PUT", "/api/v1/apps/Large", json=source)
    assert not await held_each_time(api, "GET", "/api/v1/apps")


async def test_a_box_full_of_one_organizations_work_is_open_to_the_plans_of_another(api: WatchedApi) -> None:
    long = Budget(wall_s=15.0)
    work = [SANDBOX.submit(time.sleep, 60, owner="heavy", budget=long) for _ in range(MAX_WAITING)]
    try:
        async with client_of(api) as client:
            planned = await client.post(
                "/api/v1/spec/plan", json={"source": "app Other {\n  queue other {}\n}"}
            )
        assert planned.status_code == 200, planned.text
        assert sum(one.running() for one in work) == CHILDREN - 1
    finally:
        for one in work:
            one.cancel()
