"""A data folder of an old release opens with this one: everything is there, and work goes on."""

from __future__ import annotations

import hashlib
import hmac
import json
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from support.old_folder import OldFolder, unpack_old_folder
from support.waiting import wait_until

WEIR = (sys.executable, "-m", "weir.cli")
JSON = {"content-type": "application/json"}
PENDING = {"production": {"mail": 2}, "billing": {"later": 1}}
"""Messages of operations that were queued when the old release stopped."""
TESTED_APART = {("staging", "bounded"), ("staging", "held")}


class Tenant:
    """One environment of the folder, asked with a token of its organization."""

    def __init__(self, url: str, told: dict[str, Any], name: str) -> None:
        self.told: dict[str, Any] = told["environments"][name]
        token = told["tokens"]["globex" if name == "billing" else "acme"]
        scope = {f"weir-{part}": quote(value, safe="") for part, value in self.told["scope"].items()}
        self.http = httpx2.Client(
            base_url=url, headers={"authorization": f"Bearer {token}", **scope}, timeout=30
        )

    def ask(self, method: str, path: str, body: Any = None, *, status: int = 200) -> Any:
        # Spelled as the old release's messages were: an idempotency key goes with the bytes of its payload.
        content = None if body is None else json.dumps(body)
        answer = self.http.request(method, path, content=content, headers=JSON)
        assert answer.status_code == status, answer.text
        return answer.json()

    def state(self, queue: str) -> dict[str, Any]:
        return dict(self.ask("GET", f"/api/v1/queues/{quote(queue, safe='')}"))

    def held(self, queue: str) -> int:
        state = self.state(queue)
        return int(state["depth"] + state["running"])

    def push(self, queue: str, payload: Any, **fields: Any) -> dict[str, Any]:
        items = [{"queue": queue, "payload": payload, **fields}]
        return dict(self.ask("POST", "/api/v1/push", {"items": items}, status=201)["items"][0])

    def pop(self, queue: str, limit: int = 1) -> list[dict[str, Any]]:
        body = {"queue": queue, "limit": limit, "consumer": "test", "lease_ms": 60_000}
        return list(self.ask("POST", "/api/v1/pop", body)["messages"])

    def ack(self, message: dict[str, Any]) -> None:
        self.ask("POST", "/api/v1/ack", {part: message[part] for part in ("queue", "id", "lease")})

    def work_off(self, queue: str) -> list[dict[str, Any]]:
        """Hand out and acknowledge whatever is ready, one message after the other."""
        done = []
        while messages := self.pop(queue):
            done += messages
            self.ack(messages[0])
        return done

    def executed(self) -> set[str]:
        done = self.ask("GET", "/api/v1/operations?status=completed")["operations"]
        return {operation["id"] for operation in done}

    def letters(self, queue: str) -> list[dict[str, Any]]:
        return list(self.ask("GET", f"/api/v1/dlq/letters?queue={queue}&limit=100")["items"])


class Opened:
    """The folder, opened by `weir up` of this release."""

    def __init__(self, folder: OldFolder) -> None:
        self.folder, self.told = folder, folder.told
        command = [*WEIR, "up", "--without", "pipeline", "--json", "--data-dir", str(folder.path)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**folder.environment, "WEIR_API__PORT": "0"}
        )
        assert self.process.stdout is not None
        self.url = str(json.loads(self.process.stdout.readline())["url"])
        self.tenants = {name: Tenant(self.url, self.told, name) for name in self.told["environments"]}

    def close(self) -> int:
        for tenant in self.tenants.values():
            tenant.http.close()
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    target = tmp_path_factory.mktemp("old")
    target.chmod(0o711)
    target.parent.chmod(0o755)
    opened = Opened(unpack_old_folder(target))
    yield opened
    assert opened.close() == 0


@pytest.fixture
def shop(opened: Opened) -> Tenant:
    return opened.tenants["production"]


@pytest.fixture
def staging(opened: Opened) -> Tenant:
    return opened.tenants["staging"]


@pytest.fixture
def billing(opened: Opened) -> Tenant:
    return opened.tenants["billing"]


def test_every_queue_holds_what_it_held_and_what_was_queued_for_it(opened: Opened) -> None:
    for name, tenant in opened.tenants.items():
        for queue, told in tenant.told["queues"].items():
            if (name, queue) in TESTED_APART:
                continue
            held = told["depth"] + told["running"] + PENDING.get(name, {}).get(queue, 0)
            wait_until(lambda: tenant.held(queue) == held, what=f"{held} in `{queue}`")  # noqa: B023
            assert tenant.state(queue)["totals"]["enqueued"] >= told["totals"]["enqueued"]


def test_operations_that_were_queued_are_executed(opened: Opened, shop: Tenant, billing: Tenant) -> None:
    *shops, billings = (answer["operation_id"] for answer in opened.told["pending"])
    wait_until(lambda: set(shops) <= shop.executed(), what="the shop's operation")
    wait_until(lambda: billings in billing.executed(), what="the operation of billing")


