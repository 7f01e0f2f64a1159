"""A Spark session tuned for small, frequent micro-batches of a Python source.

The settings were measured one by one on two cores: without them an empty batch takes three times as
long, most of it in forks for checkpoint files and in Python's garbage collector.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from weir.pipeline.scratch import scratch_folder, socket_folder

LOCAL = "local[*,4]"
"""All cores, and four attempts a task: plain `local[*]` ends a query at the first lost connection."""

SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit for the program that it runs."""

_JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djdk.lang.Process.launchMechanism=VFORK"
_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "false",
    "spark.task.maxFailures": "4",
    "spark.speculation": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # A row of the source is a run of thousands of entries, so the default of 64 MiB would let the task
    # that decodes them wait until the one that reads is nearly done.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2m",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    master: str | None = None
    """None is `LOCAL`, or under spark-submit whatever was submitted to."""
    name: str = "weir-pipeline"
    memory: str = "1g"
    """Heap of the driver, and of each executor."""
    scratch: Path | None = None
    """Below which the driver keeps temporary files; None is the system's folder for them."""


def open_session(options: SessionOptions) -> SparkSession:
    """A session by these options; under spark-submit, the one that was submitted."""
    # Workers must run this interpreter: another one on the PATH may lack Weir or differ in version.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    master = options.master or (None if SUBMITTED in os.environ else LOCAL)
    builder = SparkSession.builder.appName(options.name)
    if master is not None:
        builder = builder.master(master)
    for name, value in _settings(options, local=master is not None and master.startswith("local")).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _settings(options: SessionOptions, *, local: bool) -> dict[str, str]:
    settings = {
        **_SETTINGS,
        "spark.driver.memory": options.memory,
        "spark.executor.memory": options.memory,
        "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
        "spark.executor.extraJavaOptions": _JAVA_OPTIONS,
    }
    if options.scratch is not None:
        settings |= _scratch_settings(scratch_folder(options.scratch.absolute()))
    if local:
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return settings


def _scratch_settings(folder: Path) -> dict[str, str]:
    return {
        "spark.local.dir": str(folder),
        "spark.driver.extraJavaOptions": f'{_JAVA_OPTIONS} "-Djava.io.tmpdir={folder}"',
        "spark.python.unix.domain.socket.dir": str(socket_folder(folder)),
    }
