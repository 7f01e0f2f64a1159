"""The same job on a Spark cluster whose workers have a Python, but no Weir: a master and two workers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pyspark
import pytest
from tests.pipeline.emission import Emission

from weir.embedded.ports import free_port
from weir.telemetry.events import QUEUE_COUNTERS
from weir.warehouse.connection import ClickHouseConnection

HOME = Path(pyspark.__file__).parent
DOCS = Path(__file__).parents[2] / "docs" / "reference" / "pipeline.md"
EVENTS = 80_000


@pytest.fixture
def bare_environment(tmp_path: Path) -> dict[str, str]:
    """What a worker's host has: Spark, Java and a bare Python of this version, first on its PATH."""
    subprocess.run([sys._base_executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    (tmp_path / "home").mkdir()
    java = Path(shutil.which("java") or "/usr/bin/java").parent
    environment = {
        "PATH": f"{tmp_path / 'bare' / 'bin'}:{java}:/usr/bin:/bin", "HOME": str(tmp_path / "home"),
        "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(tmp_path / "work"),
    }  # fmt: skip
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for module in ("weir", "pyarrow", "redis"):
        missing = subprocess.run(
            [python, "-c", f"import {module}"], env=environment, capture_output=True, cwd="/", check=False
        )
        assert b"ModuleNotFoundError" in missing.stderr
    return environment


def documented(*, master: str, port: int) -> dict[str, str]:
    """The commands for a master and a worker, as the documentation has them, on loopback."""
    lines = re.findall(
        r"^\$SPARK_HOME/bin/spark-class org\.apache\.spark\.deploy\..*$", DOCS.read_text(), re.M
    )
    commands = {line.split()[1].rsplit(".", 1)[-1]: line for line in lines}
    for text, here in (
        ("spark://spark-master:7077", master),
        ("--port 7077", f"--port {port}"),
        ("spark-master", "127.0.0.1"),
        ("spark-worker-1", "127.0.0.1"),
    ):
        commands = {name: line.replace(text, here) for name, line in commands.items()}
    # The tests' host has other users of the usual ports, and less room.
    return {name: re.sub(r"--webui-port \d+", "--webui-port 0", line) for name, line in commands.items()}


@contextmanager
def daemon(folder: Path, command: str, environment: dict[str, str]) -> Iterator[Path]:
    """One of Spark's own processes, and where it logs."""
    log = folder / f"{command.split()[1].rsplit('.', 1)[-1]}-{len(list(folder.iterdir()))}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["/bin/sh", "-c", f"exec {command}"], env=environment, stdout=out, stderr=out, cwd=folder
        )
    try:
        yield log
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def standalone_cluster(folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """A master and two workers with one core each; the master's URL."""
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    commands = documented(master=url, port=port)
    folder.mkdir()
    with ExitStack() as stack:
        master = stack.enter_context(daemon(folder, commands["Master"], environment))
        wait_for(lambda: "I have been elected leader" in master.read_text(), what=master.read_text)
        for _ in range(2):
            worker = stack.enter_context(daemon(folder, commands["Worker"], environment))
            wait_for(lambda log=worker: "Successfully registered" in log.read_text(), what=worker.read_text)
        yield url


def wait_for(condition: Callable[[], object], *, what: Callable[[], str], wait_s: float = 120) -> None:
    deadline = time.monotonic() + wait_s
    while not condition():
        assert time.monotonic() < deadline, what()[-3_000:]
        time.sleep(0.1)


def executors(folder: Path) -> list[psutil.Process]:
    """The running executors whose work is in this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.name() == "java" and str(folder) in process.cwd():
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.slow
def test_workers_without_weir_land_every_event_once_although_an_executor_is_killed(
    emission: Emission,
    warehouse: ClickHouseConnection,
    warehouse_url: str,
    streams_url: str,
    bare_environment: dict[str, str],
    tmp_path: Path,
) -> None:
    emission.emit(EVENTS)
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "WEIR_REDIS_URL": streams_url,
        "WEIR_POSTGRES_URL": "postgresql://none@127.0.0.1:1/none",
        "WEIR_CLICKHOUSE_URL": warehouse_url,
        "WEIR_SHARDS": "2",
        "WEIR_PIPELINE__MAX_READ_TASKS": "2",
        "WEIR_PIPELINE__MAX_EVENTS": "4000",
        "WEIR_PIPELINE__MEMORY": "600m",
        "WEIR_PIPELINE__BUNDLE": "weir-bundle.tar.gz",
        "WEIR_EMBEDDED__DATA_DIR": str(tmp_path / "data"),
    }
    weir = [sys.executable, "-m", "weir.cli", "pipeline"]
    subprocess.run([*weir, "bundle"], env=environment, cwd=tmp_path, check=True, timeout=300)
    log, work = tmp_path / "pipeline.log", tmp_path / "work"
    with standalone_cluster(tmp_path / "logs", bare_environment) as url, log.open("wb") as out:
        pipeline = subprocess.Popen(
            [*weir, "run", "--drain", "--master", url], env=environment, cwd=tmp_path, stdout=out, stderr=out
        )
        try:

            def landed() -> int:
                assert pipeline.poll() is None, log.read_text()[-3_000:]
                return int(warehouse.rows("SELECT sum(events) AS n FROM queue_ledger")[0]["n"])

            wait_for(landed, what=log.read_text)
            killed = executors(work)[0]
            killed.kill()
            before = landed()
            assert before < EVENTS, "the executor was killed too late"
            assert pipeline.wait(240) == 0, log.read_text()[-3_000:]
        finally:
            pipeline.kill()
            pipeline.wait()
        # Each worker ran the bundle's packages, and the killed executor was replaced.
        unpacked = list(work.glob("app-*/*/environment/packages/weir/__init__.py"))
        assert len(unpacked) >= 2
    columns = ", ".join(f"sum({name}) AS {name}" for name in ("events", *QUEUE_COUNTERS))
    expected = {"events": EVENTS, **{name: emission.counted[name] for name in QUEUE_COUNTERS}}
    for table in ("queue_metrics_5s", "queue_metrics_1m", "queue_metrics_1h", "queue_ledger"):
        assert warehouse.rows(f"SELECT {columns} FROM {table}")[0] == expected, table