def test_an_operation_that_waited_for_room_gets_it(staging: Tenant) -> None:
    found = staging.ask("GET", "/api/v1/operations?queue=bounded")["operations"]
    # It is `processing` for as long as somebody looks whether there is room.
    (waiting,) = [one for one in found if one["status"] in ("pending", "processing")]
    taken = [message["payload"] for message in staging.pop("bounded", limit=1)]
    path = f"/api/v1/operations/{waiting['id']}"
    wait_until(lambda: staging.ask("GET", path)["status"] == "completed", what="the operation")
    taken += [message["payload"] for message in staging.pop("bounded", limit=10)]
    assert taken == [0, 1, 2, 3, 4, 5]


def test_a_fifo_queue_goes_on_where_its_head_was_leased(shop: Tenant) -> None:
    done = shop.work_off("ledger")
    assert [message["payload"]["entry"] for message in done] == [0, 1, 2, 3, 4]
    assert [message["attempt"] for message in done] == [2, 1, 1, 1, 1]


def test_keys_keep_their_order_behind_a_head_that_was_retried(shop: Tenant) -> None:
    orders = defaultdict(list)
    done = shop.work_off("orders")
    for message in done:
        orders[message["key"]].append(message["payload"]["order"])
    assert orders["a"] == orders["b"] == [0, 1, 2, 3]
    assert sorted(orders[None]) == [90, 91, 92]
    (retried,) = [message for message in done if message["attempt"] == 2]
    assert (retried["payload"]["order"], retried["last_error"]) == (0, "out of stock")


def test_leases_lapse_retries_are_due_and_delays_go_on(shop: Tenant) -> None:
    done = shop.work_off("emails")
    assert sorted(message["payload"]["n"] for message in done) == [0, 4, 9, 10, 14, 19]
    assert {message["last_error"] for message in done} >= {"mailbox 17 is full"}
    state = shop.state("emails")
    assert (state["depth"], state["delayed"], state["running"]) == (2, 2, 0)


def test_payloads_headers_and_awkward_names_come_out_as_they_went_in(billing: Tenant) -> None:
    done = billing.work_off("in/voices *")
    keyed = [message["payload"]["invoice"] for message in done if message["key"] == "customer ü"]
    assert keyed == [0, 1, 2]
    noted = [message["payload"] for message in done if message["headers"].get("x-note") == "kept ✓"]
    assert noted == [2**60, "text", None, [1.1]]


def test_an_idempotency_key_is_still_known(opened: Opened, staging: Tenant) -> None:
    known = opened.told["idempotent"]
    answer = staging.push(known["queue"], known["payload"], idempotency_key=known["key"])
    assert (answer["status"], answer["id"]) == ("duplicate", known["id"])


def test_a_paused_queue_stays_paused_until_it_is_resumed(staging: Tenant) -> None:
    assert staging.state("held")["paused"]
    assert staging.pop("held", limit=10) == []
    staging.ask("POST", "/api/v1/queues/held/resume")
    assert len(staging.pop("held", limit=10)) == 4


def test_a_forgotten_queue_goes_on_counting_where_it_stopped(staging: Tenant) -> None:
    staging.ask("PUT", "/api/v1/queues/gone", {}, status=200)
    assert staging.state("gone")["totals"]["acked"] == 4


def test_every_dead_letter_is_there_and_the_outbox_is_emptied(opened: Opened, staging: Tenant) -> None:
    wait_until(lambda: len(staging.letters("short")) == 3, what="the outbox")
    for tenant in opened.tenants.values():
        found = {letter["id"]: letter for queue in tenant.told["dead"] for letter in tenant.letters(queue)}
        for letter_id, told in tenant.told["letters"].items():
            kept = {
                part: value
                for part, value in told.items()
                if part not in ("error", "replay_of", "replay_result")
            }
            assert {**kept, "redrive_of": told["replay_of"]}.items() <= found[letter_id].items()
            # Where the old release had no text, a newer one may have words.
            assert told["error"] in found[letter_id]["error"]


def test_counts_of_the_dead_are_exact(opened: Opened, shop: Tenant) -> None:
    status = shop.ask("GET", "/dlq-status")["consumers"]
    counts = {one["queue"]: one["deadCount"] for one in status if one["environment"] == "production"}
    # Another test may have begun to redrive the imports.
    for queue in ("orders", "outgoing", "payments", "work"):
        assert counts[queue] == shop.told["dead"][queue]


def test_a_paused_redrive_is_cancelled_and_another_sends_its_letters(opened: Opened, shop: Tenant) -> None:
    task = f"/api/v1/dlq/tasks/{opened.told['paused_task']}"
    assert shop.ask("GET", task)["state"] == "paused"
    shop.ask("POST", f"{task}/cancel")
    again = {"filter": {"queue": "imports", "reason": "attempts"}}
    task = f"/api/v1/dlq/tasks/{shop.ask('POST', '/api/v1/dlq/redrives', again, status=202)['id']}"
    wait_until(lambda: shop.ask("GET", task)["state"] == "completed", what="the redrive")
    rows = defaultdict(list)
    for message in shop.work_off("imports"):
        rows[message["key"]].append(message["payload"]["row"])
    assert (rows["k0"], rows["k1"]) == ([0, 2], [1, 3])


