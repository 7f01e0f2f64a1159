"""`weir message` over the API: listed, shown, explained, moved and cancelled."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from typer.testing import CliRunner, Result

from support.running_api import RunningApi
from support.waiting import wait_until
from weir import Weir as Client
from weir.cli.message import app
from weir.cli.queue import app as queue_app
from weir.model.names import EnvironmentRef

Weir = Callable[..., Result]


@pytest.fixture
def scope(api: RunningApi, environment: EnvironmentRef) -> list[str]:
    return ["-o", environment.organization, "-p", environment.project, "-e", environment.environment]


@pytest.fixture
def weir(scope: list[str]) -> Weir:
    return lambda *words: CliRunner().invoke(app, [*words, *scope])


@pytest.fixture
def queues(scope: list[str]) -> Weir:
    """`weir queue`, with a queue `mails`."""

    def run(*words: str) -> Result:
        return CliRunner().invoke(queue_app, [*words, *scope])

    assert run("create", "mails").exit_code == 0
    return run


def push(queues: Weir, payload: str, *words: str) -> str:
    done = queues("push", "mails", payload, *words)
    assert done.exit_code == 0, done.output
    return str(done.stdout.split()[0])


def shown(weir: Weir, message_id: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(weir("show", message_id, "--json").stdout)
    return found


def test_messages_are_listed_and_found(weir: Weir, queues: Weir) -> None:
    first = push(queues, '{"order": "seventeen"}', "--key", "c1")
    second = push(queues, '{"order": "eighteen"}', "--key", "c2")
    whole = weir("list", "mails")
    assert [line.split("\t")[0] for line in whole.stdout.splitlines()] == [first, second]
    assert "seventeen" in whole.stdout
    assert "2 ready" in whole.stderr
    by_key = json.loads(weir("list", "mails", "--key", "c2", "--json").stdout)
    assert [one["message_id"] for one in by_key["items"]] == [second]
    assert weir("list", "mails", "--text", "seventeen").stdout.startswith(first)
    assert json.loads(weir("list", "mails", "--state", "leased", "--json").stdout)["items"] == []
    page = weir("list", "mails", "--limit", "1")
    cursor = page.stderr.split("--cursor ")[1].split("`")[0]
    assert weir("list", "mails", "--limit", "1", "--cursor", cursor).stdout.startswith(second)
    assert "Input should be 'ready'" in str(weir("list", "mails", "--state", "odd").exception)
    assert json.loads(weir("list", "mails", "--state", "queued", "--json").stdout)["operations"] == []


def test_a_message_is_shown_and_says_why_it_waits(weir: Weir, queues: Weir) -> None:
    queues("pause", "mails")
    one = push(queues, "[1]", "--key", "k")
    assert shown(weir, one)["state"] == "ready"
    text = weir("show", one).stdout
    assert "key\tk\n" in text
    assert "\tenqueued\tqueue mails" in text
    while not json.loads(weir("why", one, "--json").stdout)["waited_ms"]:
        pass
    assert weir("why", one).stdout.startswith("paused\t")
    assert "nothing is known about message" in str(weir("why", str(uuid4())).exception)


def test_a_message_is_shown_with_its_trace_and_its_relatives(
    weir: Weir, queues: Weir, api: RunningApi, environment: EnvironmentRef
) -> None:
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    headers = {"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"}
    scope = {name: getattr(environment, name) for name in ("organization", "project", "environment")}
    with Client(api.url, token=api.token, **scope) as client:
        parent = client.push("mails", 1, headers=headers).id or ""
        child = client.push("mails", 2, headers={"weir-chained-from": parent}).id or ""
    wait_until(lambda: shown(weir, parent)["children"])
    text = weir("show", parent).stdout
    assert f"child\tchained\tmails\t{child}\t" in text
    assert f"trace {trace_id}\n" in text
    assert f"parent\tchained\t\t{parent}\t" in weir("show", child).stdout


def test_a_message_is_moved(weir: Weir, queues: Weir) -> None:
    one = push(queues, "1")
    assert weir("reschedule", one, "--in", "5m").stdout == f"{one} is rescheduled\n"
    assert shown(weir, one)["state"] == "scheduled"
    assert weir("run", one).stdout == f"{one} is available now\n"
    assert shown(weir, one)["state"] == "ready"
    assert weir("reschedule", one, "--at", "2099-01-31T09:00:00").exit_code == 0
    message = shown(weir, one)["message"]
    assert isinstance(message, dict)
    due_ms = datetime(2099, 1, 31, 9, tzinfo=UTC).timestamp() * 1_000
    assert message["available_at_ms"] == due_ms
    assert json.loads(weir("priority", one, "7", "--json").stdout)["result"] == "done"
    for words in ((), ("--in", "5m", "--at", "2099-01-31"), ("--in", "soon"), ("--at", "noon")):
        assert weir("reschedule", one, *words).exit_code == 1


def test_a_message_is_found_by_its_idempotency_key(
    weir: Weir, queues: Weir, api: RunningApi, environment: EnvironmentRef
) -> None:
    organization, project, name = environment.names
    with Client(
        api.url, token=api.token, organization=organization, project=project, environment=name
    ) as client:
        one = client.push("mails", 1, idempotency_key="order/17").id
    assert weir("find", "mails", "--idempotency-key", "order/17").stdout == f"{one}\n"
    assert weir("find", "mails", "--idempotency-key", "order/18").exit_code == 1


def test_messages_are_cancelled_by_id_and_by_filter(weir: Weir, queues: Weir) -> None:
    one, two = push(queues, "1"), push(queues, "2")
    assert weir("cancel", one, two).stdout == f"{one} is cancelled\n{two} is cancelled\n"
    for number in range(3):
        push(queues, f'{{"n": {number}}}', "--key", "odd" if number % 2 else "even")
    tried = weir("cancel", "--queue", "mails", "--key", "even", "--dry-run")
    assert tried.stdout.endswith("completed: 2 matched of 3\n")
    done = weir("cancel", "--queue", "mails", "--key", "even", "--rate", "1000").stdout
    assert done.endswith("completed: 2 matched of 3, 2 cancelled\n")
    assert weir("cancel", "--queue", "mails", "--older-than", "1h").stdout.endswith("0 cancelled\n")
    assert "say so with `all: true`" in str(weir("cancel", "--queue", "mails").exception)
    every = json.loads(weir("cancel", "--queue", "mails", "--all", "--state", "any", "--json").stdout)
    assert (every["kind"], every["state"], every["done"]) == ("cancel", "completed", 1)
    for words in ((), (one, "--queue", "mails"), (one, "--dry-run")):
        assert weir("cancel", *words).exit_code == 1
