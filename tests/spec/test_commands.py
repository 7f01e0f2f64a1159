"""`weir spec plan|apply|show` over the API."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner, Result

from support.running_api import RunningApi
from weir.cli.spec import app
from weir.model.names import EnvironmentRef


@pytest.mark.usefixtures("api")
def test_a_spec_is_planned_applied_shown_and_refused(environment: EnvironmentRef, tmp_path: Path) -> None:
    scope = ["-o", environment.organization, "-p", environment.project, "-e", environment.environment]
    file = tmp_path / "shop.weir"
    file.write_text("app Shop {\n  queue orders { ordering: fifo }\n}\n")

    def weir(*words: str) -> Result:
        return CliRunner().invoke(app, [*words, *scope])

    assert "+ queue orders" in weir("plan", str(file)).stdout
    applied = weir("apply", str(file))
    assert (applied.exit_code, "applied as revision 1" in applied.stdout) == (0, True), applied.output
    assert weir("show").stdout == file.read_text()
    (revision,) = json.loads(weir("show", "--history", "--json").stdout)
    assert (revision["revision"], revision["actor"].startswith("token:")) == (1, True)
    again = json.loads(weir("plan", "--json", str(file)).stdout)
    assert (again["allowed"], again["changes"]) == (True, [])


def test_what_differs_from_the_spec_is_shown_beside_it(
    api: RunningApi, environment: EnvironmentRef, tmp_path: Path
) -> None:
    scope = ["-o", environment.organization, "-p", environment.project, "-e", environment.environment]
    file = tmp_path / "shop.weir"
    file.write_text("app Shop {\n  queue orders { ordering: fifo }\n}\n")
    assert CliRunner().invoke(app, ["apply", str(file), *scope]).exit_code == 0
    assert CliRunner().invoke(app, ["show", *scope]).stderr == ""
    with psycopg.connect(api.postgres_url) as connection:
        # As an older version let `PUT /api/v1/queues/orders` do it.
        connection.execute(
            "UPDATE weir.queue_definitions SET spec = jsonb_set(spec, '{concurrency}', '9') "
            "WHERE organization = %s AND project = %s AND environment = %s",
            (environment.organization, environment.project, environment.environment),
        )
    shown = CliRunner().invoke(app, ["show", *scope])
    assert shown.stdout == file.read_text()
    assert "differs from this spec" in shown.stderr
    assert "~ queue orders / concurrency: 9 → unset" in shown.stderr
    (difference,) = json.loads(CliRunner().invoke(app, ["show", "--json", *scope]).stdout)["differs"]
    assert (difference["name"], difference["before"], difference["after"]) == ("orders", 9, None)


def test_a_refused_change_is_told_by_its_reason(
    api: RunningApi, environment: EnvironmentRef, tmp_path: Path
) -> None:
    scope = ["-o", environment.organization, "-p", environment.project, "-e", environment.environment]
    file = tmp_path / "a.weir"
    file.write_text('app A {\n  queue q { deliver: "http://127.0.0.1:9/in" }\n}\n')
    done = CliRunner().invoke(app, ["apply", str(file), *scope])
    assert done.exit_code == 1
    assert "queue `q` delivers to" in done.stderr
