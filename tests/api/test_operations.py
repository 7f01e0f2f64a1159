"""Load over HTTP: 201, 202, 429 and 503 with their headers, and the operations behind the 202s."""

from __future__ import annotations

import time
from dataclasses import replace
from urllib.parse import quote

import httpx2
import pytest

from support.statements import statement
from weir.api.app import create_app
from weir.api.edge import Edge
from weir.api.services import Services
from weir.broker.broker import Broker
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.control.audit_log import AuditedChange, AuditLog
from weir.control.database import Database, execute
from weir.control.system_events import SystemEvent, SystemEventKind, SystemEvents
from weir.embedded.ports import free_port
from weir.errors import ControlUnavailable
from weir.exchange.service import OperationService
from weir.model.ids import new_id
from weir.operations.payload import decode_push
from weir.workers.timeline import Timelines

from .harness import Tenant, make_client


@pytest.fixture
async def operations(database: Database, broker: Broker) -> OperationService:
    # A keeper of another test may have left an allowance on this Redis, and ended since.
    for shard in range(broker.shards):
        await broker.allow_direct(shard, until_ms=await broker.now_ms(shard) + 10_000)
    return OperationService(database=database, broker=broker)


@pytest.fixture
def services(services: Services, operations: OperationService, database: Database) -> Services:
    return replace(
        services,
        pusher=operations.front(),
        settler=operations.settlements,
        operations=operations,
        events=SystemEvents(database=database),
        timelines=Timelines(database, services.broker),
    )


async def push(client: httpx2.AsyncClient, queue: str, key: str = "k") -> httpx2.Response:
    items = [{"queue": queue, "key": key, "payload": 1}]
    return await client.post("/api/v1/push", json={"items": items})


async def test_a_queued_push_is_a_202_with_position_location_and_later_a_result(
    client: httpx2.AsyncClient, queue: str, operations: OperationService
) -> None:
    operations.admission.in_flight = 10_000
    response = await push(client, queue)
    operations.admission.in_flight = 0
    assert response.status_code == 202
    (item,) = response.json()["items"]
    assert item["status"] == "queued"
    assert item["reason"] == "system_busy"
    location = response.headers["location"]
    assert location == f"/api/v1/operations/{item['operation_id']}"
    assert int(response.headers["retry-after"]) >= 1
    shown = (await client.get(location)).json()
    assert (shown["status"], shown["operation_type"], shown["queue"]) == ("pending", "PUSH", queue)
    assert shown["queue_position"] >= 1
    while (await client.get(location)).json()["status"] != "completed":
        await operations.processor.run_round()
    assert (await client.get(location)).json()["result"]["messages"] == [
        {"id": item["id"], "status": "accepted"}
    ]
    assert (await push(client, queue)).status_code == 201


async def test_a_queued_push_with_a_key_has_no_id_until_its_operation_names_the_first(
    client: httpx2.AsyncClient, queue: str, operations: OperationService, database: Database
) -> None:
    items = [{"queue": queue, "payload": 1, "idempotency_key": "once"}]
    operations.admission.in_flight = 10_000
    answers = [await client.post("/api/v1/push", json={"items": items}) for _ in range(2)]
    operations.admission.in_flight = 0
    assert [answer.status_code for answer in answers] == [202, 202]
    assert all("id" not in answer.json()["items"][0] for answer in answers)
    queued = [answer.json()["items"][0]["operation_id"] for answer in answers]
    made = await ids_in_operations(database, queued)
    waiting = (await client.get(f"/api/v1/messages/{made[0]}/timeline")).json()
    assert [moment["what"] for moment in waiting["items"]] == ["operation PUSH"]
    while (await client.get(answers[1].headers["location"])).json()["status"] != "completed":
        await operations.processor.run_round()
    results = [(await client.get(answer.headers["location"])).json()["result"] for answer in answers]
    assert [result["messages"] for result in results] == [
        [{"id": made[0], "status": "accepted", "idempotency_key": "once"}],
        [{"id": made[0], "status": "duplicate", "idempotency_key": "once"}],
    ]
    told = (await client.get(f"/api/v1/messages/{made[0]}/timeline")).json()
    assert [moment["what"] for moment in told["items"]] == ["enqueued", "operation PUSH"]
    assert (await client.get(f"/api/v1/messages/{made[1]}/timeline")).status_code == 404
    again = await client.post("/api/v1/push", json={"items": items})
    assert again.json()["items"] == [{"status": "duplicate", "id": made[0]}]


