"""`weir alert`, its rules, channels, silences and notifications, and `weir explain`, over the API."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from typer.testing import CliRunner, Result

from support.running_api import RECEIVER_HOST, RunningApi
from weir.cli.main import app, main
from weir.errors import InvalidInput, NotFound
from weir.model.ids import new_id
from weir.model.names import EnvironmentRef

Weir = Callable[..., Result]


@pytest.fixture
def receiver() -> Iterator[HTTPServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(204 if self.path == "/hook" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer((RECEIVER_HOST, 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def weir(api: RunningApi, environment: EnvironmentRef) -> Weir:
    """Commands about the test's tenant."""
    scope = ["-o", environment.organization, "-p", environment.project, "-e", environment.environment]
    return lambda *words, stdin=None: CliRunner().invoke(app, [*words, *scope], input=stdin)


def document(done: Result) -> Any:
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_channel_is_created_tested_told_through_changed_and_deleted(
    weir: Weir, receiver: HTTPServer
) -> None:
    url = f"http://{RECEIVER_HOST}:{receiver.server_port}"
    made = weir(
        "alert-channel", "create", "ops", "webhook", "--url", f"{url}/hook", "--secret", "-", stdin="s" * 32
    )
    assert made.exit_code == 0, made.output
    assert "weir alert-channel change" in str(weir("alert-channel", "create", "ops", "slack").exception)
    (channel,) = document(weir("alert-channel", "list", "--json"))
    assert (channel["name"], channel["config"]["secrets"]) == ("ops", "********")
    assert document(weir("alert-channel", "test", "ops", "--json"))["state"] == "delivered"
    (entry,) = document(weir("alert-notification", "list", "--json"))
    assert entry["deliveries"][0]["status"] == 204
    assert weir("alert-notification", "list").stdout.startswith("delivered\ttest\tops\t")
    assert weir("alert-channel", "change", "ops", "webhook", "--url", f"{url}/lost").exit_code == 0
    failed = weir("alert-channel", "test", "ops")
    assert (failed.exit_code, "404" in failed.stdout) == (1, True), failed.output
    assert weir("alert-channel", "delete", "ops").exit_code == 0
    assert document(weir("alert-channel", "list", "--json")) == []
    assert isinstance(weir("alert-channel", "change", "ops", "slack").exception, NotFound)


def test_a_rule_is_created_changed_by_its_name_and_deleted(weir: Weir) -> None:
    weir("queue", "create", "q")
    words = ("deep", "backlog", "gt", "5", "--queue", "q", "--window", "90s")
    rule_id = weir("alert-rule", "create", *words).stdout.strip()
    (rule,) = document(weir("alert-rule", "list", "--json"))
    assert (rule["id"], rule["operator"], rule["window_ms"]) == (rule_id, ">", 90_000)
    options = ("--threshold", "7", "--queue", "", "--disabled", "--json")
    changed = document(weir("alert-rule", "change", "deep", *options))
    assert (changed["threshold"], changed["queue"], changed["enabled"]) == (7, None, False)
    assert (changed["metric"], changed["window_ms"]) == ("backlog", 90_000)
    assert document(weir("alert-rule", "show", rule_id, "--json"))["threshold"] == 7
    assert "backlog over 7 messages for 1 min 30 s" in weir("alert-rule", "list").stdout
    assert weir("alert-rule", "delete", "deep").exit_code == 0
    assert document(weir("alert-rule", "list", "--json")) == []
    refused = weir("alert-rule", "create", "x", "backlog", "gt", "5", "--queue", "nowhere").exception
    assert "there is no queue `nowhere`" in str(refused)


def test_a_silence_comes_and_goes(weir: Weir) -> None:
    silence_id = weir("alert-silence", "create", "2h", "--queue", "q", "--comment", "deploy").stdout.strip()
    listed = weir("alert-silence", "list").stdout
    assert (listed.split("\t")[:2], silence_id in listed) == (["every rule", "q"], True)
    assert weir("alert-silence", "delete", silence_id).exit_code == 0
    assert document(weir("alert-silence", "list", "--json")) == []
    assert isinstance(weir("alert-silence", "create", "soon").exception, InvalidInput)


