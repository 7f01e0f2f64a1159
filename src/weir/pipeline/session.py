"""Opens a Spark session that is tuned for small, frequent micro-batches of a Python source.

The settings were measured one by one on two cores. Without them an empty batch takes three times as long,
most of it in forks for checkpoint files and in Python's garbage collector.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from weir.pipeline.scratch import scratch_folder, socket_folder

# All cores, and four attempts per task: plain `local[*]` ends a query at the first lost connection.
LOCAL = "local[*,4]"

SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit for the program that it runs."""

# Batches are short and cores are few, hence the serial collector and the quick compiler.
# VFORK starts a Python worker without a copy of the JVM's page tables.
_JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djdk.lang.Process.launchMechanism=VFORK"
_SETTINGS = {
    # Nothing is shuffled: a stream is in one read task from its read to its insert.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
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
    # A row of the source is a run of thousands of entries. With the default of 64 MiB, decoding would wait
    # until reading is nearly done: 153,000 events per second instead of 205,000 (0012).
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


def open_session(options: SessionOptions) -> SparkSession:
    """Open a session with these options, or return the one that spark-submit opened."""
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