def test_the_spec_holds_and_planning_it_again_changes_nothing(opened: Opened, shop: Tenant) -> None:
    assert shop.ask("GET", "/api/v1/spec")["source"] == opened.told["spec"]
    assert len(shop.ask("GET", "/api/v1/spec/history")["items"]) == 2
    body = {"source": opened.told["spec"], "file": "shop.weir"}
    assert shop.ask("POST", "/api/v1/spec/plan", body)["changes"] == []


def test_tokens_hold_as_they_held(opened: Opened) -> None:
    tokens = opened.told["tokens"]
    answers = {
        name: httpx2.get(f"{opened.url}/api/v1/me", headers={"authorization": f"Bearer {tokens[name]}"})
        for name in tokens
    }
    assert {name: answer.status_code for name, answer in answers.items()} == {
        **dict.fromkeys(tokens, 200),
        "revoked": 401,
    }
    assert answers["reader"].json()["role"] == "read"


def test_webhooks_are_received_where_they_were(opened: Opened, shop: Tenant) -> None:
    body = b'{"from": "this release"}'
    secret = "stored, where it was a variable before"
    shop.ask("PUT", "/api/v1/secrets/FIXTURE_HMAC_SECRET", {"value": secret})
    headers = {
        "content-type": "application/json",
        "x-sig": hmac.new(secret.encode(), body, hashlib.sha256).hexdigest(),
    }
    answer = httpx2.post(
        f"{opened.url}{opened.told['hooks']['fixture-plain']}", content=body, headers=headers
    )
    assert answer.status_code == 202, answer.text


def test_channels_take_messages_and_show_their_consumers_letters(opened: Opened) -> None:
    by_channel = {"x-broker-channel-token": opened.told["channel_token"]}
    published = httpx2.post(
        f"{opened.url}/channel/order-events/publish", json={"order": 3}, headers=by_channel
    )
    assert {one["consumerId"] for one in published.json()["consumers"]} == {"payments", "mail"}
    by_consumer = {**by_channel, "x-broker-consumer-token": opened.told["consumer_token"]}
    dead = httpx2.get(f"{opened.url}/channel/order-events/consumer/payments/dlq", headers=by_consumer)
    assert dead.status_code == 200, dead.text


def test_rules_alerts_silences_and_channels_of_alerts_are_there(shop: Tenant, staging: Tenant) -> None:
    for tenant in (shop, staging):
        rules = tenant.ask("GET", "/api/v1/alert-rules")["items"]
        assert [rule["name"] for rule in rules] == tenant.told["rules"]
        alerts = {alert["id"] for alert in tenant.ask("GET", "/api/v1/alerts")["items"]}
        assert alerts >= set(tenant.told["alerts"])
    channels = {one["name"]: one["kind"] for one in shop.ask("GET", "/api/v1/alert-channels")["items"]}
    assert channels == {"ops": "webhook", "old-apprise": "apprise"}


def test_a_message_of_the_old_release_has_its_timeline(shop: Tenant) -> None:
    (letter,) = [one for one in shop.letters("work") if one["payload"]["row"] == 13]
    timeline = shop.ask("GET", f"/api/v1/messages/{letter['id']}/timeline")
    assert (timeline["state"], timeline["items"][-1]["what"]) == ("dead", "died")


def test_charts_of_every_tier_show_what_they_showed(opened: Opened) -> None:
    charts = opened.told["charts"]
    for name, told in charts["enqueued"].items():
        tenant, queue = name.split("/", 1)
        for tier, enqueued in told.items():
            path = f"/api/v1/queues/{quote(queue, safe='')}/metrics?resolution={tier}"
            window = f"&from={charts['from_ms']}&to={charts['to_ms']}"
            points = opened.tenants[tenant].ask("GET", path + window)["timeseries"]
            assert sum(point["throughput"]["enqueued"] or 0 for point in points) == enqueued, (name, tier)


def test_percentiles_of_the_old_release_are_there_and_say_what_they_are(opened: Opened) -> None:
    charts = opened.told["charts"]
    for tier in ("5s", "1m", "1h"):
        window = f"resolution={tier}&from={charts['from_ms']}&to={charts['to_ms']}"
        answer = opened.tenants["production"].ask("GET", f"/api/v1/queues/work/metrics?{window}")
        assert {part["sketch"] for part in answer["percentile_sketches"]} == {"tdigest"}
        waited = [point for point in answer["timeseries"] if point["latency"]["avg_wait_ms"] is not None]
        assert waited
        for point in waited:
            latency = point["latency"]
            assert 0 <= latency["p50_ms"] <= latency["p99_ms"] <= latency["max_wait_ms"]
            # The old release kept the maximum alone.
            assert point["queue_depth"]["max"] is not None
            assert (point["queue_depth"]["min"], point["queue_depth"]["avg"]) == (None, None)
