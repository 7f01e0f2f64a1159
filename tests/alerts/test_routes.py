"""Alerts over HTTP: rules, channels, silences, what was raised, and nothing of another tenant."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from alerts.post import KEYS
from alerts.simulation import HOUR, MINUTE, T0, Simulation, Story, StoryHistory
from weir.alerts.alert_metrics import Metric
from weir.alerts.notifications import MAX_TESTS
from weir.alerts.rules import AlertRules, sync_from_spec
from weir.alerts.services import alert_services
from weir.api.app import create_app
from weir.api.services import Services
from weir.control.audit_log import AuditLog
from weir.control.database import Database
from weir.control.principals import Principal, Role
from weir.errors import Unauthenticated
from weir.exchange.attempt import DirectPusher
from weir.exchange.settle import DirectSettler
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef
from weir.spec.ir import AlertSpec, QueueSpec
from weir.testing.memory import MemoryBroker

RULE = {"name": "deep", "metric": "backlog", "operator": ">", "threshold": 100}


class Tokens:
    """A token is a role's name; the tenant is the test's."""

    def __init__(self, environment: EnvironmentRef) -> None:
        self.environment = environment

    async def authenticate(self, text: str) -> Principal:
        role, _, organization = text.partition(":")
        if role not in tuple(Role):
            raise Unauthenticated("no such token")
        scope = self.environment
        return Principal(
            token_id=text,
            role=Role(role),
            organization=organization or scope.organization,
            project=scope.project,
            environment=scope.environment,
        )

    def forget(self, token_id: str) -> None: ...


class Caller:
    def __init__(self, client: httpx2.AsyncClient, token: str) -> None:
        self._client, self._headers = client, {"authorization": f"Bearer {token}"}

    async def __call__(self, method: str, path: str, body: Any = None) -> httpx2.Response:
        return await self._client.request(method, f"/api/v1{path}", json=body, headers=self._headers)


@pytest.fixture
async def simulation(database: Database, environment: EnvironmentRef) -> Simulation:
    return Simulation(database, environment, Story(depth={"q": lambda _: 500}))


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
async def client(
    simulation: Simulation, environment: EnvironmentRef, broker: MemoryBroker
) -> AsyncIterator[httpx2.AsyncClient]:
    await broker.define(environment.queue("q"), QueueSpec(name="q"))
    room = alert_services(
        simulation.database, broker, simulation.warehouse, keys=KEYS, clock=simulation.clock
    )
    services = Services(
        broker=broker,
        authenticator=Tokens(environment),
        pusher=DirectPusher(broker),
        settler=DirectSettler(broker),
        alerts=room,
        audit=AuditLog(simulation.database, clock=simulation.clock),
        clock=simulation.clock,
    )
    transport = httpx2.ASGITransport(app=create_app(services))
    async with httpx2.AsyncClient(transport=transport, base_url="http://weir") as client:
        yield client


@pytest.fixture
def admin(client: httpx2.AsyncClient) -> Caller:
    return Caller(client, "admin")


async def test_a_rule_is_created_shown_changed_and_deleted(admin: Caller) -> None:
    created = await admin("POST", "/alert-rules", RULE)
    assert created.status_code == 201, created.text
    rule_id = created.json()["id"]
    assert (await admin("POST", "/alert-rules", RULE)).status_code == 409
    changed = await admin("PUT", f"/alert-rules/{rule_id}", {**RULE, "threshold": 7})
    assert changed.json()["threshold"] == 7
    assert [rule["id"] for rule in (await admin("GET", "/alert-rules")).json()["items"]] == [rule_id]
    assert (await admin("DELETE", f"/alert-rules/{rule_id}")).status_code == 204
    assert (await admin("GET", f"/alert-rules/{rule_id}")).status_code == 404


async def test_a_rule_that_makes_no_sense_is_a_problem(admin: Caller) -> None:
    for change in (
        {"queue": "nowhere"},
        {"channels": ["nobody"]},
        {"threshold": -1},
        {"threshold": "many"},
        {"window_ms": 0},
        {"window_ms": 29_000},
        {"window_ms": 31_536_000_000},
        {"metric": "mood"},
        {"operator": "~"},
        {"extra": 1},
        {"name": "\u0000"},
    ):
        response = await admin("POST", "/alert-rules", {**RULE, **change})
        assert (response.status_code, response.json()["code"]) == (422, "invalid_input"), change


async def test_a_threshold_that_is_no_number_in_json_is_a_problem(client: httpx2.AsyncClient) -> None:
    for text in ("NaN", "Infinity", "1e999", "-Infinity"):
        body = '{"name": "x", "metric": "backlog", "operator": ">", "threshold": ' + text + "}"
        headers = {"authorization": "Bearer admin", "content-type": "application/json"}
        response = await client.post("/api/v1/alert-rules", content=body, headers=headers)
        assert response.status_code == 422, text


async def test_an_alert_is_listed_acknowledged_and_resolved(admin: Caller, simulation: Simulation) -> None:
    await admin("POST", "/alert-rules", RULE)
    await simulation.run(10 * MINUTE)
    (alert,) = (await admin("GET", "/alerts?state=active")).json()["items"]
    assert (alert["rule_name"], alert["queue"], alert["value"]) == ("deep", "q", 500)
    seen = await admin("POST", f"/alerts/{alert['id']}/acknowledge")
    assert seen.json()["acknowledged_by"] == "token:admin"
    over = await admin("POST", f"/alerts/{alert['id']}/resolve")
    assert over.json()["state"] == "resolved"
    assert [line["event"] for line in over.json()["timeline"]] == ["fired", "acknowledged", "resolved"]
    assert (await admin("POST", f"/alerts/{alert['id']}/resolve")).status_code == 409
    assert (await admin("GET", "/alerts?state=firing")).json()["items"] == []


async def test_channels_are_checked_masked_and_tested(admin: Caller) -> None:
    private = {"kind": "webhook", "config": {"url": "http://169.254.169.254/"}}
    assert (await admin("PUT", "/alert-channels/ops", private)).status_code == 422
    slack = {"kind": "slack", "config": {"url": "https://hooks.slack.com/services/T/B/secret"}}
    assert (await admin("PUT", "/alert-channels/ops", slack)).status_code == 200
    listed = (await admin("GET", "/alert-channels")).text
    assert "secret" not in listed
    fired = await admin("POST", "/alert-channels/ops/test")
    assert fired.status_code == 202
    (entry,) = (await admin("GET", "/alert-notifications")).json()["items"]
    assert (entry["id"], entry["kind"], entry["state"]) == (
        fired.json()["notification_id"],
        "test",
        "waiting",
    )
    assert (await admin("POST", "/alert-channels/none/test")).status_code == 404
    answers = [await admin("POST", "/alert-channels/ops/test") for _ in range(MAX_TESTS)]
    assert [one.status_code for one in answers] == [202] * (MAX_TESTS - 1) + [429]
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
    assert (await admin("DELETE", "/alert-channels/ops")).status_code == 204


async def test_silences_begin_and_end(admin: Caller) -> None:
    made = await admin("POST", "/alert-silences", {"for_ms": HOUR, "queue": "q", "comment": "deploy"})
    assert made.status_code == 201
    assert len((await admin("GET", "/alert-silences")).json()["items"]) == 1
    assert (await admin("DELETE", f"/alert-silences/{made.json()['id']}")).status_code == 204
    assert (await admin("DELETE", f"/alert-silences/{made.json()['id']}")).status_code == 404
    assert (await admin("POST", "/alert-silences", {"for_ms": 0})).status_code == 422


async def test_a_reader_may_look_and_not_touch(client: httpx2.AsyncClient) -> None:
    reader, writer = Caller(client, "read"), Caller(client, "write")
    assert (await reader("GET", "/alert-rules")).status_code == 200
    assert (await reader("POST", "/alert-rules", RULE)).status_code == 403
    slack = {"kind": "slack", "config": {"url": "https://hooks.slack.com/services/T"}}
    assert (await writer("PUT", "/alert-channels/ops", slack)).status_code == 403


async def test_another_tenant_sees_and_changes_nothing(
    client: httpx2.AsyncClient, admin: Caller, simulation: Simulation
) -> None:
    rule = (await admin("POST", "/alert-rules", RULE)).json()
    slack = {"kind": "slack", "config": {"url": "https://hooks.slack.com/services/T"}}
    await admin("PUT", "/alert-channels/ops", slack)
    await admin("POST", "/alert-channels/ops/test")
    silence = (await admin("POST", "/alert-silences", {"for_ms": HOUR})).json()
    await simulation.run(10 * MINUTE)
    (alert,) = (await admin("GET", "/alerts")).json()["items"]
    other = Caller(client, "admin:other")
    for noun in ("alert-rules", "alerts", "alert-channels", "alert-silences", "alert-notifications"):
        assert (await other("GET", f"/{noun}")).json() == {"items": []}
    for method, path, body in (
        ("GET", f"/alert-rules/{rule['id']}", None),
        ("PUT", f"/alert-rules/{rule['id']}", RULE),
        ("DELETE", f"/alert-rules/{rule['id']}", None),
        ("GET", f"/alerts/{alert['id']}", None),
        ("POST", f"/alerts/{alert['id']}/acknowledge", None),
        ("POST", f"/alerts/{alert['id']}/resolve", None),
        ("POST", "/alert-channels/ops/test", None),
        ("DELETE", "/alert-channels/ops", None),
        ("DELETE", f"/alert-silences/{silence['id']}", None),
        ("GET", "/queues/q/explain", None),
    ):
        assert (await other(method, path, body)).status_code == 404, (method, path)


async def test_the_evaluator_is_shown_and_its_process_to_admins_alone(
    client: httpx2.AsyncClient, admin: Caller, simulation: Simulation
) -> None:
    assert (await admin("GET", "/alert-evaluator")).status_code == 404
    await simulation.run(MINUTE)
    found = (await admin("GET", "/alert-evaluator")).json()
    assert (found["evaluated_at_ms"] > 0, bool(found["holder"])) == (True, True)
    reader = Caller(client, "read")
    assert (await reader("GET", "/alert-evaluator")).json() == {**found, "holder": None}


async def test_acknowledging_resolving_and_testing_are_on_record(
    admin: Caller, simulation: Simulation
) -> None:
    slack = {"kind": "slack", "config": {"url": "https://hooks.slack.com/services/T"}}
    await admin("PUT", "/alert-channels/ops", slack)
    await admin("POST", "/alert-channels/ops/test")
    await admin("POST", "/alert-rules", RULE)
    await simulation.run(10 * MINUTE)
    (alert,) = (await admin("GET", "/alerts")).json()["items"]
    for verb in ("acknowledge", "resolve"):
        await admin("POST", f"/alerts/{alert['id']}/{verb}")
    actions = [entry["action"] for entry in (await admin("GET", "/audit-log")).json()["items"]]
    assert actions[:2] == ["alert.resolve", "alert.acknowledge"]
    assert "alert_channel.test" in actions


async def test_a_queue_is_explained(admin: Caller) -> None:
    found = (await admin("GET", "/queues/q/explain")).json()
    assert (found["cause"], found["drain_ms"], found["expiring"]) == ("healthy", 0, 0)
    assert found["evidence"]
    assert all(isinstance(line, str) for line in found["evidence"])
    assert found["outlook"] == "empty now; 0/s arrive, 0/s leave"
    assert {"what": "waiting", "now": "0 messages", "usual": None} in found["evidence_table"]
    assert (found["backed_up"], found["recovered"], found["recovered_at_ms"]) == (False, None, None)
    assert (await admin("GET", "/queues/nowhere/explain")).status_code == 404
    for recent, status in (
        ("15s", 200),
        ("15m", 200),
        ("14s", 422),
        ("16m", 422),
        ("soon", 422),
        ("5 m", 422),
    ):
        assert (await admin("GET", f"/queues/q/explain?recent={recent}")).status_code == status, recent


async def test_a_queue_that_recovered_says_so_and_since_when(admin: Caller, simulation: Simulation) -> None:
    simulation.warehouse.history = StoryHistory(
        Story(depth={}, oldest_age_ms={"q": lambda at: 90_000 if at < 10 * MINUTE else 0}), simulation.clock
    )
    simulation.clock.advance(14 * MINUTE)
    found = (await admin("GET", "/queues/q/explain")).json()
    assert (found["backed_up"], found["recovered_at_ms"]) == (False, T0 + 10 * MINUTE)
    assert found["recovered"].startswith("recovered 4 min ago, at ")
    assert found["recovered"].endswith("messages had waited up to 1 min 30 s")


async def test_a_paused_queue_is_backed_up_only_while_something_waits_in_it(
    admin: Caller, broker: MemoryBroker, environment: EnvironmentRef
) -> None:
    queue = environment.queue("q")
    await broker.pause(queue)
    found = (await admin("GET", "/queues/q/explain")).json()
    assert (found["cause"], found["backed_up"]) == ("paused", False)
    assert found["summary"] == "the queue is paused; nothing waits for `resume`"
    await broker.enqueue(queue, [NewMessage(payload=b"{}")])
    found = (await admin("GET", "/queues/q/explain")).json()
    assert (found["cause"], found["backed_up"]) == ("paused", True)
    assert found["summary"] == "the queue is paused; 1 message waits for `resume`"


async def test_rates_of_which_no_telemetry_has_arrived_are_null(
    admin: Caller, broker: MemoryBroker, environment: EnvironmentRef
) -> None:
    await broker.enqueue(environment.queue("q"), [NewMessage(payload=b"{}")])
    found = (await admin("GET", "/queues/q/explain")).json()
    assert found["cause"] == "telemetry_stale"
    names = ("arriving_per_s", "leaving_per_s", "drain_ms", "expiring")
    assert {found[name] for name in names} == {found["figures"]["enqueued"]} == {None}
    assert found["outlook"] == "no forecast: how fast messages arrive and leave is not known"
    assert {"what": "arrive", "now": "not known", "usual": None} in found["evidence_table"]


async def test_the_metrics_of_rules_are_listed_with_their_words_and_units(admin: Caller) -> None:
    found = {one["name"]: one for one in (await admin("GET", "/alert-metrics")).json()["items"]}
    assert set(found) == set(Metric)
    assert (found["latency_p95"]["words"], found["latency_p95"]["unit"]) == ("p95 wait", "ms")


async def test_a_rule_says_when_it_fires_in_words(admin: Caller) -> None:
    made = (await admin("POST", "/alert-rules", {**RULE, "window_ms": 60_000})).json()
    assert made["condition"] == "backlog over 100 messages for 1 minute"


async def test_rules_follow_the_applied_spec_and_leave_those_of_the_api_alone(
    database: Database, environment: EnvironmentRef, admin: Caller
) -> None:
    await admin("POST", "/alert-rules", {**RULE, "name": "by hand"})
    first = AlertSpec(name="a", metric="backlog", operator=">", threshold=5)
    second = AlertSpec(name="b", metric="latency_p95", operator=">", threshold=100, queue="q")

    async def apply(*alerts: AlertSpec) -> dict[str, Any]:
        async with database.transaction() as connection:
            await sync_from_spec(connection, environment, alerts, now_ms=1)
        return {rule.draft.name: rule for rule in await AlertRules(database).of(environment)}

    before = await apply(first, second)
    assert set(before) == {"by hand", "a", "b"}
    after = await apply(replace(first, threshold=9))
    assert set(after) == {"by hand", "a"}
    assert (after["a"].id, after["a"].draft.threshold) == (before["a"].id, 9)


async def test_rules_are_listed_while_a_spec_is_applied(
    database: Database, environment: EnvironmentRef, admin: Caller
) -> None:
    alert = AlertSpec(name="a", metric="backlog", operator=">", threshold=5)
    await admin("POST", "/alert-rules", {**RULE, "name": "by hand"})
    async with database.transaction() as connection, asyncio.timeout(5):
        await sync_from_spec(connection, environment, [alert], now_ms=1)
        found = (await admin("GET", "/alert-rules")).json()["items"]
    assert [rule["name"] for rule in found] == ["by hand"]


async def test_an_apprise_channel_is_refused_while_apprise_is_not_allowed(admin: Caller) -> None:
    body = {"kind": "apprise", "config": {"url": "json://localhost"}}
    refused = await admin("PUT", "/alert-channels/ops", body)
    assert (refused.status_code, "WEIR_ALERTS__ALLOW_APPRISE" in refused.text) == (422, True)
    assert (await admin("GET", "/alert-channels")).json()["items"] == []
