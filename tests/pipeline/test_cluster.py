"""The same job on a Spark cluster: a master and two workers on loopback."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest
from tests.pipeline.emission import Emission

from weir.embedded.ports import free_port
from weir.telemetry.events import QUEUE_COUNTERS
from weir.warehouse.connection import ClickHouseConnection

HOME = Path(pyspark.__file__).parent


@contextmanager
def daemon(folder: Path, *words: str) -> Iterator[Path]:
    """One of Spark's own processes, and where it logs."""
    log = folder / f"{words[0].rsplit('.', 1)[-1]}-{len(list(folder.iterdir()))}.log"
    environment = {
        **os.environ, "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "work"), "PYSPARK_PYTHON": sys.executable,
    }  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(HOME / "bin" / "spark-class"), *words], env=environment, stdout=out, stderr=out
        )
    try:
        yield log
    finally:
        process.terminate()
        process.wait(30)


def wait_for(log: Path, text: str) -> None:
    deadline = time.monotonic() + 90
    while text not in log.read_text(errors="replace"):
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-2_000:]
        time.sleep(0.2)


@pytest.mark.slow
def test_a_standalone_cluster_lands_the_same_totals(
    emission: Emission, warehouse: ClickHouseConnection, warehouse_url: str, streams_url: str, tmp_path: Path
) -> None:
    emission.emit(60_000)
    master, port = tmp_path / "logs", free_port()
    master.mkdir()
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        host = ("--host", "127.0.0.1", "--webui-port", "0")
        started = stack.enter_context(
            daemon(master, "org.apache.spark.deploy.master.Master", *host, "--port", str(port))
        )
        wait_for(started, "I have been elected leader")
        for _ in range(2):
            words = ("org.apache.spark.deploy.worker.Worker", url, *host, "--cores", "1", "--memory", "1g")
            wait_for(stack.enter_context(daemon(master, *words)), "Successfully registered")
        environment = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "WEIR_REDIS_URL": streams_url,
            "WEIR_POSTGRES_URL": "postgresql://none@127.0.0.1:1/none",
            "WEIR_CLICKHOUSE_URL": warehouse_url,
            "WEIR_SHARDS": "2",
            "WEIR_PIPELINE__MAX_LANES": "2",
            "WEIR_PIPELINE__MEMORY": "600m",
            "WEIR_EMBEDDED__DATA_DIR": str(tmp_path / "data"),
        }
        command = [sys.executable, "-m", "weir.cli", "pipeline", "run", "--drain", "--master", url]
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr.decode()[-3_000:]
        assert {path.parent.name for path in master.glob("work/app-*/*/stderr")} == {"0", "1"}
    columns = ", ".join(f"sum({name}) AS {name}" for name in ("events", *QUEUE_COUNTERS))
    expected = {"events": 60_000, **{name: emission.counted[name] for name in QUEUE_COUNTERS}}
    for table in ("queue_metrics_5s", "queue_metrics_1m", "queue_metrics_1h", "queue_ledger"):
        assert warehouse.rows(f"SELECT {columns} FROM {table}")[0] == expected, table
