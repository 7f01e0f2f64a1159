"""Which Python Spark's workers run, and which settings reach them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from weir.errors import Misconfigured
from weir.pipeline.session import SessionOptions, bundle_location, session_settings

_TASK = """
import os, sys
from pathlib import Path
from weir.pipeline.session import SessionOptions, open_session
spark = open_session(SessionOptions(master="local[1,4]", memory="600m", scratch=Path(sys.argv[1])))
print(spark.sparkContext.parallelize([0], 1).map(lambda _: os.environ.get("RUN_BY", "this one")).collect()[0])
spark.stop()
"""


def run_task(folder: Path, **environment: str) -> str:
    """What a task of a session in a process of its own says about its interpreter."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    done = subprocess.run(
        [sys.executable, "-c", _TASK, str(folder)], env={**kept, **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


@pytest.fixture
def other_python(tmp_path: Path) -> str:
    """An interpreter that is known by what it leaves in its environment."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nRUN_BY=another exec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return str(path)


@pytest.mark.slow
def test_workers_run_the_interpreter_that_the_environment_or_spark_names(
    tmp_path: Path, other_python: str
) -> None:
    named = f"--conf spark.pyspark.python={other_python} pyspark-shell"
    assert run_task(tmp_path) == "this one"
    assert run_task(tmp_path, PYSPARK_PYTHON=other_python) == "another"
    assert run_task(tmp_path, PYSPARK_SUBMIT_ARGS=named) == "another"
    assert run_task(tmp_path, PYSPARK_SUBMIT_ARGS=named, PYSPARK_PYTHON=sys.executable) == "another"
    refusal = run_task(tmp_path, PYSPARK_PYTHON="./environment/bin/python")
    assert "unpack the bundle here" in refusal


def test_no_setting_for_the_executors_of_a_cluster_names_a_folder_of_the_driver(tmp_path: Path) -> None:
    settings = session_settings(SessionOptions(), master="spark://host:7077", scratch=tmp_path)
    naming = [name for name, value in settings.items() if str(tmp_path) in value]
    assert naming == ["spark.driver.extraJavaOptions"] or len(str(tmp_path)) > 60
    assert "spark.local.dir" not in settings


def test_a_bundle_becomes_an_archive_and_the_interpreter_in_it(tmp_path: Path) -> None:
    bundle = tmp_path / "weir-bundle.tar.gz"
    bundle.touch()
    for location in (str(bundle), "hdfs://name/weir-bundle.tar.gz"):
        settings = session_settings(SessionOptions(bundle=location), master="yarn", scratch=None)
        assert settings["spark.archives"] == f"{location}#environment"
        assert settings["spark.pyspark.python"] == "./environment/bin/python"


def test_a_bundle_that_is_not_there_is_refused_with_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="weir pipeline bundle"):
        bundle_location(str(tmp_path / "none.tar.gz"))
