"""Messages that wait are listed, found, explained, moved and cancelled over HTTP, within one environment."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx2
import pytest

from weir.api.app import create_app
from weir.api.services import Services
from weir.control.principals import Principal, Role
from weir.deadletters.mover import Mover
from weir.spec.ir import DeliveryPolicy, Ordering

from .harness import Tenant, define, make_client, make_token

HOUR_MS = 3_600_000


def path_of(queue: str) -> str:
    return f"/api/v1/queues/{quote(queue, safe='')}/messages"


async def push(client: httpx2.AsyncClient, queue: str, payload: Any = 1, **fields: Any) -> str:
    items = [{"queue": queue, "payload": payload, **fields}]
    answer = await client.post("/api/v1/push", json={"items": items})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["items"][0]["id"])


async def pop(client: httpx2.AsyncClient, queue: str) -> dict[str, Any]:
    (message,) = (await client.post("/api/v1/pop", json={"queue": queue, "lease_ms": 600_000})).json()[
        "messages"
    ]
    return dict(message)


async def listed(client: httpx2.AsyncClient, queue: str, **query: Any) -> dict[str, Any]:
    answer = await client.get(path_of(queue), params=query)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def ids_of(page: dict[str, Any]) -> list[str]:
    return [one["message_id"] for one in page["items"]]


async def shown(client: httpx2.AsyncClient, message_id: str) -> dict[str, Any]:
    answer = await client.get(f"/api/v1/messages/{message_id}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def audited(services: Services, tenant: Tenant) -> list[dict[str, Any]]:
    assert services.audit is not None
    scope = tenant.environment
    principal = Principal(
        token_id=str(uuid4()),
        role=Role.ADMIN,
        organization=scope.organization,
        project=scope.project,
        environment=scope.environment,
    )
    return await services.audit.newest(principal)


# look


async def test_messages_are_listed_by_state_with_counts_and_previews(
    client: httpx2.AsyncClient, queue: str
) -> None:
    held = await push(client, queue, "held")
    assert (await pop(client, queue))["id"] == held
    ready = await push(client, queue, {"text": "é" * 300}, key="k", headers={"a": "b"}, priority=4)
    later = await push(client, queue, delay_ms=HOUR_MS)
    page = await listed(client, queue)
    assert (page["state"], ids_of(page), page["next_cursor"]) == ("ready", [ready], None)
    (item,) = page["items"]
    assert (item["key"], item["headers"], item["priority"], item["held"]) == ("k", {"a": "b"}, 4, None)
    assert item["preview"].startswith('{"text":')
    assert "�" not in item["preview"]
    assert (len(item["preview"].encode()) <= 200, item["payload_bytes"] > 600) == (True, True)
    counts = {"ready": 1, "scheduled": 1, "retrying": 0, "delayed": 1, "blocked": 0, "leased": 1}
    assert page["counts"] == {**counts, "queued": None}
    assert ids_of(await listed(client, queue, state="scheduled")) == [later]
    (leased,) = (await listed(client, queue, state="leased"))["items"]
    assert (leased["message_id"], leased["attempts"]) == (held, 1)
    assert set(leased["held"]) == {"consumer", "until_ms"}


async def test_a_list_is_paged_by_its_cursor(client: httpx2.AsyncClient, queue: str) -> None:
    pushed = [await push(client, queue, number) for number in range(5)]
    found: list[str] = []
    cursor = None
    while True:
        query = {"limit": 2} if cursor is None else {"limit": 2, "cursor": cursor}
        page = await listed(client, queue, **query)
        found += ids_of(page)
        if (cursor := page["next_cursor"]) is None:
            break
    assert found == pushed


async def test_messages_are_found_by_key_header_and_text(client: httpx2.AsyncClient, queue: str) -> None:
    first = await push(client, queue, {"order": "ä-17"}, key="c1", headers={"kind": "a=b"})
    second = await push(client, queue, {"order": "18"}, key="c2", headers={"kind": "x"})
    assert ids_of(await listed(client, queue, key="c2")) == [second]
    assert ids_of(await listed(client, queue, header="kind=a=b")) == [first]
    assert ids_of(await listed(client, queue, text='"18"')) == [second]
    assert ids_of(await listed(client, queue, key="c1", text="18")) == []


async def test_a_message_is_shown_whole(client: httpx2.AsyncClient, queue: str) -> None:
    front = await push(client, queue)
    one = await push(client, queue, {"n": 10**30}, key="k", headers={"a": "b"}, idempotency_key="once")
    found = await shown(client, one.upper())
    assert (found["message_id"], found["queue"], found["state"], found["see"]) == (one, queue, "ready", None)
    message = found["message"]
    assert (message["payload"], message["payload_base64"]) == ({"n": 10**30}, None)
    assert (message["key"], message["headers"], message["idempotency_key"]) == ("k", {"a": "b"}, "once")
    assert (message["ahead"], message["held"]) == (1, None)
    assert [moment["what"] for moment in found["items"]] == ["enqueued"]
    lease = await pop(client, queue)
    leased = await client.get(f"/api/v1/messages/{front}")
    assert (leased.json()["state"], leased.json()["message"]["ahead"]) == ("leased", None)
    assert leased.json()["message"]["held"]["until_ms"] == lease["lease_until_ms"]
    assert lease["lease"] not in leased.text


@pytest.mark.parametrize("raw", [b"NaN", b"1e999", b'"\\ud800"', b"\xff", b"[" * 600 + b"]" * 600])
async def test_a_payload_that_is_not_strict_json_is_shown_in_base64(
    client: httpx2.AsyncClient, queue: str, raw: bytes
) -> None:
    pushed = await client.post(path_of(queue), content=raw)
    assert pushed.status_code == 201
    message = (await shown(client, pushed.json()["id"]))["message"]
    assert (message["payload"], message["payload_bytes"]) == (None, len(raw))
    assert message["payload_base64"]
    assert len((await listed(client, queue))["items"]) == 1


async def test_a_blocked_message_names_the_one_it_waits_behind(tenant: Tenant, services: Services) -> None:
    queue = await define(services, tenant.environment, "ordered", ordering=Ordering.PER_KEY)
    head, second, third = [await push(tenant.client, queue, number, key="k") for number in range(3)]
    found = await shown(tenant.client, third)
    assert (found["state"], found["message"]["ahead"]) == ("blocked", 2)
    assert found["message"]["behind_id"] == head
    assert ids_of(await listed(tenant.client, queue, state="blocked")) == [second, third]
    why = (await tenant.client.get(f"/api/v1/messages/{third}/why")).json()
    assert (why["state"], why["behind_id"]) == ("blocked", head)


async def test_why_tells_the_parts_of_the_wait_in_words(client: httpx2.AsyncClient, queue: str) -> None:
    await client.post(f"/api/v1/queues/{quote(queue, safe='')}/pause")
    one = await push(client, queue)
    for _ in range(500):
        why = (await client.get(f"/api/v1/messages/{one}/why")).json()
        if why["waited_ms"]:
            break
    (part,) = why["parts"]
    assert (part["reason"], part["text"]) == ("paused", f"paused {part['waited_ms']} ms")
    assert part["waited_ms"] == why["waited_ms"] == why["until_ms"] - why["enqueued_at_ms"]


async def test_a_dead_message_points_to_its_dead_letter(tenant: Tenant, services: Services) -> None:
    once = DeliveryPolicy(max_attempts=1)
    queue = await define(services, tenant.environment, "o/nce", delivery=once)
    one = await push(tenant.client, queue)
    lease = await pop(tenant.client, queue)
    failure = {name: lease[name] for name in ("queue", "id", "lease")}
    await tenant.client.post("/api/v1/nack", json={**failure, "error": "no"})
    # Nobody moved it to PostgreSQL yet.
    assert ((await shown(tenant.client, one))["state"], (await shown(tenant.client, one))["see"]) == (
        "dead",
        None,
    )
    assert services.dead_letters is not None
    while await Mover(services.broker, services.dead_letters.database).run_round():
        pass
    found = await shown(tenant.client, one)
    assert (found["state"], found["message"]) == ("dead", None)
    assert (await tenant.client.get(found["see"])).json()["error"] == "no"
    for verb in ("run", "cancel"):
        refused = await tenant.client.post(f"/api/v1/messages/{one}/{verb}")
        assert (refused.status_code, refused.json()["see"]) == (409, found["see"])
        assert "redrive its dead letter" in refused.json()["detail"]
    assert (await tenant.client.get(f"/api/v1/messages/{one}/why")).status_code == 409


async def test_a_message_is_found_by_its_idempotency_key(client: httpx2.AsyncClient, queue: str) -> None:
    one = await push(client, queue, idempotency_key="order/17 ✓")
    found = await client.get(f"{path_of(queue)}/find", params={"idempotency_key": "order/17 ✓"})
    assert (found.status_code, found.json()) == (200, {"message_id": one, "queue": queue})
    for key, status in (("another", 404), ("", 422)):
        answer = await client.get(f"{path_of(queue)}/find", params={"idempotency_key": key})
        assert answer.status_code == status


# touch


async def test_a_scheduled_message_runs_now_and_is_put_off_again(
    client: httpx2.AsyncClient, queue: str
) -> None:
    one = await push(client, queue, delay_ms=HOUR_MS)
    answer = await client.post(f"/api/v1/messages/{one}/run")
    assert answer.json() == {"message_id": one, "queue": queue, "result": "done"}
    assert (await shown(client, one))["state"] == "ready"
    due_ms = (await shown(client, one))["message"]["enqueued_at_ms"] + 2 * HOUR_MS
    assert (
        await client.post(f"/api/v1/messages/{one}/reschedule", json={"at_ms": due_ms})
    ).status_code == 200
    put_off = await shown(client, one)
    assert (put_off["state"], put_off["message"]["available_at_ms"]) == ("scheduled", due_ms)
    await client.post(f"/api/v1/messages/{one}/reschedule", json={"delay_ms": 0})
    assert (await pop(client, queue))["id"] == one


async def test_a_message_is_served_by_its_new_priority(client: httpx2.AsyncClient, queue: str) -> None:
    await push(client, queue)
    last = await push(client, queue)
    assert (await client.post(f"/api/v1/messages/{last}/priority", json={"priority": 9})).status_code == 200
    assert (await pop(client, queue))["id"] == last


async def test_what_would_break_the_order_or_a_lease_is_refused_and_not_audited(
    tenant: Tenant, services: Services
) -> None:
    queue = await define(services, tenant.environment, "ordered", ordering=Ordering.PER_KEY)
    head, second = [await push(tenant.client, queue, number, key="k") for number in range(2)]
    client = tenant.client
    answers = [
        await client.post(f"/api/v1/messages/{head}/priority", json={"priority": 1}),
        await client.post(f"/api/v1/messages/{second}/reschedule", json={"delay_ms": 1_000}),
    ]
    await pop(client, queue)
    answers.append(await client.post(f"/api/v1/messages/{head}/reschedule", json={"delay_ms": 1_000}))
    assert [answer.status_code for answer in answers] == [409] * 3
    words = ("serves by order", "behind the head of its key", "is leased")
    assert all(word in answer.json()["detail"] for word, answer in zip(words, answers, strict=True))
    assert await audited(services, tenant) == []


async def test_a_cancelled_message_is_gone_and_on_record(
    tenant: Tenant, services: Services, queue: str
) -> None:
    waiting, held = await push(tenant.client, queue), await push(tenant.client, queue)
    await tenant.client.post(f"/api/v1/messages/{held}/priority", json={"priority": 9})
    lease = await pop(tenant.client, queue)
    results = [
        (await tenant.client.post(f"/api/v1/messages/{one}/cancel")).json()["result"]
        for one in (waiting, held)
    ]
    assert results == ["done", "revoked"]
    acked = {name: lease[name] for name in ("queue", "id", "lease")}
    assert (await tenant.client.post("/api/v1/ack", json=acked)).status_code == 409
    assert (await tenant.client.get(f"/api/v1/messages/{waiting}")).status_code == 404
    again = await tenant.client.post(f"/api/v1/messages/{waiting}/cancel")
    assert (again.status_code, again.json()["queue"], again.json()["result"]) == (200, queue, "done")
    records = await audited(services, tenant)
    assert [(one["action"], one["target"]) for one in records] == [
        ("message.cancel", held),
        ("message.cancel", waiting),
        ("message.priority", held),
    ]
    assert records[0]["actor"].startswith("token:")


async def test_many_are_cancelled_by_id_each_with_its_result(
    tenant: Tenant, services: Services, queue: str
) -> None:
    ids = [await push(tenant.client, queue), await push(tenant.client, queue), str(uuid4())]
    path = f"{path_of(queue)}/cancel"
    tried = (await tenant.client.post(path, json={"ids": ids, "dry_run": True})).json()
    assert [one["result"] for one in tried["items"]] == ["held", "held", "gone"]
    assert (tried["cancelled"], (await listed(tenant.client, queue))["counts"]["ready"]) == (2, 2)
    assert await audited(services, tenant) == []
    done = (await tenant.client.post(path, json={"ids": [*ids, ids[0].upper()]})).json()
    assert [one["result"] for one in done["items"]] == ["done", "done", "gone"]
    assert (done["cancelled"], (await listed(tenant.client, queue))["counts"]["ready"]) == (2, 0)
    (record,) = await audited(services, tenant)
    assert (record["target"], record["details"]["message_ids"]) == (queue, ids)


async def test_a_filter_is_cancelled_page_by_page(client: httpx2.AsyncClient, queue: str) -> None:
    for number in range(7):
        await push(client, queue, key="odd" if number % 2 else "even")
    body: dict[str, Any] = {"filter": {"state": "ready", "key": "even"}, "limit": 2}
    tried = (await client.post(f"{path_of(queue)}/cancel", json={**body, "dry_run": True})).json()
    assert (tried["cancelled"], (await listed(client, queue))["counts"]["ready"]) == (2, 7)
    total = 0
    while True:
        answer = (await client.post(f"{path_of(queue)}/cancel", json=body)).json()
        total += answer["cancelled"]
        assert answer["cancelled"] <= 2
        if answer["next_cursor"] is None:
            break
        body["cursor"] = answer["next_cursor"]
    assert total == 4
    assert [one["key"] for one in (await listed(client, queue))["items"]] == ["odd"] * 3


async def test_everything_of_a_state_is_cancelled_only_if_that_is_said(
    client: httpx2.AsyncClient, queue: str
) -> None:
    await push(client, queue)
    body: dict[str, Any] = {"filter": {"state": "ready"}}
    refused = await client.post(f"{path_of(queue)}/cancel", json=body)
    assert (refused.status_code, "all: true" in refused.json()["detail"]) == (422, True)
    assert (await client.post(f"{path_of(queue)}/cancel", json={**body, "all": True})).json()[
        "cancelled"
    ] == 1


# bad input


@pytest.mark.parametrize(
    "query",
    [
        {"state": "sleeping"},
        {"cursor": "garbage"},
        {"cursor": "AAAA"},
        {"state": "leased", "cursor": "AAAA"},
        {"state": "blocked", "cursor": "____"},
        {"limit": 0},
        {"limit": 201},
        {"header": "no equals sign"},
        {"header": "=value"},
        {"text": "x" * 1_001},
        {"text": "é" * 600},
        {"key": ""},
        {"key": "k\n"},
    ],
    ids=str,
)
async def test_a_list_that_cannot_be_meant_is_refused(
    client: httpx2.AsyncClient, queue: str, query: dict[str, Any]
) -> None:
    answer = await client.get(path_of(queue), params=query)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("reschedule", {}),
        ("reschedule", {"at_ms": 1, "delay_ms": 1}),
        ("reschedule", {"delay_ms": -1}),
        ("priority", {"priority": 10}),
        ("priority", {"priority": "high"}),
    ],
    ids=str,
)
async def test_a_touch_that_cannot_be_meant_is_refused(
    client: httpx2.AsyncClient, queue: str, route: str, body: dict[str, Any]
) -> None:
    one = await push(client, queue)
    answer = await client.post(f"/api/v1/messages/{one}/{route}", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input"), answer.text


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"ids": []},
        {"ids": ["x"]},
        {"ids": [str(uuid4())] * 1_001},
        {"ids": [str(uuid4())], "filter": {"state": "ready"}},
        {"ids": [str(uuid4())], "cursor": "AAAA"},
        {"filter": {"state": "queued"}},
        {"filter": {"key": "k"}},
        {"filter": {"state": "ready", "key": "k"}, "cursor": "garbage"},
        {"filter": {"state": "ready", "key": "k"}, "limit": 201},
    ],
    ids=lambda body: ",".join(body) or "nothing",
)
async def test_a_cancellation_that_cannot_be_meant_is_refused(
    client: httpx2.AsyncClient, queue: str, body: dict[str, Any]
) -> None:
    answer = await client.post(f"{path_of(queue)}/cancel", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input"), answer.text


@pytest.mark.parametrize("text", ["x", "1234", "00000000-0000-0000-0000-00000000000g"])
async def test_an_id_that_is_not_a_uuid_is_refused(client: httpx2.AsyncClient, text: str) -> None:
    for method, verb in (("GET", ""), ("GET", "/why"), ("POST", "/run"), ("POST", "/cancel")):
        answer = await client.request(method, f"/api/v1/messages/{text}{verb}")
        assert (answer.status_code, "expected a UUID" in answer.json()["detail"]) == (422, True)


async def test_unknown_messages_and_queues_are_not_found(client: httpx2.AsyncClient, queue: str) -> None:
    for method, verb in (("GET", ""), ("GET", "/why"), ("POST", "/run"), ("POST", "/cancel")):
        answer = await client.request(method, f"/api/v1/messages/{uuid4()}{verb}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert (await client.get(path_of("nobody"))).status_code == 404
    cancelled = await client.post(f"{path_of('nobody')}/cancel", json={"ids": [str(uuid4())]})
    assert cancelled.status_code == 404


async def test_a_method_that_a_list_does_not_take_is_answered_with_those_that_it_takes(
    client: httpx2.AsyncClient, queue: str
) -> None:
    answer = await client.delete(path_of(queue))
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST, GET")


# tenants and roles


async def test_a_tenant_neither_sees_nor_touches_the_messages_of_another(
    tenant: Tenant, other: Tenant, services: Services, queue: str
) -> None:
    await define(services, other.environment, queue)
    theirs = await push(tenant.client, queue, "secret", delay_ms=HOUR_MS)
    before = await shown(tenant.client, theirs)
    for method, verb, body in (
        ("GET", "", None),
        ("GET", "/why", None),
        ("POST", "/run", None),
        ("POST", "/reschedule", {"delay_ms": 0}),
        ("POST", "/priority", {"priority": 9}),
        ("POST", "/cancel", None),
    ):
        answer = await other.client.request(method, f"/api/v1/messages/{theirs}{verb}", json=body)
        assert (answer.status_code, "secret" in answer.text) == (404, False)
    assert (await listed(other.client, queue, state="scheduled"))["items"] == []
    cancelled = await other.client.post(f"{path_of(queue)}/cancel", json={"ids": [theirs]})
    assert cancelled.json()["cancelled"] == 0
    assert await shown(tenant.client, theirs) == before


async def test_a_reader_looks_and_only_a_writer_touches(
    tenant: Tenant, services: Services, queue: str
) -> None:
    one = await push(tenant.client, queue, delay_ms=HOUR_MS)
    token = await make_token(services, tenant.environment, Role.READ)
    async with make_client(create_app(services), token) as reader:
        for path in (path_of(queue), f"/api/v1/messages/{one}", f"/api/v1/messages/{one}/why"):
            assert (await reader.get(path)).status_code == 200
        for verb, body in (
            ("run", None),
            ("reschedule", {"delay_ms": 1}),
            ("priority", {"priority": 1}),
            ("cancel", None),
        ):
            assert (await reader.post(f"/api/v1/messages/{one}/{verb}", json=body)).status_code == 403
        assert (await reader.post(f"{path_of(queue)}/cancel", json={"ids": [one]})).status_code == 403
