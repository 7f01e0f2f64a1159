"""`weir queue` over the API: looked at, changed, audited, and messages moved by hand."""

from __future__ import annotations

import json

import httpx2
import pytest
from typer.testing import CliRunner, Result

from support.running_api import RunningApi
from support.waiting import wait_until
from weir.cli.api import ApiSession
from weir.cli.dlq import app as dlq
from weir.cli.main import main
from weir.cli.queue import app
from weir.cli.schedule import app as schedule
from weir.errors import InvalidInput
from weir.model.names import EnvironmentRef


class Queues:
    """`weir queue` about one environment."""

    def __init__(self, environment: EnvironmentRef) -> None:
        names = (environment.organization, environment.project, environment.environment)
        self.scope = [word for pair in zip(("-o", "-p", "-e"), names, strict=True) for word in pair]

    def __call__(self, *words: str, stdin: bytes | None = None) -> Result:
        return CliRunner().invoke(app, [*words, *self.scope], input=stdin)


@pytest.fixture
def queues(api: RunningApi, environment: EnvironmentRef) -> Queues:
    return Queues(environment)


def test_a_queue_is_created_changed_shown_listed_and_deleted(queues: Queues) -> None:
    assert (
        queues("create", "mails", "--ordering", "per_key", "--max-depth", "9", "--lease", "2m").exit_code == 0
    )
    assert "weir queue change" in str(queues("create", "mails").exception)
    assert queues("change", "mails", "--concurrency", "4").exit_code == 0
    found = json.loads(queues("show", "mails", "--json").stdout)
    promised = found["definition"]
    assert (promised["ordering"], promised["concurrency"]) == ("per_key", 4)
    assert (promised["retention"]["max_depth"], promised["delivery"]["lease_ms"]) == (9, 120_000)
    assert [one["name"] for one in json.loads(queues("list", "--json").stdout)] == ["mails"]
    assert "mails" in queues("list").stdout
    assert "promises delivery lease" in queues("show", "mails").stdout
    assert queues("delete", "mails").exit_code == 0
    assert json.loads(queues("list", "--json").stdout) == []


def test_a_queue_with_dead_letters_is_deleted_only_with_a_word_about_them(queues: Queues) -> None:
    queues("create", "mails", "--max-attempts", "1")
    queues("push", "mails", "1")
    (message,) = json.loads(queues("pop", "mails", "--json").stdout)
    queues("nack", "mails", message["id"], message["lease"])
    wait_until(lambda: json.loads(CliRunner().invoke(dlq, ["list", "mails", "--json", *queues.scope]).stdout))
    refusal = str(queues("delete", "mails").exception)
    assert "has 1 dead letter; " in refusal
    assert "--dead-letters keep" in refusal
    assert queues("delete", "mails", "--dead-letters", "purge").exit_code == 0
    assert json.loads(queues("list", "--json").stdout) == []


def test_messages_go_in_and_out_with_their_bytes(queues: Queues) -> None:
    queues("create", "q")
    assert queues("push", "q", '{"price": 1.10}', "--key", "k").stdout.endswith(" accepted\n")
    assert queues("push", "q", "-", "--raw", stdin=b"\xff\x00").exit_code == 0
    first, second = json.loads(queues("pop", "q", "--limit", "2", "--json").stdout)
    assert (first["payload"], first["key"]) == ({"price": 1.1}, "k")
    assert second["payload_base64"] == "/wA="
    assert queues("ack", "q", first["id"], first["lease"]).stdout == "acked\n"
    assert queues("nack", "q", second["id"], second["lease"], "--error", "no").exit_code == 0
    # The server remembers what the lease was settled as: a repeated call gets the same answer.
    assert queues("ack", "q", first["id"], first["lease"]).stdout == "acked\n"
    refused = queues("ack", "q", second["id"], second["lease"])
    assert "lease" in str(refused.exception)


def test_a_payload_that_is_not_json_is_refused_unless_it_is_meant(queues: Queues) -> None:
    queues("create", "q")
    broken = queues("push", "q", "{'a': 1}")
    assert isinstance(broken.exception, InvalidInput)
    assert "--raw" in str(broken.exception)
    assert json.loads(queues("pop", "q", "--json").stdout) == []
    assert queues("push", "q", "{'a': 1}", "--raw").exit_code == 0
    assert "{'a': 1}" in queues("pop", "q").stdout


def test_pausing_by_command_is_the_same_act_as_by_http(
    queues: Queues, api: RunningApi, environment: EnvironmentRef
) -> None:
    queues("create", "q")
    assert queues("pause", "q").exit_code == 0
    assert json.loads(queues("show", "q", "--json").stdout)["paused"] is True
    headers = {"authorization": f"Bearer {api.token}"}
    entries = httpx2.get(f"{api.url}/api/v1/audit-log", headers=headers).json()["items"]
    mine = [one["action"] for one in entries if one["organization"] == environment.organization]
    assert mine[:2] == ["queue.pause", "queue.define"]
    assert queues("resume", "q").exit_code == 0


@pytest.mark.parametrize("old", ["define", "forget"])
def test_an_old_spelling_is_answered_with_the_new_one(old: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["queue", old, "q"])
    assert "is now `weir queue" in capsys.readouterr().err


def test_a_full_queue_refuses_and_a_paused_one_keeps_its_messages(queues: Queues) -> None:
    queues("create", "q", "--max-depth", "1")
    queues("push", "q", "1")
    assert "full" in str(queues("push", "q", "2").exception)
    queues("pause", "q")
    assert queues("pop", "q").stdout == ""
    queues("resume", "q")
    assert queues("pop", "q").stdout.endswith(": 1\n")


def test_a_change_by_command_overwrites_no_change_that_came_after_it_read(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues("create", "q")
    schedules = CliRunner().invoke
    made = schedules(schedule, ["create", "often", "--queue", "q", "--every", "1h", *queues.scope])
    assert made.exit_code == 0, made.output
    get = ApiSession.get

    async def get_and_change(self: ApiSession, *path: str, **query: object) -> dict[str, object]:
        found = await get(self, *path, **query)
        if path == ("schedules", "often"):
            await self.put(*path, body={"queue": "q", "every_ms": 7_200_000})
        return found

    monkeypatch.setattr(ApiSession, "get", get_and_change)
    late = schedules(schedule, ["change", "often", "--overlap", "skip", *queues.scope])
    assert "was changed meanwhile (`every_ms`)" in str(late.exception)
