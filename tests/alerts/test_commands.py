"""`weir alerts` and `weir explain`, on real stores."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from typer.testing import CliRunner

from weir.broker.redis import RedisBroker
from weir.broker.runner import Connection
from weir.cli import alerts, explain
from weir.cli.running import run_until_done
from weir.errors import InvalidInput
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef
from weir.spec.ir import QueueSpec


@pytest.fixture
def receiver() -> Iterator[HTTPServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def scope(
    monkeypatch: pytest.MonkeyPatch,
    redis_url: str,
    database_url: str,
    warehouse_url: str,
    environment: EnvironmentRef,
) -> list[str]:
    """The options that name the test's tenant; the stores come by environment variables."""
    monkeypatch.setenv("WEIR_REDIS_URL", redis_url)
    monkeypatch.setenv("WEIR_POSTGRES_URL", database_url)
    monkeypatch.setenv("WEIR_CLICKHOUSE_URL", warehouse_url)
    monkeypatch.setenv("WEIR_WORKER__ALLOWED_SUBNETS", '["127.0.0.0/8"]')

    async def prepare() -> None:
        broker = RedisBroker(Connection(url=redis_url), shards=4)
        await broker.define(environment.queue("q"), QueueSpec(name="q"))
        await broker.enqueue(environment.queue("q"), [NewMessage(payload=b"x")])
        await broker.pause(environment.queue("q"))
        await broker.aclose()

    run_until_done(prepare())
    return ["-o", environment.organization, "-p", environment.project, "-e", environment.environment]


def invoke(app: object, *arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_channel_is_set_tested_and_told_through(scope: list[str], receiver: HTTPServer) -> None:
    config = json.dumps({"url": f"http://127.0.0.1:{receiver.server_port}/hook"})
    invoke(alerts.app, "set-channel", "ops", "webhook", config, *scope)
    (channel,) = json.loads(invoke(alerts.app, "channels", "--json", *scope))
    assert channel["name"] == "ops"
    tested = json.loads(invoke(alerts.app, "test", "ops", "--json", *scope).splitlines()[-1])
    assert tested["state"] == "delivered"
    (entry,) = json.loads(invoke(alerts.app, "log", "--json", *scope))
    assert entry["deliveries"][0]["status"] == 204


def test_rules_and_silences_come_and_go(scope: list[str]) -> None:
    rule_id = invoke(alerts.app, "create", "deep", "backlog", "gt", "5", "--queue", "q", *scope).strip()
    (rule,) = json.loads(invoke(alerts.app, "rules", "--json", *scope))
    assert (rule["id"], rule["operator"], rule["window_ms"]) == (rule_id, ">", 300_000)
    silence_id = invoke(alerts.app, "silence", "2h", "--queue", "q", *scope).strip()
    invoke(alerts.app, "unsilence", silence_id, *scope)
    assert json.loads(invoke(alerts.app, "silences", "--json", *scope)) == []
    invoke(alerts.app, "delete", rule_id, *scope)
    assert json.loads(invoke(alerts.app, "list", "--json", *scope)) == []
    with pytest.raises(InvalidInput, match="no queue"):
        invoke(alerts.app, "create", "x", "backlog", "gt", "5", "--queue", "nowhere", *scope)


def test_a_queue_is_explained(scope: list[str]) -> None:
    found = json.loads(invoke(explain.app, "q", "--json", *scope))
    assert (found["cause"], found["figures"]["depth"]) == ("paused", 1)
    assert "paused" in invoke(explain.app, "q", *scope)
