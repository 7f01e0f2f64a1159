"""The pipeline over a data folder of an old release: it goes on where that one stopped."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.flow import drain

from support.old_folder import OLD_SETTINGS, unpack_old_folder
from weir.embedded.open import stack_from
from weir.pipeline.batches import Landed
from weir.serve.pipeline import audit_pipeline, pipeline_options
from weir.settings import load_settings
from weir.stores.migrations import migrate_stores


async def test_unread_entries_land_behind_those_that_an_old_release_landed(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o711)  # noqa: ASYNC240
    for name, value in OLD_SETTINGS.items():
        monkeypatch.setenv(name, value)
    folder = unpack_old_folder(tmp_path)
    archived = len(list(folder.path.rglob("*.parquet")))
    settings = load_settings(embedded={"data_dir": folder.path})
    landed: list[Landed] = []
    async with stack_from(settings, report=lambda _: None) as stack:
        await migrate_stores(stack.urls)
        options = pipeline_options(settings, stack.urls)
        await asyncio.to_thread(drain, spark, options, observe=lambda _, rows: landed.extend(rows))
        report = await audit_pipeline(options, wait_s=10)
    assert sum(one.events for one in landed) >= folder.told["unread"] > 0
    # The last entry of the old release's stream is not an event.
    assert sum(one.rejected for one in landed) == 1
    assert (report.drift, report.complete, list(report.gaps)) == (0, True, [])
    assert len(list(folder.path.rglob("*.parquet"))) > archived
