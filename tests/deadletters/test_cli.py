"""`weir dlq` on real stores."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.deadletters.world import numbers
from typer.testing import CliRunner, Result

from weir.broker.broker import Broker
from weir.broker.redis import RedisBroker
from weir.broker.runner import Connection
from weir.cli import dlq
from weir.cli.dlq import verdict
from weir.control.database import Database
from weir.deadletters.mover import Mover
from weir.deadletters.summary import ConsumerStatus
from weir.errors import InvalidInput, NotFound
from weir.model.message import Failure, NewMessage
from weir.model.names import EnvironmentRef
from weir.spec.ir import DeliveryPolicy, QueueSpec


class Commands:
    """Runs commands in an environment of their own, and kills messages for them."""

    def __init__(self, environment: EnvironmentRef, redis_url: str, database_url: str) -> None:
        self.environment = environment
        self.redis_url = redis_url
        self.database_url = database_url
        self.scope = [
            "-o",
            environment.organization,
            "-p",
            environment.project,
            "-e",
            environment.environment,
        ]

    def __call__(self, *arguments: str, app: Any = dlq.app, scoped: bool = True) -> Result:
        scope = self.scope if scoped else []
        runner = CliRunner()
        return runner.invoke(app, [*arguments, *scope], catch_exceptions=True)

    def with_broker(self, work: Callable[[Broker, Database], Any]) -> Any:
        async def run() -> Any:
            broker = RedisBroker(Connection(url=self.redis_url))
            async with Database(self.database_url, max_size=2) as database:
                result = await work(broker, database)
            await broker.aclose()
            return result

        return asyncio.run(run())

    def kill(self, name: str, count: int) -> list[str]:
        async def work(broker: Broker, database: Database) -> list[str]:
            queue = self.environment.queue(name)
            await broker.define(queue, QueueSpec(name=name, delivery=DeliveryPolicy(max_attempts=1)))
            messages = [NewMessage(payload=json.dumps({"n": n}).encode()) for n in range(count)]
            await broker.enqueue(queue, messages)
            deliveries = await broker.dequeue(queue, consumer="t", limit=count)
            await broker.nack([Failure(lease=one.lease, error="order 17 not found") for one in deliveries])
            mover = Mover(broker, database)
            while await mover.round():
                pass
            return [message.id for message in messages]

        found: list[str] = self.with_broker(work)
        return found

    def waiting(self, name: str) -> list[int]:
        async def work(broker: Broker, _: Database) -> list[bytes]:
            deliveries = await broker.dequeue(self.environment.queue(name), consumer="t", limit=100)
            return [delivery.payload for delivery in deliveries]

        return sorted(numbers(self.with_broker(work)))


@pytest.fixture
def weir(
    environment: EnvironmentRef, redis_url: str, shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> Commands:
    monkeypatch.setenv("WEIR_REDIS_URL", redis_url)
    monkeypatch.setenv("WEIR_POSTGRES_URL", shared_url)
    monkeypatch.setenv("WEIR_CLICKHOUSE_URL", "http://127.0.0.1:1/none")
    return Commands(environment, redis_url, shared_url)


def test_counts_groups_and_letters_are_shown(weir: Commands) -> None:
    ids = weir.kill("orders", 3)
    (row,) = json.loads(weir("status", "--json").stdout)
    assert (row["queue"], row["dead_count"]) == ("orders", 3)
    (group,) = json.loads(weir("groups", "--json").stdout)
    assert (group["template"], group["dead_count"]) == ("order <n> not found", 3)
    letters = json.loads(weir("list", "orders", "--fingerprint", group["fingerprint"], "--json").stdout)
    assert {letter["id"] for letter in letters} == set(ids)
    shown = json.loads(weir("show", "orders", ids[0]).stdout)
    assert (shown["payload"], shown["replay_result"]) == ({"n": 0}, None)
    for command in (("status",), ("groups",), ("list", "orders"), ("tasks",)):
        assert weir(*command).exit_code == 0


def test_letters_are_redriven_purged_replayed_and_deleted(weir: Commands) -> None:
    ids = weir.kill("orders", 6)
    dry = json.loads(weir("redrive", "--queue", "orders", "--dry-run", "--json").stdout)
    assert (dry["state"], dry["matched"], dry["done"]) == ("completed", 6, 0)
    done = json.loads(weir("redrive", "--where", "payload.n < 2", "--patch", '{"m": 1}', "--json").stdout)
    assert (done["state"], done["done"]) == ("completed", 2)
    assert weir("replay", "orders", ids[2]).exit_code == 0
    assert weir.waiting("orders") == [0, 1, 2]
    assert weir("delete", "orders", ids[3]).exit_code == 0
    refused = weir("purge", "--queue", "orders")
    assert refused.exit_code == 1
    line = weir("purge", "--queue", "orders", "--yes").stdout
    assert "completed: 2 matched of 2, 2 deleted" in line
    assert json.loads(weir("status", "--json").stdout)[0]["dead_count"] == 0
    assert len(json.loads(weir("tasks", "--json").stdout)) == 3


@pytest.mark.parametrize("verb", ["redrive", "purge"])
def test_everything_at_once_is_asked_about(weir: Commands, verb: str) -> None:
    weir.kill("orders", 3)
    asked = weir(verb)
    assert asked.exit_code == 1
    assert "of every queue" in asked.output
    assert json.loads(weir("tasks", "--json").stdout) == []
    assert json.loads(weir(verb, "--dry-run", "--json").stdout)["matched"] == 3
    assert json.loads(weir(verb, "--yes", "--json").stdout)["done"] == 3


def test_a_detached_task_is_paused_resumed_and_cancelled(weir: Commands) -> None:
    weir.kill("orders", 1)
    task = json.loads(weir("redrive", "--queue", "orders", "--detach", "--json").stdout)
    assert task["state"] == "pending"
    assert weir("pause", task["id"]).stdout.endswith("paused\n")
    assert weir("resume", task["id"]).stdout.endswith("running\n")
    assert weir("cancel", task["id"]).stdout.endswith("cancelled\n")


def test_bad_input_is_an_error_of_the_tree(weir: Commands) -> None:
    assert isinstance(weir("redrive", "--queue", "ordres").exception, NotFound)
    assert isinstance(weir("redrive", "--where", "payload.").exception, InvalidInput)
    assert isinstance(weir("show", "orders", "no uuid").exception, InvalidInput)


def test_check_speaks_as_nagios_wants_it(weir: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    weir.kill("orders", 3)
    fine = weir("check", "--warn", "3", "--crit", "5")
    assert (fine.exit_code, fine.stdout) == (
        0,
        "DLQ OK - 3 dead in 1 consumers, most in orders (3) | 'orders'=3;3;5;0\n",
    )
    assert weir("check", "--warn", "2", "--crit", "5").exit_code == 1
    assert weir("check", "--warn", "1", "--crit", "2").exit_code == 2
    assert weir("check", "--warn", "0", "--crit", "0", "--queue", "other").exit_code == 0
    muddled = weir("check", "--warn", "2", "--crit", "1")
    assert muddled.exit_code == 3
    assert "DLQ UNKNOWN - --crit is 1 and below --warn" in muddled.output
    monkeypatch.setenv("WEIR_POSTGRES_URL", "postgresql://nobody@127.0.0.1:1/none")
    unknown = weir("check", "--warn", "1", "--crit", "2")
    assert unknown.exit_code == 3
    assert unknown.stdout.startswith("DLQ UNKNOWN - ")


def test_the_worst_consumer_decides_the_check() -> None:
    def row(name: str, dead: int) -> ConsumerStatus:
        return ConsumerStatus(
            organization="o", project="p", environment="e", queue=name, channel_id="c", channel_name="C",
            consumer_id=name, consumer_name=name, dead_count=dead, last_checked_at_ms=0,
        )  # fmt: skip

    code, line = verdict([row("a", 1), row("b'=", 11)], warn=5, crit=10)
    assert code == 2
    assert (
        line == "DLQ CRITICAL - 12 dead in 2 consumers, most in c/b_ (11) | 'c/a'=1;5;10;0 'c/b_'=11;5;10;0"
    )
    assert verdict([], warn=0, crit=0) == (0, "DLQ OK - 0 dead in 0 consumers")


def test_the_audit_prints_its_drift(weir: Commands) -> None:
    weir.kill("orders", 2)
    found = weir("audit", "--json", scoped=False)
    assert json.loads(found.stdout)["drift"] == 0
    assert found.exit_code == 0
