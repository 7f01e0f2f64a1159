"""`weir queue` moves messages by hand."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from uuid import uuid4

import pytest
from typer.testing import CliRunner, Result

from weir.cli.queue import app
from weir.errors import LeaseLost, NotFound, QueueFull

Run = Callable[..., Result]


@pytest.fixture
def run(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("WEIR_REDIS_URL", redis_url)
    organization = uuid4().hex

    def command(
        verb: str, *args: str, fails: type[Exception] | None = None, data: bytes | None = None
    ) -> Result:
        result = CliRunner().invoke(app, [verb, *args, "-o", organization], input=data)
        if fails is None:
            assert result.exit_code == 0, result.exception
        else:
            assert isinstance(result.exception, fails), result.exception
        return result

    return command


def test_a_message_is_pushed_popped_and_acknowledged(run: Run) -> None:
    run("define", "a:b", "--max-depth", "1")
    run("push", "a:b", "hello", "--key", "k")
    run("push", "a:b", "more", fails=QueueFull)
    (state,) = json.loads(run("list", "--json").stdout)
    assert (state["queue"], state["depth"], state["odometers"]["refused"]) == ("a:b", 1, 1)
    (got,) = json.loads(run("pop", "a:b", "--json").stdout)
    assert (got["payload"], got["key"], got["attempt"]) == ("hello", "k", 1)
    assert run("ack", "a:b", got["message_id"], got["token"]).stdout == "done\n"
    run("ack", "a:b", got["message_id"], got["token"], fails=LeaseLost)
    assert json.loads(run("show", "a:b", "--json").stdout)["odometers"]["acked"] == 1
    run("forget", "a:b")
    run("show", "a:b", fails=NotFound)


def test_a_payload_that_is_no_text_comes_out_exactly(run: Run) -> None:
    run("define", "work")
    run("push", "work", "-", data=b"\xff\x00")
    (got,) = json.loads(run("pop", "work", "--json").stdout)
    assert base64.b64decode(got["payload_base64"]) == b"\xff\x00"


def test_a_paused_queue_keeps_its_messages(run: Run) -> None:
    run("define", "work")
    run("push", "work", "x")
    run("pause", "work")
    assert run("pop", "work").stdout == ""
    run("resume", "work")
    message_id, token, *_ = run("pop", "work").stdout.split()
    assert run("nack", "work", message_id, token, "--error", "no").stdout == "done\n"
    assert "work" in run("list").stdout
    assert "nacked in all" in run("show", "work").stdout
