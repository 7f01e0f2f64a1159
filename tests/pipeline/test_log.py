"""The log of a healthy pipeline: it says what happened, and nothing that looks like a fault."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import psutil
import pytest
from tests.pipeline.emission import Emission
from tests.pipeline.exactness import Rig

from support.waiting import wait_until
from weir.warehouse.connection import ClickHouseConnection

FAULT = re.compile(r"Traceback|Error|Exception|ERROR|\[error|\[warning")


@pytest.mark.slow
def test_a_pipeline_that_is_stopped_in_the_middle_of_its_work_logs_no_fault(
    emission: Emission, warehouse: ClickHouseConnection, warehouse_url: str, streams_url: str, tmp_path: Path
) -> None:
    settings = tmp_path / "spark"
    settings.mkdir()
    # So Spark ends a worker whenever another one is idle too, and not only after a minute.
    (settings / "spark-defaults.conf").write_text("spark.python.factory.idleWorkerMaxPoolSize 1\n")
    rig = Rig(
        redis_url=streams_url,
        clickhouse_url=warehouse_url,
        folder=tmp_path,
        shards=2,
        SPARK_CONF_DIR=str(settings),
    )
    enough = threading.Event()

    def emit() -> None:
        while not enough.wait(0.02):
            emission.emit(2_000)

    def landed() -> int:
        return int(warehouse.rows("SELECT sum(events) AS n FROM queue_ledger")[0]["n"])

    emitting = threading.Thread(target=emit)
    emitting.start()
    try:
        for _ in range(2):
            before = landed()
            rig.start()
            assert rig.process is not None
            wait_until(lambda before=before: landed() > before + 60_000, timeout_s=180)
            below = psutil.Process(rig.process.pid).children(recursive=True)
            rig.process.terminate()
            assert rig.process.wait(60) == 0
            # They write their last words after the driver has ended.
            assert psutil.wait_procs(below, timeout=30)[1] == []
    finally:
        enough.set()
        emitting.join()
        rig.stop()
    log = (tmp_path / "pipeline.log").read_text()
    assert log.count("state=stopped") == 2
    assert [line for line in log.splitlines() if FAULT.search(line)] == []