async def test_a_message_in_an_operation_is_listed_as_queued_and_says_where_it_is(
    client: httpx2.AsyncClient, queue: str, operations: OperationService
) -> None:
    operations.admission.in_flight = 10_000
    (item,) = (await push(client, queue)).json()["items"]
    operations.admission.in_flight = 0
    path = f"/api/v1/queues/{quote(queue, safe='')}/messages"
    listed = (await client.get(path, params={"state": "queued", "limit": 1})).json()
    assert [one["id"] for one in listed["operations"]] == [item["operation_id"]]
    assert (listed["items"], listed["counts"]["queued"]) == ([], 1)
    rest = (await client.get(path, params={"state": "queued", "cursor": listed["next_cursor"]})).json()
    assert (rest["operations"], rest["next_cursor"]) == ([], None)
    for query in ({"cursor": "x"}, {"cursor": "9" * 19}, {"key": "k"}):
        assert (await client.get(path, params={"state": "queued", **query})).status_code == 422
    shown = (await client.get(f"/api/v1/messages/{item['id']}")).json()
    assert (shown["state"], shown["operation_id"]) == ("queued", item["operation_id"])
    assert shown["see"] == f"/api/v1/operations/{item['operation_id']}"
    why = (await client.get(f"/api/v1/messages/{item['id']}/why")).json()
    assert [part["reason"] for part in why["parts"]] == ["operation_queue"]
    refused = await client.post(f"/api/v1/messages/{item['id']}/cancel")
    assert (refused.status_code, refused.json()["see"]) == (409, shown["see"])
    while (await client.get(shown["see"])).json()["status"] != "completed":
        await operations.processor.run_round()
    assert (await client.get(f"/api/v1/messages/{item['id']}")).json()["state"] == "ready"
    assert (await client.get(path)).json()["counts"]["queued"] == 0


async def ids_in_operations(database: Database, operations: list[str]) -> list[str]:
    """The ids that the messages of operations were given on the way in."""
    async with database.connection() as connection:
        rows = await connection.execute("SELECT id::text, payload FROM weir.operations")
        payloads = {row["id"]: bytes(row["payload"]) for row in await rows.fetchall()}
    return [decode_push(payloads[one]).messages[0].id for one in operations]


async def test_a_repeat_of_what_is_in_the_queue_is_answered_though_others_are_queued_ahead(
    client: httpx2.AsyncClient, queue: str, operations: OperationService
) -> None:
    items = [{"queue": queue, "payload": 1, "idempotency_key": "once"}]
    first = await client.post("/api/v1/push", json={"items": items})
    operations.admission.in_flight = 10_000
    ahead = await client.post("/api/v1/push", json={"items": [{"queue": queue, "payload": 2}]})
    assert ahead.status_code == 202
    operations.admission.in_flight = 0
    again = await client.post("/api/v1/push", json={"items": items})
    assert again.status_code == 201
    assert again.json()["items"] == [{"status": "duplicate", "id": first.json()["items"][0]["id"]}]


async def test_a_busy_process_rejects_with_the_fields_that_say_when_to_come_back(
    client: httpx2.AsyncClient, queue: str, operations: OperationService
) -> None:
    operations.admission.lag_ms, operations.admission.in_flight = 10_000, 50
    response = await push(client, queue)
    assert response.status_code == 429
    assert response.json()["code"] == "overloaded"
    wait = int(response.headers["retry-after"])
    assert wait >= 1
    assert response.headers["ratelimit"] == f'"operations";r=0;t={wait}'
    assert response.headers["ratelimit-policy"] == '"operations";q=10000;qu="requests"'
    assert (await client.post("/api/v1/pop", json={"queue": queue})).status_code == 429
    operations.admission.lag_ms = operations.admission.in_flight = 0
    assert (await push(client, queue)).status_code == 201


async def test_operations_are_listed_counted_cancelled_and_only_failed_ones_retried(
    client: httpx2.AsyncClient, other: Tenant, queue: str, operations: OperationService
) -> None:
    operations.admission.in_flight = 10_000
    ids = [(await push(client, queue, key=str(n))).json()["items"][0]["operation_id"] for n in range(3)]
    listed = (await client.get("/api/v1/operations", params={"queue": queue, "limit": 2})).json()
    assert [one["id"] for one in listed["operations"]] == ids[:0:-1]
    assert listed["next_before"] is not None
    stats = (await client.get("/api/v1/operations/stats")).json()
    assert stats["stats"][0]["count"] == 3
    assert stats["system_health"]["decision"] == "queue"
    cancelled = await client.post(f"/api/v1/operations/{ids[0]}/cancel")
    assert cancelled.json()["status"] == "cancelled"
    assert (await client.post(f"/api/v1/operations/{ids[0]}/cancel")).status_code == 409
    assert (await client.post(f"/api/v1/operations/{ids[0]}/retry")).status_code == 409
    assert (await other.client.get(f"/api/v1/operations/{ids[1]}")).status_code == 404
    assert (await other.client.post(f"/api/v1/operations/{ids[1]}/cancel")).status_code == 404
    assert (await client.get(f"/api/v1/operations/{new_id()}")).status_code == 404
    assert (await client.get("/api/v1/operations/nonsense")).status_code == 422


