"""`/hook/{name}` on real stores: strangers, repeats, limits, CloudEvents, the synchronous fallback."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from uuid import uuid4

import pytest

from ingress import signing
from ingress.house import SECRET
from support.waiting import until
from weir.api.edge import Edge
from weir.errors import BrokerUnavailable
from weir.exchange.seam import Refused
from weir.model.limits import MAX_ERROR_BYTES, MAX_RESULT_BYTES
from weir.model.message import NewMessage
from weir.model.receipts import HOOK, RECEIVED_AT
from weir.serve.server import bind, listening
from weir.spec.language import read_spec
from weir.worker import Context, Reject
from weir.workers.journal import AttemptRecord, attempts_of, result_of

SPEC = """
app Hooks {
  queue In {}
  queue Keyed { ordering: per_key }
  queue Urgent { priority: 8 }
  webhook Signed {
    queue: In
    verify_hmac { header: "X-Sig", secret: "HOOK" }
    idempotency_header: "X-Id"
  }
  webhook Small { queue: In, max_body_bytes: 100 }
  webhook Open { queue: In }
  webhook Alarm { queue: Urgent }
  webhook Rotating { queue: In, verify_hmac { header: "X-Sig", secret: ["HOOK", "OLD"] } }
  webhook Keyless { queue: In, verify_hmac { header: "X-Sig", secret: "NOWHERE" } }
  webhook Ordered { queue: Keyed, key: "payload.account" }
  webhook Listed { queue: Keyed, key: "payload.l.filter(x, x > 1)[0]" }
  webhook Now { map_to: command Ping.Answer { n: payload.n } }
  webhook Sum { map_to: command Ping.Answer { n: sum(payload.l.map(x, x)) } }
}
"""


@pytest.fixture
async def house(house):
    await house.apply(SPEC)
    return house


async def test_an_unknown_webhook_and_a_bad_signature_are_refused_alike(house):
    bad = await house.hook("Signed", {"a": 1}, x_sig="00" * 32)
    missing = await house.client.post("/hook/Signed", json={"a": 1})
    unknown = await house.hook("Nowhere", {"a": 1})
    assert {one.status_code for one in (bad, missing, unknown)} == {401}
    assert len({json.dumps({**one.json(), "instance": ""}) for one in (bad, missing, unknown)}) == 1
    assert await house.depth("In") == 0


async def test_webhooks_are_counted_by_scheme_and_outcome(house):
    def counted() -> dict[tuple[str, str], float]:
        family = house.services.receiver.counts.family()
        return {(one.labels["scheme"], one.labels["outcome"]): one.value for one in family.samples}

    for _ in range(2):
        await house.hook("Signed", {"a": 1}, x_id="one")
    await house.hook("Signed", {"a": 2}, x_id="one")
    await house.hook("Signed", {"a": 1}, x_sig="00" * 32)
    await house.hook("Nowhere", {"a": 1})
    await house.hook("Open", {"a": 1})
    assert counted() == {
        ("hmac", "accepted"): 1,
        ("hmac", "repeated"): 1,
        ("hmac", "key_reused"): 1,
        ("hmac", "unauthenticated"): 1,
        ("unknown", "unauthenticated"): 1,
        ("none", "accepted"): 1,
    }
    shown = (await house.client.get("/metrics")).text
    assert 'weir_webhooks_total{outcome="repeated",scheme="hmac"} 1.0' in shown


async def test_fifty_concurrent_repeats_give_one_message_and_the_same_answer(house):
    answers = await asyncio.gather(*(house.hook("Signed", {"a": 1}, x_id="one") for _ in range(50)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.content for answer in answers}) == 1
    assert await house.depth("In") == 1


async def test_a_sender_that_left_before_its_answer_may_send_again(house):
    body = b'{"a": 1}'
    head = (
        f"POST /hook/Signed HTTP/1.1\r\nhost: x\r\nx-id: left\r\ncontent-length: {len(body)}\r\n"
        f"content-type: application/json\r\nx-sig: {signing.hexmac(SECRET, body)}\r\n\r\n"
    )
    listener = bind("127.0.0.1", 0)
    async with listening(house.app, listener, stopping=lambda: None, grace_s=2):
        for _ in range(5):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(head.encode() + body)
            await writer.drain()
            writer.transport.abort()
        first = await house.hook("Signed", body, x_id="left")
        second = await house.hook("Signed", body, x_id="left")
    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json()["id"] == second.json()["id"]
    assert await house.depth("In") == 1


async def test_repeats_are_known_across_processes(house, environment, database, redis_url):
    from ingress.house import open_house

    first = await house.hook("Signed", {"a": 1}, x_id="one")
    async with open_house(environment, database, redis_url) as other:
        await other.registry.refresh()
        second = await other.hook("Signed", {"a": 1}, x_id="one")
        third = await other.hook("Signed", {"a": 2}, x_id="one")
    assert first.content == second.content
    assert second.headers["idempotency-replayed"] == "true"
    assert third.status_code == 422


async def test_a_webhooks_messages_have_the_priority_of_its_queue(house):
    await house.hook("Alarm", {"a": 1})
    queue = house.environment.queue("Urgent")
    assert [one.priority for one in await house.broker.dequeue(queue, consumer="test")] == [8]


async def test_the_same_id_at_two_webhooks_is_two_deliveries(house):
    await house.hook("Signed", {"a": 1}, x_id="one")
    await house.client.post("/hook/Open", json={"a": 1}, headers={"idempotency-key": "one"})
    assert await house.depth("In") == 2


@pytest.mark.parametrize("name", ["OLD", "HOOK"])
async def test_old_and_new_secret_hold_while_rotating_and_the_old_one_ends(house, name):
    house.secrets["OLD"] = "the secret before this one"
    body = b"{}"
    headers = signing.plain(house.secrets[name], body, 0)
    assert (await house.client.post("/hook/Rotating", content=body, headers=headers)).status_code == 202
    del house.secrets["OLD"]
    expected = 401 if name == "OLD" else 202
    assert (await house.client.post("/hook/Rotating", content=body, headers=headers)).status_code == expected


async def test_a_body_over_the_limit_is_413_by_length_and_while_streaming(house):
    async def chunks():
        for _ in range(20):
            yield b"x" * 10

    announced = await house.client.post("/hook/Small", content=b"x" * 101)
    streamed = await house.client.post("/hook/Small", content=chunks())
    fits = await house.client.post("/hook/Small", content=b'"' + b"x" * 98 + b'"')
    assert (announced.status_code, streamed.status_code, fits.status_code) == (413, 413, 202)


async def test_a_compressed_body_is_415(house):
    body = gzip.compress(b"{}" * 1000)
    response = await house.client.post("/hook/Open", content=body, headers={"content-encoding": "gzip"})
    assert response.status_code == 415


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"", 400), (b"[" * 100_000, 400), (b'{"a": NaN}', 400), (b"\xff\xfe", 400), (b'"\\ud800"', 400)],
)
async def test_bad_json_is_a_400_problem(house, body, status):
    response = await house.client.post("/hook/Open", content=body)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"


async def test_wrong_methods_are_405_and_the_cloudevents_handshake_is_answered(house):
    assert (await house.client.get("/hook/Open")).status_code == 405
    answer = await house.client.options("/hook/Open", headers={"webhook-request-origin": "events.example"})
    assert answer.headers["webhook-allowed-origin"] == "events.example"


async def test_a_batch_of_cloudevents_is_one_message_each_and_known_by_source_and_id(house):
    events = [{"specversion": "1.0", "id": str(n), "source": "s", "type": "t"} for n in range(3)]
    kind = {"content-type": "application/cloudevents-batch+json"}
    first = await house.client.post("/hook/Open", content=json.dumps(events), headers=kind)
    again = await house.client.post("/hook/Open", content=json.dumps(events), headers=kind)
    assert first.status_code == 202
    assert first.json() == again.json()
    assert len(first.json()["items"]) == 3
    assert await house.depth("In") == 3


async def test_a_webhook_gives_a_per_key_queue_its_key(house):
    await house.client.post("/hook/Ordered", json={"account": "A-7"})
    (delivery,) = await house.broker.dequeue(house.environment.queue("Keyed"), consumer="c")
    assert delivery.key == "A-7"
    refused = await house.client.post("/hook/Ordered", json={})
    assert refused.status_code == 422


async def test_keys_and_inputs_that_are_not_provably_small_are_evaluated_in_the_box(house):
    house.commands.command("Ping.Answer")(lambda n: n)
    assert (await house.client.post("/hook/Listed", json={"l": [1, 7]})).status_code == 202
    (delivery,) = await house.broker.dequeue(house.environment.queue("Keyed"), consumer="c")
    assert delivery.key == "7"
    for webhook in ("Listed", "Sum"):
        refused = await house.client.post(f"/hook/{webhook}", json={"l": list(range(20_000))})
        assert refused.status_code == 422
        assert "more than" in refused.json()["detail"]
    assert (await house.client.post("/hook/Sum", json={"l": [1, 2]})).status_code == 200


async def test_the_long_address_reaches_the_environment_that_lost_the_short_one(house, database, redis_url):
    from ingress.house import open_house

    other = type(house.environment)(organization="o/2", project="p", environment="é")
    async with open_house(other, database, redis_url) as second:
        applied = await second.client.put("/api/v1/spec", json={"source": SPEC})
        await second.registry.refresh()
        address = applied.json()["hooks"]["Open"]
        assert address == "/hook/o%2F2/p/%C3%A9/Open"
        assert (await second.client.post(address, json={"a": 1})).status_code == 202
        assert await second.depth("In") == 1
    assert await house.depth("In") == 0


async def test_without_a_queue_the_command_runs_before_the_answer(house):
    @house.commands.command("Ping.Answer")
    async def answer(n: int, context: Context) -> dict[str, int]:
        return {"twice": n * 2}

    response = await house.client.post("/hook/Now", json={"n": 21})
    assert response.status_code == 200
    assert response.json() == {"status": "processed", "result": {"twice": 42}}


async def test_at_once_an_id_runs_once_and_409_while_it_runs(house):
    runs, gate = [], asyncio.Event()

    @house.commands.command("Ping.Answer")
    async def answer(n: int) -> int:
        runs.append(n)
        await gate.wait()
        return n

    async def send(n: int = 1):
        return await house.client.post("/hook/Now", json={"n": n}, headers={"idempotency-key": "k"})

    first = asyncio.create_task(send())
    await until(lambda: runs == [1])
    assert (await send()).status_code == 409
    assert (await send(2)).status_code == 422
    gate.set()
    assert (await first).status_code == 200
    again = await send()
    assert (again.status_code, again.content) == (200, (await first).content)
    assert again.headers["idempotency-replayed"] == "true"
    assert runs == [1]


async def test_at_once_a_failure_is_not_kept_and_a_rejection_is_422(house):
    outcomes = [RuntimeError("secret detail"), Reject("no"), None]

    @house.commands.command("Ping.Answer")
    def answer(n: int) -> str:
        error = outcomes.pop(0)
        if error is not None:
            raise error
        return "fine"

    statuses = []
    for _ in range(3):
        response = await house.client.post("/hook/Now", json={"n": 1}, headers={"idempotency-key": "k"})
        statuses.append(response.status_code)
        assert "secret detail" not in response.text
    assert statuses == [503, 422, 200]


async def test_a_command_that_is_not_here_is_503(house):
    assert (await house.client.post("/hook/Now", json={"n": 1})).status_code == 503


async def test_a_broker_that_refuses_is_503_and_a_retry_can_succeed(house, monkeypatch):
    pusher = house.front
    push, calls = pusher.push, []

    async def flaky(items):
        calls.append(len(items))
        if len(calls) == 1:
            return [Refused(error=BrokerUnavailable("away", retry_after_s=1)) for _ in items]
        return await push(items)

    monkeypatch.setattr(pusher, "push", flaky)
    first = await house.hook("Signed", {"a": 1}, x_id="one")
    second = await house.hook("Signed", {"a": 1}, x_id="one")
    assert (first.status_code, second.status_code) == (503, 202)
    assert first.headers["retry-after"] == "1"


async def test_a_spec_that_does_not_check_is_a_422_problem_with_its_places(house):
    response = await house.client.put("/api/v1/spec", json={"source": "app A { queu B {} }"})
    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert (error["line"], error["column"], error["hint"]) == (1, 9, "did you mean `queue`?")


async def test_a_plan_over_http_shows_changes_and_refusals(house):
    await house.hook("Signed", {"a": 1})
    response = await house.client.post("/api/v1/spec/plan", json={"source": "app Hooks { queue Keyed {} }"})
    plan = response.json()
    assert plan["allowed"] is False
    assert "queue `In` still holds 1 message;" in plan["refusals"][0]
    refused = await house.client.put("/api/v1/spec", json={"source": "app Hooks { queue Keyed {} }"})
    assert refused.status_code == 409


async def test_the_applied_spec_is_shown_with_its_history(house):
    shown = (await house.client.get("/api/v1/spec")).json()
    assert shown["source"] == SPEC
    await house.apply(SPEC.replace("app Hooks {", "app Hooks { concurrency: 5"))
    history = (await house.client.get("/api/v1/spec/history")).json()["items"]
    assert [one["revision"] for one in history] == [2, 1]


async def test_channels_of_a_spec_hold_in_the_same_transaction(house):
    await house.apply(
        SPEC.replace("queue In {}", 'queue In {} channel c { name: "C" consumer x { queue: In } }')
    )
    (channel,) = await house.services.channels.of(house.environment)
    assert (channel.id, channel.consumers[0].queue) == ("c", "In")
    await house.apply(SPEC)
    assert await house.services.channels.of(house.environment) == []


async def test_the_result_of_a_message_is_kept_for_its_key_and_told_in_its_timeline(house):
    @house.commands.command("Order.Take")
    async def take(n: int) -> dict[str, int]:
        return {"taken": n}

    await house.apply(
        "app Hooks { queue In { map_to: command Order.Take { n: payload.n } }"
        ' webhook Signed { queue: In, verify_hmac { header: "X-Sig", secret: "HOOK" },'
        ' idempotency_header: "X-Id" } }'
    )
    accepted = (await house.hook("Signed", {"n": 3}, x_id="k-3")).json()
    async with house.working() as worker:
        await until(lambda: worker.processed == 1)
    timeline = (await house.client.get(f"/api/v1/messages/{accepted['id']}/timeline")).json()
    assert timeline["state"] == "done"
    kept = next(one for one in timeline["items"] if one["what"] == "result kept")
    assert kept["details"]["result"] == {"taken": 3}
    received = timeline["items"][0]
    assert (received["what"], received["details"]) == ("received", {"hook": "Signed"})
    assert received["at_ms"] <= timeline["items"][1]["at_ms"]


async def test_a_message_that_nobody_worked_on_yet_shows_its_receipt(house):
    accepted = (await house.hook("Signed", {"n": 1})).json()
    timeline = (await house.client.get(f"/api/v1/messages/{accepted['id']}/timeline")).json()
    assert [moment["what"] for moment in timeline["items"]] == ["received", "enqueued"]
    assert timeline["items"][0]["details"] == {"hook": "Signed"}


async def test_headers_that_lie_about_a_receipt_do_not_stop_the_record(house):
    queue = house.environment.queue("In")
    lies = [{RECEIVED_AT: "9" * 30, HOOK: "a\x00b"}, {RECEIVED_AT: "²"}, {RECEIVED_AT: "-1", HOOK: "h"}, {}]
    messages = [NewMessage(payload=b"{}", headers=lie) for lie in lies]
    await house.broker.enqueue(queue, messages)
    for delivery in await house.broker.dequeue(queue, consumer="c", limit=4):
        now = delivery.enqueued_at_ms
        house.journal.record(
            AttemptRecord(delivery=delivery, worker="w", started_at_ms=now, finished_at_ms=now, ending="done")
        )
    await house.journal.flush()
    for message in messages:
        timeline = (await house.client.get(f"/api/v1/messages/{message.id}/timeline")).json()
        assert "attempt done" in [moment["what"] for moment in timeline["items"]]


@pytest.mark.parametrize(
    ("error", "result"),
    [
        ("\ud800", None),
        ("a\x00b", None),
        ("x" * 1_000_000, None),
        ("", {"a": "\x00\ud800"}),
        ("", {1: b"\xff"}),
    ],
)
async def test_no_error_or_result_of_a_command_stops_the_record(house, error, result):
    message_id = await record_done(house, error=error, result=result)
    (row,) = await attempts_of(house.database, house.environment, message_id)
    assert len(row["error"]) == min(len(error), MAX_ERROR_BYTES)


async def record_done(house, **told):
    queue = house.environment.queue("In")
    await house.broker.enqueue(queue, [NewMessage(payload=b"{}", idempotency_key=uuid4().hex)])
    (delivery,) = await house.broker.dequeue(queue, consumer="c")
    attempt = AttemptRecord(
        delivery=delivery, worker="w", started_at_ms=1, finished_at_ms=2, ending="done", **told
    )
    house.journal.record(attempt)
    await house.journal.flush()
    return delivery.message_id


async def test_a_result_is_measured_in_bytes_and_not_in_characters(house):
    # The quotes around the text are two of its bytes.
    fits = "é" * ((MAX_RESULT_BYTES - 2) // 2)
    kept = await result_of(house.database, house.environment, await record_done(house, result=fits))
    assert kept["result"] == fits
    kept = await result_of(house.database, house.environment, await record_done(house, result=fits + "é"))
    assert kept["result"] == {"omitted": f"{MAX_RESULT_BYTES + 2} bytes"}


async def test_a_receipt_comes_before_the_work_whatever_the_workers_clock_says(house):
    accepted = (await house.hook("Signed", {"n": 1})).json()
    queue = house.environment.queue("In")
    (delivery,) = await house.broker.dequeue(queue, consumer="behind")
    long_ago = delivery.enqueued_at_ms - 60_000
    house.journal.record(
        AttemptRecord(
            delivery=delivery,
            worker="behind",
            started_at_ms=long_ago,
            finished_at_ms=long_ago + 5,
            ending="done",
        )
    )
    await house.journal.flush()
    timeline = (await house.client.get(f"/api/v1/messages/{accepted['id']}/timeline")).json()
    told = [moment["what"] for moment in timeline["items"]]
    assert told == ["received", "enqueued", "attempt started", "attempt done"]


async def test_a_message_of_another_tenant_has_no_timeline_here(house, database, redis_url):
    from ingress.house import open_house

    accepted = (await house.hook("Signed", {"a": 1})).json()
    assert (await house.client.get(f"/api/v1/messages/{accepted['id']}/timeline")).json()["state"] == "held"
    other = type(house.environment)(organization="other", project="p", environment="e")
    async with open_house(other, database, redis_url) as second:
        response = await second.client.get(f"/api/v1/messages/{accepted['id']}/timeline")
    assert response.status_code == 404


@pytest.mark.slow
async def test_burst_ten_thousand_webhooks_over_a_socket_are_processed_once_each(house):
    """Every 202 is processed exactly as often as its key says, none is lost, whatever else is answered."""
    from benches.http_load import generate

    app = read_spec(SPEC)
    assert app.queues
    seen: dict[int, int] = {}

    @house.commands.command("Burst.Take")
    async def take(n: int) -> None:
        seen[n] = seen.get(n, 0) + 1

    await house.apply(
        "app Hooks { queue In { map_to: command Burst.Take { n: payload.n } }"
        ' webhook Signed { queue: In, verify_hmac { header: "X-Sig", secret: "HOOK" },'
        ' idempotency_header: "X-Id" } }'
    )
    requests = []
    for number in range(10_000):
        body = json.dumps({"n": number}).encode()
        head = (
            f"POST /hook/Signed HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nx-id: d-{number}\r\n"
            f"x-sig: {signing.hexmac(SECRET, body)}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        requests += [head.encode() + body] * (2 if number % 10 == 0 else 1)
    waiting, answers = iter(requests), []
    assert isinstance(house.app, Edge)
    async with (
        house.working(concurrency=50, prefetch=200),
        listening(house.app, bind("127.0.0.1", 0), stopping=lambda: None) as url,
    ):
        started = time.monotonic()
        load = await generate(
            url, lambda: next(waiting, None), seconds=120, connections=100, read=answers.append
        )
        await until(lambda: len(seen) == 10_000, within_s=120)
        assert time.monotonic() - started < 240
    assert load.failures == {}
    assert len({json.loads(answer)["id"] for answer in answers}) == 10_000
    assert set(seen.values()) == {1}


async def test_a_webhook_runs_no_command_that_is_registered_for_others_only(house):
    ran = []
    house.commands.command("Ping.Answer", only=[("somebody else",)])(lambda n: ran.append(n))
    refused = await house.hook("Now", {"n": 1})
    house.commands.registered.clear()
    unknown = await house.hook("Now", {"n": 1})
    assert (refused.status_code, refused.json()["detail"]) == (503, unknown.json()["detail"])
    house.commands.command("Ping.Answer", only=[house.environment.names])(lambda n: ran.append(n))
    assert (await house.hook("Now", {"n": 2})).status_code == 200
    assert ran == [2]


async def test_an_apply_with_the_revision_of_its_plan_does_only_what_the_plan_showed(house):
    source = SPEC.replace("app Hooks {", "app Hooks { queue New {}")
    plan = (await house.client.post("/api/v1/spec/plan", json={"source": source})).json()
    assert (await house.client.put("/api/v1/queues/Other", json={})).status_code == 200
    body = {"source": source, "revision": plan["revision"]}
    late = await house.client.put("/api/v1/spec", json=body)
    assert (late.status_code, "plan again to see what changed" in late.json()["detail"]) == (409, True)
    assert late.json()["revision"] > plan["revision"]
    plan = (await house.client.post("/api/v1/spec/plan", json={"source": source})).json()
    applied = await house.client.put("/api/v1/spec", json={**body, "revision": plan["revision"]})
    assert (applied.status_code, applied.json()["told"]) == (200, True)
    assert applied.json()["plan"]["changes"] == plan["changes"]


async def test_one_revision_is_shown_by_its_number_and_the_list_has_no_texts(house):
    await house.apply(SPEC.replace("app Hooks {", "app Hooks { concurrency: 5"))
    (newest, first) = (await house.client.get("/api/v1/spec/history")).json()["items"]
    assert sorted(newest) == ["actor", "applied_at_ms", "file", "revision"]
    shown = (await house.client.get(f"/api/v1/spec/history/{first['revision']}")).json()
    assert (shown["source"], shown["spec"]["app"]) == (SPEC, "Hooks")
    assert (await house.client.get("/api/v1/spec/history/99")).status_code == 404


async def test_a_queue_of_the_spec_that_its_webhook_needs_is_not_deleted_over_http(house):
    refused = await house.client.delete("/api/v1/queues/In")
    assert refused.status_code == 409
    assert "queue `In` belongs to the spec `Hooks`" in refused.json()["detail"]
    assert (await house.hook("Signed", {"a": 1})).status_code == 202
