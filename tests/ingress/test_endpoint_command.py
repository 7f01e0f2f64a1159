"""`weir endpoint`: what asked for no more is listed, and enabled again."""

from __future__ import annotations

import asyncio
import json

import pytest
from typer.testing import CliRunner, Result

from support.running_api import RunningApi
from weir.cli.endpoint import app
from weir.cli.main import main
from weir.control.database import Database
from weir.model.names import EnvironmentRef
from weir.outbound.delivery_log import PostgresDeliveryLog

GONE = "https://gone.example/in?a=1"


async def _disable(database_url: str, environment: EnvironmentRef) -> None:
    async with Database(database_url, max_size=1) as database:
        log = PostgresDeliveryLog(database)
        await log.disable(environment, GONE, now_ms=1_700_000_000_000, reason="410 Gone")


def test_a_disabled_endpoint_is_listed_and_enabled_once(
    environment: EnvironmentRef,
    api: RunningApi,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scope = ["-o", environment.organization, "-p", environment.project, "-e", environment.environment]
    asyncio.run(_disable(api.postgres_url, environment))

    def weir(*words: str) -> Result:
        return CliRunner().invoke(app, [*words, *scope])

    listed = [{"url": GONE, "disabled_at_ms": 1_700_000_000_000, "reason": "410 Gone"}]
    assert json.loads(weir("list", "--json").stdout) == listed
    assert "gone.example" in weir("list").stdout
    assert weir("enable", GONE).stdout == f"{GONE} receives again\n"
    assert json.loads(weir("list", "--json").stdout) == []
    with pytest.raises(SystemExit) as ended:
        main(["endpoint", "enable", GONE, *scope])
    assert ended.value.code == 1
    assert "is not disabled here" in capsys.readouterr().err