async def test_a_cancellation_or_retry_that_cannot_be_audited_does_not_happen(
    client: httpx2.AsyncClient,
    tenant: Tenant,
    queue: str,
    operations: OperationService,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(_: AuditLog, change: AuditedChange) -> None:
        raise ControlUnavailable(f"`{change.action}` cannot be recorded")

    operations.admission.in_flight = 10_000
    waiting, failed = [(await push(client, queue, key=key)).json()["items"][0] for key in "ab"]
    operations.admission.in_flight = 0
    async with database.connection() as connection:
        await execute(
            connection,
            statement("UPDATE weir.operations SET status = 'failed' WHERE id = %(id)s"),
            id=failed["operation_id"],
        )
    asked = [(waiting["operation_id"], "cancel", "pending"), (failed["operation_id"], "retry", "failed")]
    with monkeypatch.context() as away:
        away.setattr(AuditLog, "record", refuse)
        for operation, verb, status in asked:
            response = await client.post(f"/api/v1/operations/{operation}/{verb}")
            assert response.status_code == 503
            row = await operations.store.read(tenant.environment, operation)
            assert row["status"] == status
    assert (await push(client, queue, key="a")).status_code == 202
    for operation, verb, _ in asked:
        assert (await client.post(f"/api/v1/operations/{operation}/{verb}")).status_code == 200
    entries = (await client.get("/api/v1/audit-log", params={"limit": 2})).json()["items"]
    assert [(one["action"], one["target"]) for one in entries] == [
        ("operation.retry", failed["operation_id"]),
        ("operation.cancel", waiting["operation_id"]),
    ]


async def test_with_redis_out_of_reach_pushes_get_202_and_with_postgres_too_503_within_a_second(
    services: Services, database: Database, database_url: str, tenant: Tenant, queue: str
) -> None:
    nowhere = RedisBroker(RedisConnection(url=f"redis://127.0.0.1:{free_port()}"))
    async with Database(database_url, timeout_s=0.5, name="reserved") as reserved:
        cut = OperationService(database=reserved, broker=nowhere)
        app: Edge = create_app(replace(services, pusher=cut.front(), operations=cut))
        async with make_client(app, tenant.token) as client:
            response = await push(client, queue)
            assert response.status_code == 202
            assert response.json()["items"][0]["reason"] == "broker_unavailable"
            assert response.json()["items"][0]["estimated_wait_ms"] is None
            await reserved.aclose()
            started = time.perf_counter()
            response = await push(client, queue)
            assert time.perf_counter() - started < 1
    assert response.status_code == 503
    assert int(response.headers["retry-after"]) >= 1
    await nowhere.aclose()


async def test_a_queue_that_is_defined_is_announced_to_every_process(
    client: httpx2.AsyncClient, tenant: Tenant, database: Database
) -> None:
    heard: list[SystemEvent] = []

    async def hear(event: SystemEvent) -> None:
        if event.environment == tenant.environment:
            heard.append(event)

    elsewhere = SystemEvents(database=database)
    elsewhere.on(SystemEventKind.QUEUE_DEFINED, hear)
    await elsewhere.catch_up()
    assert (await client.put("/api/v1/queues/new", json={})).status_code == 200
    await elsewhere.catch_up()
    assert [event.payload for event in heard] == [{"queue": "new"}]


async def test_each_message_of_a_queued_push_is_found_by_its_id(
    client: httpx2.AsyncClient, queue: str, operations: OperationService, database: Database
) -> None:
    items = [{"queue": queue, "key": "k", "payload": n} for n in range(3)]
    operations.admission.in_flight = 10_000
    answer = await client.post("/api/v1/push", json={"items": items})
    operations.admission.in_flight = 0
    made = [one["id"] for one in answer.json()["items"]]

    async def told() -> list[list[str]]:
        pages = [(await client.get(f"/api/v1/messages/{one}/timeline")).json() for one in made]
        return [[moment["what"] for moment in page["items"]] for page in pages]

    assert await told() == [["operation PUSH"]] * 3
    async with database.connection() as connection:
        # An older release wrote no ids beside the operation.
        await execute(connection, statement("UPDATE weir.operations SET message_ids = NULL"))
    assert await told() == [["operation PUSH"]] * 3
