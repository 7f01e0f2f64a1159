"""`weir queue log` over the API: read by key and CEL, and replayed as a task."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing

import pytest
from typer.testing import CliRunner, Result

from support.lives import emitted_log, land_log
from support.running_api import RunningApi
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.cli.main import main
from weir.cli.queue import app
from weir.model.names import EnvironmentRef
from weir.settings import Settings
from weir.warehouse.connection import ClickHouseConnection


class LoggedQueues:
    """`weir queue` about one environment, and the rows that its pipeline would land."""

    def __init__(self, api: RunningApi, environment: EnvironmentRef) -> None:
        self._api = api
        self._environment = environment
        names = (environment.organization, environment.project, environment.environment)
        self._scope = [word for pair in zip(("-o", "-p", "-e"), names, strict=True) for word in pair]

    def __call__(self, *words: str) -> Result:
        return CliRunner().invoke(app, [*words, *self._scope])

    def end(self, queue: str, payload: str, *words: str) -> None:
        """Push a message, and settle it as done."""
        assert self("push", queue, payload, *words).exit_code == 0
        (taken,) = json.loads(self("pop", queue, "--json").stdout)
        assert self("ack", queue, taken["id"], taken["lease"]).exit_code == 0

    def land(self, queue: str) -> None:
        asyncio.run(self._land(queue))

    async def _land(self, queue: str) -> None:
        broker = RedisBroker(RedisConnection(url=self._api.redis_url), shards=Settings().shards)
        messages = await emitted_log(broker, self._environment.queue(queue))
        await broker.aclose()
        with closing(ClickHouseConnection(self._api.clickhouse_url)) as connection:
            land_log(connection, messages)


@pytest.fixture
def queues(api: RunningApi, environment: EnvironmentRef) -> LoggedQueues:
    queues = LoggedQueues(api, environment)
    assert queues("create", "orders", "--log", "30d").exit_code == 0
    return queues


def test_the_log_of_a_queue_is_read_by_key_and_by_an_expression(queues: LoggedQueues) -> None:
    for number, key in enumerate(("ann", "bob", "ann")):
        queues.end("orders", json.dumps({"order": number}), "--key", key)
    queues.land("orders")
    whole = json.loads(queues("log", "read", "orders", "--json").stdout)
    assert [one["payload"] for one in whole["items"]] == [{"order": 0}, {"order": 1}, {"order": 2}]
    assert '{"order": 1}' in queues("log", "read", "orders", "--key", "bob").stdout
    late = queues("log", "read", "orders", "--where", "payload.order > 1", "--from", "1h").stdout
    assert '{"order": 2}' in late
    assert '{"order": 0}' not in late
    page = queues("log", "read", "orders", "--limit", "1")
    cursor = page.stderr.split("--cursor ")[1].split("`")[0]
    assert '{"order": 1}' in queues("log", "read", "orders", "--limit", "1", "--cursor", cursor).stdout


def test_a_queue_without_a_log_says_how_to_begin_one(queues: LoggedQueues) -> None:
    queues("create", "mails")
    assert "weir queue change mails --log 30d" in queues("log", "read", "mails").stderr


@pytest.mark.parametrize("old", [["--to", "again"], ["--to=again"]])
def test_the_old_spelling_of_into_answers_with_the_new_one(
    old: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["queue", "log", "replay", "orders", *old, "--all"])
    assert ended.value.code == 2
    assert "`--to` of `weir queue log replay` is now `--into`" in capsys.readouterr().err


def test_a_replay_is_a_task_of_the_servers_and_bad_ones_are_refused(queues: LoggedQueues) -> None:
    queues("create", "again")
    begun = queues("log", "replay", "orders", "--into", "again", "--all", "--dry-run", "--detach", "--json")
    task = json.loads(begun.stdout)
    assert (task["kind"], task["dry_run"]) == ("replay", True)
    assert "is not a CEL expression" in str(queues("log", "read", "orders", "--where", "payload.").exception)
    assert "nowhere" in str(queues("log", "replay", "orders", "--into", "nowhere", "--all").exception)
