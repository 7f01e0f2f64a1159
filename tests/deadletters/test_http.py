"""Dead letters over HTTP: the sources' routes, word for word, and everything that must be refused."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from tests.deadletters.http_api import Api, served
from tests.deadletters.world import World, numbers

from support.history import Moment, land_moments
from support.waiting import until
from support.warehouse import NOW_MS, WarehouseRig
from weir.api.app import create_app
from weir.control.database import Database
from weir.control.principals import Role
from weir.control.queue_definitions import QueueDefinitions
from weir.control.tokens import NewToken
from weir.model.asyncio_tasks import cancel_and_wait
from weir.model.clock import SystemClock
from weir.model.message import NewMessage
from weir.redis_client import connect
from weir.spec.ir import QueueSpec
from weir.telemetry.presence import Presence, ServingProcesses


@pytest.fixture
async def api(world: World) -> AsyncIterator[Api]:
    async with served(world) as api:
        yield api


@asynccontextmanager
async def running(world: World) -> AsyncIterator[None]:
    task = asyncio.create_task(world.runner.run())
    yield
    await cancel_and_wait([task])


BASE = "/channel/order%20events/consumer/orders-c"


async def test_dlq_status_answers_in_the_words_of_the_source(api: Api) -> None:
    orders, plain = await api.world.define("orders"), await api.world.define("plain")
    headers = await api.put_channel("orders")
    await api.world.kill(orders, 1, 2)
    await api.world.kill(plain, 3)
    consumers = (await api.client.get("/dlq-status")).json()["consumers"]
    names = ("channelId", "channelName", "consumerId", "consumerName", "deadCount")
    shown = [{name: one[name] for name in names} for one in consumers]
    assert shown == [
        {"channelId": "", "channelName": "", "consumerId": "plain", "consumerName": "plain", "deadCount": 1},
        {
            "channelId": "order events",
            "channelName": "Order Events",
            "consumerId": "orders-c",
            "consumerName": "orders consumer",
            "deadCount": 2,
        },
    ]
    del api.client.headers["authorization"]
    channel = {"X-Broker-Channel-Token": headers["orders"]["X-Broker-Channel-Token"]}
    only = (await api.client.get("/dlq-status", headers=channel)).json()["consumers"]
    assert [one["consumerId"] for one in only] == ["orders-c"]
    assert (await api.client.get("/dlq-status")).status_code == 401
    assert (await api.client.get("/dlq-status", headers={"X-Broker-Channel-Token": "no"})).status_code == 401


async def test_no_token_sees_the_dead_of_another_tenant(api: Api) -> None:
    queue = await api.world.define("orders")
    (letter_id,) = await api.world.kill(queue, 1)
    other = await api.token(Role.ADMIN, organization=f"someone {uuid4().hex}")
    assert (await api.client.get("/dlq-status", headers=other)).json() == {"consumers": []}
    for method, path in (
        ("GET", f"/admin/queues/orders/dlq/{letter_id}"),
        ("POST", f"/admin/queues/orders/dlq/{letter_id}/replay"),
        ("DELETE", f"/admin/queues/orders/dlq/{letter_id}"),
    ):
        assert (await api.client.request(method, path, headers=other)).status_code == 404
    assert (await api.client.get("/admin/queues/orders/dlq", headers=other)).json()["dead_letters"] == []
    assert (await api.client.get("/api/v1/dlq/groups", headers=other)).json() == {"items": []}


async def test_a_scope_header_that_is_not_utf8_is_refused_by_the_routes_of_the_source_too(api: Api) -> None:
    for path in ("/admin/queues", "/api/v1/queues"):
        answer = await api.client.get(path, headers={"Weir-Project": "%ff"})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input"), path


async def test_the_routes_of_the_source_note_which_environment_the_process_serves(
    api: Api, redis_url: str
) -> None:
    redis, environment = connect(redis_url), api.world.environment
    presence = Presence(redis, worker_id=uuid4().hex)
    app = create_app(replace(api.services, presence=presence))
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://weir") as client:
        await client.get("/admin/queues/none/dlq", headers=await api.token(Role.READ))
    await presence.flush()
    assert await ServingProcesses(redis).of(environment, since_ms=0)
    await redis.aclose()


async def test_a_consumer_requeues_and_deletes_single_dead_jobs(api: Api) -> None:
    orders = await api.world.define("orders")
    headers = (await api.put_channel("orders"))["orders"]
    first, second = await api.world.kill(orders, {"n": 1}, {"n": 2})
    shown = (await api.client.get(f"{BASE}/job/{first}", headers=headers)).json()
    assert (shown["payload"], shown["consumer_id"]) == ({"n": 1}, "orders-c")
    listed = (await api.client.get(f"{BASE}/dlq", headers=headers)).json()["letters"]
    assert {one["id"] for one in listed} == {first, second}

    requeued = await api.client.post(f"{BASE}/job/{first}/requeue-dead-job", headers=headers)
    assert requeued.status_code == 200
    assert requeued.json()["ok"] is True
    assert numbers(await api.world.waiting(orders)) == [1]
    deleted = await api.client.delete(f"{BASE}/job/{second}", headers=headers)
    assert deleted.json() == {"ok": True}
    assert await api.world.summary() == {"orders": 0}

    assert (await api.client.post(f"{BASE}/job/{first}/requeue-dead-job", headers=headers)).status_code == 409
    assert (await api.client.delete(f"{BASE}/job/{first}", headers=headers)).status_code == 409
    assert (await api.client.delete(f"{BASE}/job/{second}", headers=headers)).status_code == 404
    assert (await api.client.delete(f"{BASE}/job/nonsense", headers=headers)).status_code == 422
    await api.world.check_exact()


async def test_a_job_that_is_not_dead_or_belongs_to_another_consumer_is_not_found(api: Api) -> None:
    orders, mails = await api.world.define("orders"), await api.world.define("mails")
    headers = await api.put_channel("orders", "mails")
    (waiting,) = await api.world.push(orders, 1)
    (foreign,) = await api.world.kill(mails, 2)
    for job in (waiting, foreign):
        for method, path in (("POST", f"{BASE}/job/{job}/requeue-dead-job"), ("DELETE", f"{BASE}/job/{job}")):
            assert (await api.client.request(method, path, headers=headers["orders"])).status_code == 404
    assert (await api.world.summary())["mails"] == 1


@pytest.mark.parametrize(
    "spoil",
    [
        lambda mine, _: {},
        lambda mine, _: {"X-Broker-Channel-Token": mine["X-Broker-Channel-Token"]},
        lambda mine, _: {"X-Broker-Consumer-Token": mine["X-Broker-Consumer-Token"]},
        lambda mine, theirs: {**mine, "X-Broker-Consumer-Token": theirs["X-Broker-Consumer-Token"]},
        lambda mine, _: {**mine, "X-Broker-Channel-Token": mine["X-Broker-Consumer-Token"]},
        lambda mine, _: {**mine, "X-Broker-Consumer-Token": "weir_x_000000000000_" + "0" * 32 + "_000000"},
        lambda mine, _: {**mine, "X-Broker-Channel-Token": "' OR 1=1 --"},
    ],
)
async def test_wrong_tokens_are_refused_alike(api: Api, spoil: Callable[..., dict[str, str]]) -> None:
    orders = await api.world.define("orders")
    await api.world.define("mails")
    headers = await api.put_channel("orders", "mails")
    (job,) = await api.world.kill(orders, 1)
    wrong = spoil(headers["orders"], headers["mails"])
    for method, path in (
        ("GET", f"{BASE}/dlq"),
        ("POST", f"{BASE}/dlq"),
        ("DELETE", f"{BASE}/dlq"),
        ("GET", f"{BASE}/job/{job}"),
        ("POST", f"{BASE}/job/{job}/requeue-dead-job"),
        ("DELETE", f"{BASE}/job/{job}"),
    ):
        answer = await api.client.request(method, path, headers=wrong)
        assert answer.status_code == 401, (method, path)
        assert answer.json()["code"] == "unauthenticated"
    assert await api.world.summary() == {"orders": 1, "mails": 0}


async def test_all_dead_jobs_of_a_consumer_are_requeued_and_purged(api: Api) -> None:
    api.world.runner._clock = SystemClock()  # the loop waits in real time
    orders = await api.world.define("orders")
    headers = (await api.put_channel("orders"))["orders"]
    await api.world.kill(orders, *({"n": n} for n in range(5)))
    async with running(api.world):
        answer = await api.client.post(f"{BASE}/dlq", headers=headers)
        assert (answer.status_code, answer.json()["requeued"], answer.json()["done"]) == (200, 5, True)
        assert await api.world.summary() == {"orders": 0}
        await api.world.die(orders)
        await api.world.move()
        assert await api.world.summary() == {"orders": 5}
        answer = await api.client.delete(f"{BASE}/dlq", headers=headers)
        assert (answer.status_code, answer.json()["deleted"]) == (200, 5)
    assert await api.world.summary() == {"orders": 0}


async def test_without_a_runner_the_request_becomes_a_task(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.api.routes.compatibility.PATIENCE_S", 0.05)
    orders = await api.world.define("orders")
    headers = (await api.put_channel("orders"))["orders"]
    await api.world.kill(orders, 1)
    answer = await api.client.post(f"{BASE}/dlq", headers=headers)
    assert (answer.status_code, answer.json()["done"]) == (202, False)
    task = (await api.client.get(answer.headers["location"])).json()
    assert (task["state"], task["created_by"]) == ("pending", "consumer:orders-c")


async def test_admin_routes_show_replay_and_delete(api: Api) -> None:
    queue = await api.world.define("web/hooks: ✓")
    ids = await api.world.kill(queue, {"n": 1}, {"n": 2}, error="guard rejected 7")
    await api.world.push(queue, {"n": 3})
    name = "web%2Fhooks%3A%20%E2%9C%93"
    (shown,) = (await api.client.get("/admin/queues")).json()["queues"]
    assert (shown["name"], shown["depth"], shown["in_flight"], shown["dead_letters"]) == (
        "web/hooks: ✓", 1, 0, 2,
    )  # fmt: skip
    assert shown["messages_per_minute"] is None
    letters = (await api.client.get(f"/admin/queues/{name}/dlq?limit=1")).json()
    (first,) = letters["dead_letters"]
    assert (first["error"], first["attempts"]) == ("guard rejected 7", 1)
    assert first["failed_at"] == api.world.clock.now_ms() // 1000
    assert first["preview"] == {"payload": {"n": 2}}
    rest = await api.client.get(f"/admin/queues/{name}/dlq?before={letters['next_before']}")
    assert {first["id"], rest.json()["dead_letters"][0]["id"]} == set(ids)

    replay = await api.client.post(f"/admin/queues/{name}/dlq/{ids[0]}/replay")
    assert replay.json()["ok"] is True
    whole = (await api.client.get(f"/admin/queues/{name}/dlq/{ids[0]}")).json()
    assert (whole["replay_id"], whole["replay_result"]) == (replay.json()["new_message_id"], "waiting")
    here = (await api.client.get(f"/api/v1/dlq/letters/{ids[0]}", params={"queue": queue.queue})).json()
    assert (here["redrive_id"], here["redrive_result"]) == (whole["replay_id"], "waiting")
    assert {name.replace("redriven", "replayed").replace("redrive", "replay") for name in here} == set(whole)
    assert (await api.client.delete(f"/admin/queues/{name}/dlq/{ids[1]}")).json() == {"ok": True}
    assert await api.world.summary() == {"web/hooks: ✓": 0}


async def test_messages_per_minute_are_measured_or_null_and_never_zero_for_want_of_telemetry(
    world: World, warehouse_url: str
) -> None:
    rig = WarehouseRig(warehouse_url, now_ms=NOW_MS + 30_000)
    try:
        async with served(world, warehouse=rig.warehouse) as api:
            queue = await world.define("orders")

            async def per_minute() -> float | None:
                (shown,) = (await api.client.get("/admin/queues")).json()["queues"]
                found: float | None = shown["messages_per_minute"]
                return found

            assert await per_minute() == 0.0
            # Half a minute and a whole one before it: only the last sixty seconds count.
            moments = [
                Moment(queue=queue, at_ms=NOW_MS + second * 1_000, counts={"dequeued": 5}, sequence=0)
                for second in range(-90, 30, 5)
            ]
            land_moments(rig.connection, moments)
            assert await per_minute() == 60.0
            rig.tails.by_shard = {0: (NOW_MS + 400_000, 0)}
            rig.clock.advance(40_000)
            assert await per_minute() == pytest.approx(60.0, rel=0.1), "a little behind is not stale"
            rig.clock.advance(30_000)
            assert await per_minute() is None, "stale"
    finally:
        await rig.aclose()


async def test_previews_are_bounded_and_expired_letters_say_what_happened(api: Api) -> None:
    queue = await api.world.define("orders", message_ttl_ms=1000)
    wide = {f"field {n}": "x" * 1_000 for n in range(1_000)}
    bodies = [json.dumps(wide), json.dumps([[n] for n in range(50_000)]), "no JSON " * 2_000, "\xff\x00"]
    messages = [NewMessage(payload=body.encode("latin-1")) for body in bodies]
    await api.world.broker.enqueue(queue, messages)
    api.world.clock.advance(1000)
    await api.world.broker.sweep(api.world.shard)
    await api.world.move()
    answer = await api.client.get("/admin/queues/orders/dlq")
    assert len(answer.content) < 40_000
    shown = {one["id"]: one for one in answer.json()["dead_letters"]}
    assert {one["error"] for one in shown.values()} == {"expired before its first attempt"}
    previews = [shown[message.id]["preview"]["payload"] for message in messages]
    assert previews[0]["field 0"] == "x" * 100 + "…"
    assert previews[0]["…"] == "and 951 more"
    assert previews[1][:2] == [[0], [1]]
    assert previews[2].startswith("no JSON no JSON")
    assert previews[3] == "\ufffd\x00"


async def test_dlq_status_and_metrics_show_every_queue_with_0(api: Api) -> None:
    queue = api.world.environment.queue("quiet")
    await QueueDefinitions(api.world.database).define(queue, QueueSpec(name="quiet"))
    await api.world.kill(await api.world.define("orders"), 1)
    shown = (await api.client.get("/dlq-status")).json()["consumers"]
    assert [(one["consumerId"], one["queue"], one["deadCount"]) for one in shown] == [
        ("orders", "orders", 1),
        ("quiet", "quiet", 0),
    ]
    text = (await api.client.get("/metrics")).text
    assert "# TYPE dead_job_count gauge" in text
    assert 'dead_job_count{channel="",consumer="quiet"' in text
    await api.put_channel("quiet")
    shown = (await api.client.get("/dlq-status")).json()["consumers"]
    assert [one["consumerId"] for one in shown] == ["orders", "quiet-c"]


async def test_a_wide_token_chooses_its_tenant_and_roles_are_kept(api: Api) -> None:
    queue = await api.world.define("orders")
    (letter_id,) = await api.world.kill(queue, 1)
    environment = api.world.environment
    wide = NewToken(
        name="w", role=Role.READ, organization=environment.organization, project=environment.project
    )
    headers = {"authorization": f"Bearer {(await api.tokens.create(wide))[0]}"}
    tenant = {"tenant_id": environment.environment}
    answer = await api.client.get("/admin/queues", params=tenant, headers=headers)
    assert [one["name"] for one in answer.json()["queues"]] == ["orders"]
    assert (await api.client.get("/admin/queues", headers=headers)).status_code == 422
    path = f"/admin/queues/orders/dlq/{letter_id}"
    refused = await api.client.post(f"{path}/replay", params=tenant, headers=headers)
    assert refused.status_code == 403
    writer = await api.token(Role.WRITE)
    assert (await api.client.delete(path, headers=writer)).status_code == 403
    purge = {"filter": {"queue": "orders"}}
    assert (await api.client.post("/api/v1/dlq/purges", json=purge, headers=writer)).status_code == 403
    assert (await api.client.post("/api/v1/dlq/redrives", json=purge, headers=writer)).status_code == 202


async def test_a_dry_run_shows_what_a_patch_does_to_its_samples(api: Api) -> None:
    queue = await api.world.define("orders")
    await api.world.kill(queue, {"n": 1, "unit": "kg"}, {"m": 2})
    patch = '{"n": payload.n + 1, "unit": null}'
    answer = await api.client.post("/api/v1/dlq/redrives", json={"dry_run": True, "patch": patch})
    while await api.world.runner.step(answer.json()["id"]):
        pass
    path = f"{answer.headers['location']}/samples"
    good, bad = (await api.client.get(path)).json()["items"]
    assert (good["payload"], good["patched"], good["problem"]) == ({"n": 1, "unit": "kg"}, {"n": 2}, None)
    assert (bad["payload"], bad["patched"], bad["queue"]) == ({"m": 2}, None, "orders")
    assert bad["problem"]
    stranger = await api.token(Role.ADMIN, environment="another")
    assert (await api.client.get(path, headers=stranger)).status_code == 404


async def test_redrives_and_purges_over_http(api: Api) -> None:
    queue = await api.world.define("orders")
    await api.world.kill(queue, *({"n": n} for n in range(6)))
    body = {"filter": {"expression": "payload.n < 4"}, "dry_run": True}
    answer = await api.client.post("/api/v1/dlq/redrives", json=body)
    assert answer.status_code == 202
    while await api.world.runner.step(answer.json()["id"]):
        pass
    shown = (await api.client.get(answer.headers["location"])).json()
    assert (shown["state"], shown["matched"], shown["done"], len(shown["samples"])) == ("completed", 4, 0, 4)

    body = {"filter": {"queue": "orders"}, "rate_per_s": 1}
    task = (await api.client.post("/api/v1/dlq/redrives", json=body)).json()
    base = f"/api/v1/dlq/tasks/{task['id']}"
    assert (await api.client.post(f"{base}/pause")).json()["state"] == "paused"
    assert (await api.client.post(f"{base}/resume")).json()["state"] == "running"
    assert (await api.client.post(f"{base}/cancel")).json()["state"] == "cancelled"
    assert (await api.client.post(f"{base}/cancel")).status_code == 409
    for path in ("redrives", "purges"):
        assert (await api.client.post(f"/api/v1/dlq/{path}", json={"all": True})).status_code == 202
        unknown = {"filter": {"queue": "ordres"}}
        assert (await api.client.post(f"/api/v1/dlq/{path}", json=unknown)).status_code == 404
    listed = (await api.client.get("/api/v1/dlq/tasks")).json()["items"]
    assert len(listed) == 4
    assert (await api.client.get("/api/v1/dlq/tasks/" + str(uuid4()))).status_code == 404


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("purges", {}),
        ("purges", {"filter": {}}),
        ("purges", {"filter": {}, "include_unexhausted": True}),
        ("purges", {"filter": {"queue": "orders"}, "all": True}),
        ("redrives", {}),
        ("redrives", {"filter": {"queue": "orders"}, "all": True}),
        ("purges", {"filter": {"expression": "payload."}}),
        ("redrives", {"filter": {"expression": "nobody.knows"}}),
        ("redrives", {"filter": {"expression": "attempts"}}),
        ("redrives", {"filter": {"expression": "a" * 2000}}),
        ("redrives", {"patch": "{"}),
        ("redrives", {"canary": 1.5}),
        ("redrives", {"rate_per_s": -1}),
        ("redrives", {"filter": {"colour": "red"}}),
        ("redrives", {"filter": {"queue": "no\x00name"}}),
        ("redrives", {"filter": {"died_from_ms": 5, "died_to_ms": 4}}),
    ],
)
async def test_bad_tasks_are_refused(api: Api, path: str, body: dict[str, Any]) -> None:
    answer = await api.client.post(f"/api/v1/dlq/{path}", json=body)
    assert answer.status_code == 422
    assert (await api.client.get("/api/v1/dlq/tasks")).json() == {"items": []}


async def test_groups_and_letters_over_http(api: Api) -> None:
    queue = await api.world.define("orders")
    await api.world.kill(queue, 1, 2, error="order 17 not found")
    message = NewMessage(payload=b"\xff\x00")
    await api.world.broker.enqueue(queue, [message])
    await api.world.die(queue, error="not JSON")
    await api.world.move()
    groups = (await api.client.get("/api/v1/dlq/groups")).json()["items"]
    assert [(one["template"], one["dead_count"]) for one in groups] == [
        ("order <n> not found", 2),
        ("not JSON", 1),
    ]
    query = {"queue": "orders", "fingerprint": groups[1]["fingerprint"]}
    (letter,) = (await api.client.get("/api/v1/dlq/letters", params=query)).json()["items"]
    assert letter["payload"] is None
    assert base64.b64decode(letter["payload_base64"]) == b"\xff\x00"
    bad = await api.client.get("/api/v1/dlq/letters", params={"queue": "orders", "before": "x_y"})
    assert bad.status_code == 422


async def test_prometheus_reads_the_summary_when_it_asks(api: Api, database: Database) -> None:
    queue = await api.world.define("orders")
    await api.put_channel("orders")
    (letter_id,) = await api.world.kill(queue, 1)
    await api.world.auditor.audit(force=True)

    async def lines() -> list[str]:
        text = (await api.client.get("/metrics")).text
        return [line for line in text.splitlines() if line.startswith(("dead_job_count{", "weir_dlq"))]

    series = next(line for line in await lines() if line.startswith("dead_job_count"))
    assert 'channel="order events",consumer="orders-c"' in series
    assert series.endswith(" 1.0")
    assert "weir_dlq_drift 0.0" in await lines()
    await api.world.letters.delete(queue, letter_id, by="test")

    async def nothing_is_dead() -> bool:
        return next(line for line in await lines() if line.startswith("dead_job_count")).endswith(" 0.0")

    # A scrape is kept for a moment.
    await until(nothing_is_dead)
    del api.client.headers["authorization"]
    assert await lines() == []


async def test_prometheus_says_unknown_while_postgresql_is_away(api: Api) -> None:
    gone = Database("postgresql://nobody@127.0.0.1:1/none", timeout_s=0.2)
    await gone.open()
    room = api.services.dead_letters
    assert room is not None
    services = replace(
        api.services, dead_letters=replace(room, database=gone), tenants=None, metrics_token="operator"
    )
    transport = httpx2.ASGITransport(app=create_app(services))
    async with httpx2.AsyncClient(transport=transport, base_url="http://weir") as client:
        text = (await client.get("/metrics", headers={"authorization": "Bearer operator"})).text
    await gone.aclose()
    assert "weir_dlq_up 0.0" in text
    assert "dead_job_count{" not in text


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (b'{"name": "\\ud83d", "n": 1}', {"name": "?", "n": 1}),
        (b'{"\\ud83d": ["a\\udc00"]}', {"?": ["a?"]}),
        (b'{"n": NaN}', {"n": None}),
        (b'{"n": 12345678901234567890123}', {"n": 12345678901234567890123}),
    ],
)
async def test_a_letter_is_shown_whatever_text_its_payload_holds(
    api: Api, payload: bytes, shown: Any
) -> None:
    queue = await api.world.define("orders")
    message = NewMessage(payload=payload)
    await api.world.broker.enqueue(queue, [message])
    await api.world.die(queue)
    await api.world.move()
    page = await api.client.get("/api/v1/dlq/letters", params={"queue": "orders"})
    one = await api.client.get(f"/api/v1/dlq/letters/{message.id}", params={"queue": "orders"})
    previews = await api.client.get("/admin/queues/orders/dlq")
    job = await api.client.get(f"/admin/queues/orders/dlq/{message.id}")
    started = await api.client.post(
        "/api/v1/dlq/redrives", json={"filter": {"queue": "orders"}, "patch": '{"a": 1}', "dry_run": True}
    )
    while await api.world.runner.step(started.json()["id"]):
        pass
    samples = await api.client.get(f"/api/v1/dlq/tasks/{started.json()['id']}/samples")
    assert page.json()["items"][0]["payload"] == shown
    assert one.json()["payload"] == job.json()["payload"] == shown
    assert previews.json()["dead_letters"][0]["preview"]["payload"] == shown
    assert samples.json()["items"][0]["payload"] == shown