def test_an_alert_is_listed_shown_acknowledged_and_resolved_on_record(
    weir: Weir, api: RunningApi, environment: EnvironmentRef
) -> None:
    weir("alert-rule", "create", "deep", "backlog", "gt", "5", "--disabled")
    (rule,) = document(weir("alert-rule", "list", "--json"))
    alert_id = _fire(api.postgres_url, environment, rule)
    (alert,) = document(weir("alert", "list", "--firing", "--queue", "q", "--json"))
    assert (alert["id"], alert["rule_name"]) == (alert_id, "deep")
    assert alert_id in weir("alert", "list").stdout
    assert weir("alert", "acknowledge", alert_id).exit_code == 0
    shown = document(weir("alert", "show", alert_id, "--json"))
    assert shown["acknowledged_by"].startswith("token:")
    assert "rule name\tdeep" in weir("alert", "show", alert_id).stdout
    assert weir("alert", "resolve", alert_id).exit_code == 0
    assert document(weir("alert", "list", "--firing", "--json")) == []
    entries = document(CliRunner().invoke(app, ["audit", "list", "--json"]))
    mine = [one["action"] for one in entries if one["target"] == alert_id]
    assert mine == ["alert.resolve", "alert.acknowledge"]


def _fire(url: str, environment: EnvironmentRef, rule: dict[str, Any]) -> str:
    """An open alert of a rule, as the evaluator writes it."""
    alert_id = new_id()
    copy = {name: rule[name] for name in ("id", "name", "metric", "operator", "threshold", "window_ms")}
    verdict = {"cause": "paused", "summary": "the queue is paused", "evidence": {}, "also": []}
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO weir.alerts (id, organization, project, environment, rule_id, queue, rule, state,"
            " fired_at_ms, value, peak, cause, verdict)"
            " VALUES (%s, %s, %s, %s, %s, 'q', %s, 'firing', 1700000000000, 9, 9, 'paused', %s)",
            (
                alert_id,
                environment.organization,
                environment.project,
                environment.environment,
                rule["id"],
                Jsonb(copy),
                Jsonb(verdict),
            ),
        )
    return alert_id


def test_the_evaluator_says_when_it_last_evaluated(weir: Weir, api: RunningApi) -> None:
    with psycopg.connect(api.postgres_url, autocommit=True) as connection:
        # The API evaluates twice a minute; a lease that has run out keeps it from nothing.
        connection.execute(
            "INSERT INTO weir.alert_leases (name, holder, token, expires_at_ms, evaluated_at_ms, took_ms)"
            " VALUES ('evaluator', 'somebody', 1, 0, 1700000000000, 12) ON CONFLICT DO NOTHING"
        )
    found = document(weir("alert", "status", "--json"))
    assert (found["age_ms"] >= 0, found["took_ms"] >= 0, bool(found["holder"])) == (True, True, True)
    assert "took\t" in weir("alert", "status").stdout


def test_a_queue_is_explained(weir: Weir) -> None:
    weir("queue", "create", "q")
    weir("queue", "push", "q", "1")
    weir("queue", "pause", "q")
    found = document(weir("explain", "q", "--json"))
    assert (found["cause"], found["figures"]["depth"]) == ("paused", 1)
    text = weir("explain", "q", "--recent", "1m").stdout
    assert "q: paused" in text
    assert "no forecast: how fast messages arrive and leave is not known" in text, "no pipeline runs"
    assert "is not a period" in str(weir("explain", "q", "--recent", "soon").exception)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (["alerts", "set-channel", "ops"], "alert-channel create` or `weir alert-channel change"),
        (["alerts", "rules"], "alert-rule list"),
        (["alerts", "unsilence", "x"], "alert-silence delete"),
        (["alerts"], "alert"),
    ],
)
def test_old_spellings_are_answered_with_the_new_ones(
    old: list[str], new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(old)
    assert f"is now `weir {new}`" in capsys.readouterr().err
