"""Opens a Spark session that is tuned for small, frequent micro-batches of a Python source.

The settings were measured one by one on two cores. Without them an empty batch takes three times as long,
most of it in forks for checkpoint files and in Python's garbage collector.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.sql import SparkSession

from weir.errors import Misconfigured
from weir.pipeline.bundle import BUNDLE_FOLDER, BUNDLE_PYTHON
from weir.pipeline.interpreter import write_interpreter
from weir.pipeline.scratch import scratch_folder, socket_folder

# All cores, and four attempts per task: plain `local[*]` ends a query at the first lost connection.
LOCAL = "local[*,4]"

SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit for the program that it runs."""

_WORKER_PYTHON = "spark.pyspark.python"
_launch: Any = java_gateway.launch_gateway

# Batches are short and cores are few, hence the serial collector and the quick compiler.
# VFORK starts a Python worker without a copy of the JVM's page tables.
_JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djdk.lang.Process.launchMechanism=VFORK"
_SETTINGS = {
    # A batch's plan names the partitions of its rows, because their inserts have tokens.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # Grouping lists of samples by sorting takes less than half of the time of hashing them (0013).
    "spark.sql.execution.useObjectHashAggregateExec": "false",
    # The defaults of the next two fork processes for the files of a checkpoint.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "false",
    "spark.task.maxFailures": "4",
    # A speculative copy of a task would insert under the same token and only cost time.
    "spark.speculation": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # A row of the source is a partial, with its archive files some megabytes long. With the default of 64 MiB
    # the sink would get the first partial only when the task has yielded all.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2m",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    master: str | None = None
    """None means `LOCAL`, or under spark-submit the master that was submitted to."""
    name: str = "weir-pipeline"
    memory: str = "1g"
    """Heap of the driver, and of each executor."""
    scratch: Path | None = None
    """The parent folder of the driver's temporary files; None means the system's temporary folder."""
    bundle: str | None = None
    """The archive, as a path or a URL, that brings Weir to workers which lack it."""


def open_session(options: SessionOptions) -> SparkSession:
    """Open a session with these options, or return the one that spark-submit opened."""
    name_interpreters()
    master = options.master or (None if SUBMITTED in os.environ else LOCAL)
    folder = _scratch(options)
    conf = SparkConf().setAppName(options.name)
    if master is not None:
        conf.setMaster(master)
    conf.setAll(list(session_settings(options, master=master, scratch=folder).items()))
    if options.bundle is not None and folder is not None:
        _start_jvm_in(folder, conf)
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    _choose_worker_python(session, _jvm_folder(options, folder))
    if _is_local(master) and folder is not None and session.sparkContext.pythonExec == sys.executable:
        session.sparkContext.pythonExec = str(write_interpreter(folder / "python"))
    session.sparkContext.setLogLevel("ERROR")
    return session


def name_interpreters() -> None:
    """Let Spark use this interpreter wherever the environment names no other."""
    # Without a name Spark takes `python3` from the PATH, which may lack Weir or be another version.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def session_settings(options: SessionOptions, *, master: str | None, scratch: Path | None) -> dict[str, str]:
    """The settings of Spark; `scratch` is the folder for the temporary files of this driver."""
    local = _is_local(master)
    settings = {
        **_SETTINGS,
        "spark.driver.memory": options.memory,
        "spark.executor.memory": options.memory,
        "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
        "spark.executor.extraJavaOptions": _JAVA_OPTIONS,
    }
    if scratch is not None:
        settings |= _scratch_settings(scratch, local=local)
    if local:
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if local or options.bundle is not None:
        # Elsewhere Weir may come with the tasks (`--py-files`), after the daemon has started.
        settings["spark.python.daemon.module"] = "weir.pipeline.worker_daemon"
    if options.bundle is not None:
        settings |= {
            "spark.archives": f"{bundle_location(options.bundle)}#{BUNDLE_FOLDER}",
            _WORKER_PYTHON: BUNDLE_PYTHON,
        }
    return settings


def _is_local(master: str | None) -> bool:
    return master is not None and master.startswith("local")


def bundle_location(bundle: str) -> str:
    """The URL of a bundle, or its absolute path; refuses a path without a file."""
    if "://" in bundle:
        return bundle
    path = Path(bundle).absolute()
    if not path.is_file():
        raise Misconfigured(f"there is no bundle at `{path}`; make it with `weir pipeline bundle`")
    return str(path)


def _scratch(options: SessionOptions) -> Path | None:
    if options.scratch is not None:
        return scratch_folder(options.scratch.absolute())
    # A bundle needs a folder in any case.
    return None if options.bundle is None else scratch_folder(Path(tempfile.gettempdir()) / "weir-spark")


def _scratch_settings(folder: Path, *, local: bool) -> dict[str, str]:
    if local:
        return {
            "spark.local.dir": str(folder),
            "spark.driver.extraJavaOptions": f'{_JAVA_OPTIONS} "-Djava.io.tmpdir={folder}"',
            "spark.python.unix.domain.socket.dir": str(socket_folder(folder)),
        }
    # Executors get the same settings, and this folder is not on their hosts. So only settings of the driver
    # name it. Spark puts sockets into the folder for temporary files, unless it is told another.
    os.environ.setdefault("SPARK_LOCAL_DIRS", str(folder))
    return {"spark.driver.extraJavaOptions": f'{_JAVA_OPTIONS} "-Djava.io.tmpdir={socket_folder(folder)}"'}


def _start_jvm_in(folder: Path, conf: SparkConf) -> None:
    """Start Spark's JVM in `folder`, where the bundle's interpreter is this one.

    Spark runs a source with one interpreter path, on the workers and on the driver. A bundle's path is
    relative to the folder of the process, and only executors unpack bundles there.
    """
    if SUBMITTED in os.environ or SparkContext._gateway is not None:
        return
    write_interpreter(folder / BUNDLE_PYTHON)
    SparkContext(conf=conf, gateway=_launch(conf, {"cwd": str(folder)}))


def _jvm_folder(options: SessionOptions, scratch: Path | None) -> Path:
    moved = options.bundle is not None and SUBMITTED not in os.environ
    return scratch if moved and scratch is not None else Path()


def _choose_worker_python(session: SparkSession, folder: Path) -> None:
    """Obey `spark.pyspark.python`, which takes precedence over the environment, as in spark-submit."""
    context = session.sparkContext
    python = context.getConf().get(_WORKER_PYTHON) or context.pythonExec
    if "/" in python and not (folder / python).exists():
        raise Misconfigured(
            f"Spark's workers run `{python}`, and the driver needs it too; name an interpreter that every "
            "host has, or for that of a bundle set `WEIR_PIPELINE__BUNDLE` or unpack the bundle here: "
            f"`mkdir {BUNDLE_FOLDER}; tar -xzf FILE -C {BUNDLE_FOLDER}`"
        )
    context.pythonExec = python
