"""`weir channel` over the API."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner, Result

from support.running_api import RunningApi
from weir.cli.channel import app
from weir.cli.main import main
from weir.errors import InvalidInput
from weir.model.names import EnvironmentRef


@pytest.mark.usefixtures("api")
def test_channels_are_created_listed_changed_opened_and_deleted(environment: EnvironmentRef) -> None:
    scope = ["-o", environment.organization, "-p", environment.project, "-e", environment.environment]

    def weir(*words: str) -> Result:
        return CliRunner().invoke(app, [*words, *scope])

    made = weir("create", "events", "--name", "Events", "-c", "pay=payments", "-c", "a=b=mails")
    assert (made.exit_code, made.stderr) == (0, "events: 2 consumers\n")
    (channel,) = json.loads(weir("list", "--json").stdout)
    assert [(one["id"], one["queue"]) for one in channel["consumers"]] == [
        ("a=b", "mails"),
        ("pay", "payments"),
    ]
    assert weir("change", "events", "-c", "pay=payments").exit_code == 0
    assert weir("token", "events").stdout.startswith("weir_events_")
    assert weir("token", "events", "pay").stdout.startswith("weir_pay_")
    assert weir("delete", "events").exit_code == 0
    assert json.loads(weir("list", "--json").stdout) == []
    assert isinstance(weir("create", "x", "-c", "nonsense").exception, InvalidInput)


def test_what_a_command_must_choose_is_said_by_its_option(
    api: RunningApi, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["channel", "list"])
    assert "choose one with `--organization`" in capsys.readouterr().err
