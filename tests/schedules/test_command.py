"""`weir schedule` over the API, whose process pushes the ticks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from support.waiting import wait_until
from weir.cli.queue import app as queue_app
from weir.cli.schedule import app
from weir.errors import InvalidInput
from weir.model.names import EnvironmentRef


@pytest.mark.usefixtures("api")
def test_schedules_are_created_shown_run_paused_changed_and_deleted(environment: EnvironmentRef) -> None:
    scope = ["-o", environment.organization, "-p", environment.project, "-e", environment.environment]

    def weir(*words: str) -> Result:
        return CliRunner().invoke(app, [*words, *scope])

    def shown() -> Any:
        return json.loads(weir("show", "nightly", "--json").stdout)

    assert CliRunner().invoke(queue_app, ["create", "reports", *scope]).exit_code == 0
    payload = '{"report": "daily"}'
    made = weir(
        "create", "nightly", "--queue", "reports", "--cron", "0 3 * * *", "--timezone", "Europe/Berlin",
        "--payload", payload,
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    [line] = weir("list").stdout.splitlines()
    assert line.split("\t")[:3] == ["nightly", "0 3 * * * Europe/Berlin", "reports"]
    assert weir("run", "nightly").exit_code == 0
    wait_until(lambda: shown()["runs"], what="the run that was asked for")
    assert (shown()["payload"], shown()["runs"][0]["outcome"]) == ({"report": "daily"}, "pushed")
    assert "pushed" in weir("show", "nightly").stdout
    assert weir("pause", "nightly").exit_code == 0
    assert shown()["paused"] is True
    assert weir("resume", "nightly").exit_code == 0
    assert weir("change", "nightly", "--every", "1h", "--missed", "all").exit_code == 0
    assert (shown()["cron"], shown()["every_ms"], shown()["missed"]) == (None, 3_600_000, "all")
    assert weir("change", "nightly", "--cron", "0 4 * * *").exit_code == 0
    assert (shown()["cron"], shown()["every_ms"], shown()["payload"]) == (
        "0 4 * * *",
        None,
        {"report": "daily"},
    )
    assert weir("delete", "nightly").exit_code == 0
    assert weir("list").stdout == ""
    assert isinstance(weir("create", "x", "--queue", "reports", "--payload", "{").exception, InvalidInput)
    assert "bad hour" in str(weir("create", "x", "--queue", "reports", "--cron", "0 25 * * *").exception)


@pytest.mark.usefixtures("api")
def test_a_schedule_ticks_in_a_process_of_the_api(environment: EnvironmentRef) -> None:
    scope = ["-o", environment.organization, "-p", environment.project, "-e", environment.environment]
    CliRunner().invoke(queue_app, ["create", "ticks", *scope])
    made = CliRunner().invoke(app, ["create", "often", "--queue", "ticks", "--every", "1s", *scope])
    assert made.exit_code == 0, made.output

    def outcomes() -> list[str]:
        found = json.loads(CliRunner().invoke(app, ["show", "often", "--json", *scope]).stdout)
        return [run["outcome"] for run in found["runs"]]

    wait_until(lambda: len(outcomes()) >= 3, what="three ticks")
    assert set(outcomes()) == {"pushed"}
