"""The page on metrics of one's own, run as it stands: its files are written, its commands executed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from redis import Redis

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text()
STEPS = PAGE.partition("## Reference")[0]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.py)\n")


class Shell:
    """One shell in a folder, so that what a block exports is there for the next."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        # The commands of the page are those of the tests' own Python.
        binaries = folder / "bin"
        binaries.mkdir()
        for name, command in {"weir": "-m weir.cli", "python": ""}.items():
            script = binaries / name
            script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {command} "$@"\n')
            script.chmod(0o755)
        self._folder = folder
        self._environment = {**os.environ, **environment, "PATH": f"{binaries}:{os.environ['PATH']}"}
        self._exports: list[str] = []

    def run(self, commands: str) -> str:
        script = "\n".join(["set -e", *self._exports, commands])
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr[-4_000:]}"
        self._exports += [line for line in commands.splitlines() if line.startswith("export ")]
        return done.stdout


@pytest.fixture
def shell(tmp_path: Path, streams_url: str, warehouse_url: str, database_url: str) -> Shell:
    return Shell(
        tmp_path,
        {
            "WEIR_REDIS_URL": streams_url,
            "WEIR_POSTGRES_URL": database_url,
            "WEIR_CLICKHOUSE_URL": warehouse_url,
            "WEIR_EMBEDDED__DATA_DIR": str(tmp_path / "data"),
        },
    )


@pytest.mark.slow
def test_the_page_runs_as_it_stands(shell: Shell, tmp_path: Path, streams_url: str) -> None:
    (expected,) = [text for kind, text in BLOCK.findall(STEPS) if kind == "text"]
    answers = []
    for kind, text in BLOCK.findall(STEPS):
        if kind == "python":
            name = FILE.match(text)
            assert name is not None
            (tmp_path / name[1]).write_text(text)
        elif kind == "sh":
            printed = shell.run(text)
            if "ask.py" in text:
                answers.append(printed[printed.index("NO: ") :])
            if "pipeline tables" in text:
                assert "CREATE MATERIALIZED VIEW IF NOT EXISTS orders_ingest_offsets_view" in printed
                assert shell.run("weir migrate").strip().endswith("clickhouse: up to date")
            if "pipeline status" in text:
                assert "orders shard 0" in printed
                assert "refund shard 0" in printed
    assert answers == [expected] * 3

    shell.run('rm -r "$WEIR_PIPELINE__CHECKPOINT"')
    with Redis.from_url(streams_url) as redis:
        assert redis.delete("weir:pipeline:plan")
    shell.run("weir pipeline run --drain")
    assert shell.run("python ask.py") == expected
