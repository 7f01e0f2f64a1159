"""What a process is built with follows its settings."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from uuid import uuid4

import pytest
import structlog

from weir.control.database import Database
from weir.control.spec_plans import SpecText
from weir.embedded.datadir import SEALING_KEYS, DataDir
from weir.errors import Misconfigured
from weir.model.durations import DAY_MS
from weir.model.names import EnvironmentRef
from weir.serve.build import open_process
from weir.serve.hooks import open_worker
from weir.settings import EmbeddedSettings, Settings, StoreUrls, WarehouseSettings
from weir.testing.memory import MemoryBroker
from weir.workers.worker import WorkerOptions


async def test_charts_choose_their_tier_by_how_long_the_settings_keep_it(
    redis_url: str, database_url: str, warehouse_url: str, tmp_path: Path
) -> None:
    settings = Settings(
        redis_url=redis_url,
        embedded=EmbeddedSettings(data_dir=tmp_path),
        warehouse=WarehouseSettings(keep_5s_days=5),
    )
    urls = StoreUrls(redis=redis_url, postgres=database_url, clickhouse=warehouse_url)
    async with open_process(settings, urls, accept_loss=True) as process:
        warehouse = process.services.warehouse
    assert warehouse is not None
    assert list(warehouse.retention_ms.values()) == [5 * DAY_MS, 31 * DAY_MS, 400 * DAY_MS]


SPEC = 'app A {{ queue In {{}} webhook {name} {{ queue: In, verify github {{ secret_env: "{name}" }} }} }}'


async def test_a_start_names_variables_that_are_not_read_any_more_and_demands_the_key_of_stored_secrets(
    redis_url: str,
    database: Database,
    warehouse_url: str,
    environment: EnvironmentRef,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = f"HOOK_{uuid4().hex}"
    monkeypatch.setenv(name, "a value that was a secret before")
    urls = StoreUrls(redis=redis_url, postgres=database.url, clickhouse=warehouse_url)
    keyless = Settings(redis_url=redis_url, embedded=EmbeddedSettings(data_dir=tmp_path))
    keys = DataDir(tmp_path)
    keys.ensure_sealing_key()
    before = (tmp_path / SEALING_KEYS).read_text()
    keys.ensure_sealing_key()
    assert (tmp_path / SEALING_KEYS).read_text() == before
    assert (tmp_path / SEALING_KEYS).stat().st_mode & 0o777 == 0o600
    async with open_process(keyless, urls, accept_loss=True) as process:
        services = process.services
        assert services.specs is not None
        assert services.secrets is not None
        text = SPEC.format(name=name)
        await services.specs.apply(environment, SpecText(source=text), actor="test")
    with structlog.testing.capture_logs() as lines:
        async with open_process(keyless, urls, accept_loss=True) as process:
            assert process.services.secrets is not None
            await process.services.secrets.put(environment, name, "x" * 24, actor="test")
    (line,) = [line for line in lines if "variables" in line]
    assert (line["variables"], line["log_level"]) == ([name], "warning")
    assert "`weir secret import-environment`" in line["event"]
    with structlog.testing.capture_logs() as lines:
        async with open_process(keyless, urls, accept_loss=True):
            pass
    assert [line for line in lines if "variables" in line] == []
    (tmp_path / SEALING_KEYS).unlink()
    with pytest.raises(Misconfigured, match="WEIR_SECRETS__KEY_FILE"):
        async with open_process(keyless, urls, accept_loss=True):
            pass
    with pytest.raises(Misconfigured, match="WEIR_SECRETS__KEY_FILE"):
        async with AsyncExitStack() as stack:
            await open_worker(
                stack,
                database,
                MemoryBroker(),
                keyless,
                WorkerOptions(name="w"),
                presence=None,  # type: ignore[arg-type]
                count_job=lambda: None,
            )
