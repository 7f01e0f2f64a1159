"""`weir environment`, `audit`, `process` and `webhook` over the API."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from support.running_api import RunningApi
from support.waiting import wait_until
from weir.cli.main import app
from weir.errors import InvalidInput, NotFound
from weir.model.names import EnvironmentRef

Weir = Callable[..., Result]


@pytest.fixture
def project(environment: EnvironmentRef) -> list[str]:
    return ["-o", environment.organization, "-p", environment.project]


@pytest.fixture
def scope(project: list[str], environment: EnvironmentRef) -> list[str]:
    return [*project, "-e", environment.environment]


def weir(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def document(*words: str) -> Any:
    done = weir(*words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.usefixtures("api")
def test_an_environment_is_created_once_changed_and_listed(
    project: list[str], environment: EnvironmentRef
) -> None:
    name = environment.environment
    assert isinstance(weir("environment", "change", name, "--unlimited", *project).exception, NotFound)
    made = document("environment", "create", name, "--concurrency", "7", *project)
    assert (made["organization"], made["concurrency"]) == (environment.organization, 7)
    assert "weir environment change" in str(weir("environment", "create", name, *project).exception)
    assert document("environment", "change", name, "--concurrency", "9", *project)["concurrency"] == 9
    mine = [one for one in document("environment", "list") if one["environment"] == name]
    assert [one["concurrency"] for one in mine] == [9]
    assert document("environment", "change", name, "--unlimited", *project)["concurrency"] is None
    listed = weir("environment", "list").stdout
    assert f"{environment.organization}\t{environment.project}\t{name}\tno limit\t" in listed
    assert isinstance(weir("environment", "change", name, *project).exception, InvalidInput)


@pytest.mark.usefixtures("api")
def test_the_audit_log_is_listed_and_narrowed_to_a_tenant(scope: list[str]) -> None:
    weir("queue", "create", "q", *scope)
    (entry,) = document("audit", "list", *scope)
    assert (entry["action"], entry["target"]) == ("queue.define", "q")
    assert entry["id"] in [one["id"] for one in document("audit", "list")]
    assert document("audit", "list", "-o", "nobody here") == []
    assert "\tqueue.define\tq\t" in weir("audit", "list", *scope).stdout


def test_a_tenants_token_sees_nothing_of_others_in_the_audit_log(
    api: RunningApi, environment: EnvironmentRef, scope: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    weir("queue", "create", "q", *scope)
    made = document("token", "create", "t", "-o", "another", "--role", "admin")
    monkeypatch.setenv("WEIR_TOKEN", made["token"])
    refused = weir("audit", "list", "-o", environment.organization).exception
    assert "no such organization" in str(refused)
    organizations = {one["organization"] for one in document("audit", "list")}
    assert organizations == {"another"}


@pytest.mark.usefixtures("api")
def test_webhooks_are_listed_with_what_they_lack(scope: list[str], tmp_path: Path) -> None:
    file = tmp_path / "shop.weir"
    secret = 'verify github { secret: "PAY_SECRET" }'
    file.write_text(f"app Shop {{\n  queue orders {{}}\n  webhook pay {{ queue: orders, {secret} }}\n}}\n")
    applied = weir("spec", "apply", str(file), *scope)
    assert applied.exit_code == 0, applied.output
    # The process hears of the applied spec by an event.
    wait_until(lambda: document("webhook", "list", *scope))
    (hook,) = document("webhook", "list", *scope)
    assert (hook["name"], hook["accepts"]) == ("pay", False)
    assert "refuses everything; missing: PAY_SECRET" in weir("webhook", "list", *scope).stdout


@pytest.mark.usefixtures("api")
def test_processes_of_an_environment_are_listed(scope: list[str]) -> None:
    weir("queue", "create", "q", *scope)
    assert isinstance(document("process", "list", *scope), list)
    assert weir("process", "list", "--period", "1h", *scope).exit_code == 0
    assert isinstance(document("process", "list", "--all"), list)
    assert "weir process list" in str(weir("process", "show", "nobody", "--all").exception)


VALUE = "a value of more than 24 bytes"


@pytest.mark.usefixtures("api")
def test_a_secret_comes_from_standard_input_and_is_listed_without_its_value(scope: list[str]) -> None:
    for value, stored in ((VALUE, 0), (f"{VALUE} 2\n", 0)):
        done = CliRunner().invoke(app, ["secret", "set", "HOOK", *scope], input=value)
        assert (done.exit_code, done.output) == (stored, "")
    (secret,) = document("secret", "list", *scope)
    assert (secret["name"], secret["previous_until_ms"] - secret["set_at_ms"]) == ("HOOK", 86_400_000)
    shown = weir("secret", "list", *scope).stdout
    assert "holds until" in shown
    assert VALUE not in shown
    assert weir("secret", "delete", "HOOK", "--only-old", *scope).exit_code == 0
    assert "holds until" not in weir("secret", "list", *scope).stdout
    assert weir("secret", "delete", "HOOK", *scope).exit_code == 0
    assert document("secret", "list", *scope) == []
    short = CliRunner().invoke(app, ["secret", "set", "HOOK", *scope], input=" ")
    assert "printable text without a space" in str(short.exception)
    wrong = CliRunner().invoke(app, ["secret", "set", "HOOK", "--keep-old", "soon", *scope], input=VALUE)
    assert "`soon` is not a time" in str(wrong.exception)


@pytest.mark.usefixtures("api")
def test_variables_of_an_older_installation_are_stored_by_name_only(
    scope: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "shop.weir"
    file.write_text(
        "app Shop {\n"
        '  queue orders { deliver: https://example.com/in { secret_env: ["OUT", "GONE"] } }\n'
        '  webhook pay { queue: orders2, verify github { secret_env: "PAY" } }\n'
        "  queue orders2 {}\n}\n"
    )
    planned = weir("spec", "plan", str(file), *scope).output
    assert "webhook `pay` names the secret `PAY`, which is not stored" in planned
    assert "queue `orders` names the secret `OUT`, which is not stored" in planned
    assert weir("spec", "apply", str(file), *scope).exit_code == 0
    monkeypatch.setenv("PAY", VALUE)
    monkeypatch.setenv("OUT", VALUE)
    monkeypatch.delenv("GONE", raising=False)
    told = weir("secret", "import-environment", *scope).stdout
    assert set(told.splitlines()[:3]) == {"PAY: set here", "OUT: set here", "GONE: not set here"}
    assert document("secret", "list", *scope) == []
    for name in ("GONE", "WEIR_URL"):
        refused = weir("secret", "import-environment", "PAY", name, *scope).exception
        assert f"`{name}` is not set here" in str(refused)
    assert weir("secret", "import-environment", "PAY", "OUT", *scope).stdout == "stored PAY\nstored OUT\n"
    assert [one["name"] for one in document("secret", "list", *scope)] == ["OUT", "PAY"]
    assert "which is not stored" not in weir("spec", "plan", str(file), *scope).output
