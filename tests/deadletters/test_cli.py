"""`weir dlq` over the API."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.deadletters.world import numbers
from typer.testing import CliRunner, Result

from support.running_api import RunningApi
from weir.broker.broker import Broker
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.cli import dlq
from weir.cli.dlq import verdict
from weir.model.message import Failure, NewMessage
from weir.model.names import EnvironmentRef
from weir.spec.ir import DeliveryPolicy, QueueSpec


class Commands:
    """Runs commands in an environment of their own, and kills messages for them."""

    def __init__(self, environment: EnvironmentRef, redis_url: str) -> None:
        self.environment = environment
        self.redis_url = redis_url
        names = (environment.organization, environment.project, environment.environment)
        self.scope = [word for pair in zip(("-o", "-p", "-e"), names, strict=True) for word in pair]

    def __call__(self, *arguments: str, scoped: bool = True, typed: str | None = None) -> Result:
        return CliRunner().invoke(dlq.app, [*arguments, *(self.scope if scoped else [])], input=typed)

    def with_broker(self, work: Callable[[Broker], Any]) -> Any:
        async def run() -> Any:
            broker = RedisBroker(RedisConnection(url=self.redis_url))
            result = await work(broker)
            await broker.aclose()
            return result

        return asyncio.run(run())

    def kill(self, name: str, count: int, *, before: int = 0, pad: str = "") -> list[str]:
        """Let messages die, and wait until the API carried them to PostgreSQL beside the ones from before."""

        async def work(broker: Broker) -> list[str]:
            queue = self.environment.queue(name)
            await broker.define(queue, QueueSpec(name=name, delivery=DeliveryPolicy(max_attempts=1)))
            messages = [
                NewMessage(payload=json.dumps({"n": n, "pad": pad} if pad else {"n": n}).encode())
                for n in range(count)
            ]
            await broker.enqueue(queue, messages)
            deliveries = await broker.dequeue(queue, consumer="t", limit=count)
            await broker.nack([Failure(lease=one.lease, error="order 17 not found") for one in deliveries])
            return [message.id for message in messages]

        found: list[str] = self.with_broker(work)
        for _ in range(600):
            rows = json.loads(self("status", "--json").stdout)
            if [row["dead_count"] for row in rows if row["queue"] == name] == [before + count]:
                return found
            threading.Event().wait(0.05)
        raise AssertionError("the dead messages did not become dead letters")

    def waiting(self, name: str) -> list[int]:
        async def work(broker: Broker) -> list[bytes]:
            deliveries = await broker.dequeue(self.environment.queue(name), consumer="t", limit=100)
            return [delivery.payload for delivery in deliveries]

        return sorted(numbers(self.with_broker(work)))


@pytest.fixture
def weir(api: RunningApi, environment: EnvironmentRef) -> Commands:
    return Commands(environment, api.redis_url)


def test_counts_groups_and_letters_are_shown(weir: Commands) -> None:
    ids = weir.kill("orders", 3)
    (row,) = json.loads(weir("status", "--json").stdout)
    assert (row["queue"], row["dead_count"]) == ("orders", 3)
    (group,) = json.loads(weir("group", "list", "--json").stdout)
    assert (group["template"], group["dead_count"]) == ("order <n> not found", 3)
    letters = json.loads(weir("list", "orders", "--fingerprint", group["fingerprint"], "--json").stdout)
    assert {letter["id"] for letter in letters} == set(ids)
    shown = json.loads(weir("show", "orders", ids[0], "--json").stdout)
    assert (shown["payload"], shown["redrive_result"]) == ({"n": 0}, None)
    for command in (("status",), ("group", "list"), ("list", "orders"), ("task", "list")):
        assert weir(*command).exit_code == 0


def test_letters_are_redriven_purged_replayed_and_deleted(weir: Commands) -> None:
    ids = weir.kill("orders", 6)
    dry = json.loads(weir("redrive", "--queue", "orders", "--dry-run", "--json").stdout)
    assert (dry["state"], dry["matched"], dry["done"]) == ("completed", 6, 0)
    few = ("--where", "payload.n < 2", "--patch", '{"m": 1}', "--canary", "0", "--yes", "--json")
    done = json.loads(weir("redrive", *few).stdout)
    assert (done["state"], done["done"]) == ("completed", 2)
    assert weir("redrive", "--queue", "orders", "--id", ids[2]).exit_code == 0
    assert weir.waiting("orders") == [0, 1, 2]
    assert weir("delete", "orders", ids[3]).exit_code == 0
    line = weir("purge", "--queue", "orders", "--yes").stdout
    assert "completed: 2 matched of 2, 2 deleted" in line
    assert json.loads(weir("status", "--json").stdout)[0]["dead_count"] == 0
    assert len(json.loads(weir("task", "list", "--json").stdout)) == 3


@pytest.mark.parametrize("verb", ["redrive", "purge"])
def test_everything_at_once_is_asked_about(weir: Commands, verb: str) -> None:
    weir.kill("orders", 3)
    asked = weir(verb, typed="n\n")
    assert asked.exit_code == 1
    assert "3 dead letters of every queue" in asked.output
    assert [one["dry_run"] for one in json.loads(weir("task", "list", "--json").stdout)] == [True]
    assert json.loads(weir(verb, "--dry-run", "--json").stdout)["matched"] == 3
    no_canary = ("--canary", "0") if verb == "redrive" else ()
    assert json.loads(weir(verb, "--yes", *no_canary, "--json").stdout)["done"] == 3


def test_a_redrive_counts_shows_what_its_patch_does_and_asks(weir: Commands) -> None:
    weir.kill("orders", 2)
    command = ("redrive", "--queue", "orders", "--patch", '{"m": payload.n}', "--canary", "0")
    asked = weir(*command, typed="\n")
    assert asked.exit_code == 1
    assert '{"n": 0}\n  becomes {"n": 0, "m": 0}' in asked.stderr
    assert "Send 2 dead letters back?" in asked.stderr
    assert weir.waiting("orders") == []
    assert "2 sent back" in weir(*command, typed="y\n").stdout
    assert weir.waiting("orders") == [0, 1]


def test_a_redrive_sends_ten_first_unless_it_is_told_otherwise(weir: Commands) -> None:
    weir.kill("orders", 12)
    begun = json.loads(weir("redrive", "--queue", "orders", "--yes", "--detach", "--json").stdout)
    assert begun["canary"] == 10
    weir("task", "cancel", begun["id"])


@pytest.mark.parametrize("verb", ["redrive", "purge"])
def test_a_dry_run_is_begun_by_its_id_and_takes_nothing_that_died_later(weir: Commands, verb: str) -> None:
    weir.kill("orders", 2)
    dry = json.loads(weir(verb, "--queue", "orders", "--dry-run", "--json").stdout)
    assert [one["payload"] for one in dry["shown"]] == [{"n": 0}, {"n": 1}]
    weir.kill("orders", 3, before=2)
    no_canary = ("--canary", "0") if verb == "redrive" else ()
    done = json.loads(weir(verb, "--from-dry-run", dry["id"], *no_canary, "--json").stdout)
    assert (done["state"], done["done"]) == ("completed", 2)
    assert json.loads(weir("status", "--json").stdout)[0]["dead_count"] == 3
    refused = weir(verb, "--from-dry-run", dry["id"], "--queue", "orders")
    assert "takes what was counted" in str(refused.exception)


def test_a_detached_task_is_paused_resumed_and_cancelled(weir: Commands) -> None:
    weir.kill("orders", 3)
    slowly = ("redrive", "--queue", "orders", "--rate", "0.001", "--yes", "--detach", "--json")
    task = json.loads(weir(*slowly).stdout)
    assert task["state"] in ("pending", "running")
    assert json.loads(weir("task", "show", task["id"], "--json").stdout)["kind"] == "redrive"
    assert weir("task", "pause", task["id"]).stdout.endswith("paused\n")
    assert weir("task", "resume", task["id"]).stdout.endswith("running\n")
    assert weir("task", "cancel", task["id"]).stdout.endswith("cancelled\n")


def test_bad_input_is_told_with_the_reason(weir: Commands) -> None:
    assert "no queue" in str(weir("redrive", "--queue", "ordres").exception)
    assert weir("redrive", "--where", "payload.").exit_code == 1
    assert weir("show", "orders", "no uuid").exit_code == 1


def test_check_speaks_as_nagios_wants_it(weir: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    weir.kill("orders", 3)
    fine = weir("check", "--warn", "3", "--crit", "5")
    assert (fine.exit_code, fine.stdout) == (
        0,
        "DLQ OK - 3 dead in 1 consumer, most in orders (3) | 'orders'=3;3;5;0\n",
    )
    assert weir("check", "--warn", "2", "--crit", "5").exit_code == 1
    assert weir("check", "--warn", "1", "--crit", "2").exit_code == 2
    assert weir("check", "--warn", "0", "--crit", "0", "--queue", "other").exit_code == 0
    muddled = weir("check", "--warn", "2", "--crit", "1")
    assert muddled.exit_code == 3
    assert "DLQ UNKNOWN - --crit is 1 and below --warn" in muddled.output
    monkeypatch.setenv("WEIR_URL", "http://127.0.0.1:1")
    unknown = weir("check", "--warn", "1", "--crit", "2")
    assert unknown.exit_code == 3
    assert unknown.stdout.startswith("DLQ UNKNOWN - ")


def test_the_worst_consumer_decides_the_check() -> None:
    def row(name: str, dead: int) -> dict[str, Any]:
        return {"queue": name, "channel_id": "c", "consumer_id": name, "dead_count": dead}

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


def test_a_list_goes_on_where_a_page_of_large_letters_ends(weir: Commands) -> None:
    ids = weir.kill("orders", 5, pad="x" * 400_000)
    letters = json.loads(weir("list", "orders", "--json").stdout)
    assert {letter["id"] for letter in letters} == set(ids)
    assert len(json.loads(weir("list", "orders", "--limit", "4", "--json").stdout)) == 4
