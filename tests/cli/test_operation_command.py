"""`weir operation` over the API."""

from __future__ import annotations

import json
from collections.abc import Callable
from uuid import uuid4

import psycopg
import pytest
from typer.testing import CliRunner, Result

from support.running_api import RunningApi
from weir.cli.main import main
from weir.cli.operation import app
from weir.model.names import EnvironmentRef

Weir = Callable[..., Result]


@pytest.fixture
def weir(api: RunningApi, environment: EnvironmentRef) -> Weir:
    scope = ["-o", environment.organization, "-p", environment.project, "-e", environment.environment]
    return lambda *words: CliRunner().invoke(app, [*words, *scope])


def store(url: str, environment: EnvironmentRef, *, status: str) -> str:
    """An operation that no processor claims during the test; its id."""
    operation_id, lane = str(uuid4()), uuid4().int >> 65
    names = (environment.organization, environment.project, environment.environment)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO weir.operation_lanes (lane, priority, pending, ready_ms) VALUES (%s, 1, %s, %s)",
            (lane, int(status == "pending"), 2**53),
        )
        connection.execute(
            "INSERT INTO weir.operations (id, organization, project, environment, queue, shard, lane, type,"
            " priority, payload, messages, size_bytes, gated, status, finished_ms)"
            " VALUES (%s, %s, %s, %s, 'q', 0, %s, 'ACK', 1, '{}', 1, 2, true, %s, %s)",
            (operation_id, *names, lane, status, None if status == "pending" else 4 * 10**12),
        )
    return operation_id


def test_operations_are_counted_listed_and_shown(
    weir: Weir, api: RunningApi, environment: EnvironmentRef
) -> None:
    waiting, failed = (store(api.postgres_url, environment, status=one) for one in ("pending", "failed"))
    counted = json.loads(weir("stats", "--json").stdout)
    assert {row["status"]: row["count"] for row in counted["stats"]} == {"pending": 1, "failed": 1}
    assert "ACK\t1\tfailed\t1\t" in weir("stats").stdout
    assert [one["id"] for one in json.loads(weir("list", "--json").stdout)] == [failed, waiting]
    only = weir("list", "--status", "pending", "--queue", "q", "--limit", "1").stdout
    assert [line.split("\t")[0] for line in only.splitlines()] == [waiting]
    assert json.loads(weir("show", failed, "--json").stdout)["status"] == "failed"
    assert "status\tfailed" in weir("show", failed).stdout


def test_operations_are_cancelled_and_retried_on_record(
    weir: Weir, api: RunningApi, environment: EnvironmentRef
) -> None:
    waiting, failed = (store(api.postgres_url, environment, status=one) for one in ("pending", "failed"))
    assert weir("cancel", waiting).stdout == f"{waiting} is cancelled\n"
    assert "only a pending one can be cancelled" in str(weir("cancel", waiting).exception)
    assert json.loads(weir("retry", failed, "--json").stdout)["status"] == "pending"
    with psycopg.connect(api.postgres_url) as connection:
        rows = connection.execute(
            "SELECT action, actor FROM weir.audit_log WHERE target = ANY(%s) ORDER BY at_ms",
            ([waiting, failed],),
        ).fetchall()
    assert [action for action, _ in rows] == ["operation.cancel", "operation.retry"]
    assert all(actor.startswith("token:") for _, actor in rows)


def test_the_old_noun_is_answered_with_the_new_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["operations", "list"])
    assert "`weir operations` is now `weir operation`" in capsys.readouterr().err
