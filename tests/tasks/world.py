"""An environment on a real API, and workers of the shop's tasks in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.processes import killed_whole
from support.running_api import RunningApi
from weir.model.names import EnvironmentRef

# Python needs a second to import a worker, and ten on a machine that is busy with other tests.
START_S = 60.0
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, kw_only=True)
class World:
    api: RunningApi
    environment: EnvironmentRef
    admin_token: str
    write_token: str
    folder: Path

    def notes(self, word: str) -> list[str]:
        """What tasks wrote down."""
        path = self.folder / "notes"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.removeprefix(word).strip() for line in lines if line.startswith(word)]

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def variables(self, *, stores: bool, token: str | None = None) -> dict[str, str]:
        base = {**os.environ, "PYTHONPATH": str(ROOT), "SHOP_NOTES": str(self.folder / "notes")}
        if stores:
            return base | {
                "WEIR_REDIS_URL": self.api.redis_url,
                "WEIR_POSTGRES_URL": self.api.postgres_url,
                "WEIR_CLICKHOUSE_URL": "http://127.0.0.1:1",
            }
        return base | {"WEIR_URL": self.api.url, "WEIR_TOKEN": token or self.admin_token}

    @contextmanager
    def worker(
        self, *options: str, stores: bool = False, token: str | None = None, app: str = "tasks.shop:app"
    ) -> Iterator[subprocess.Popen[bytes]]:
        """`weir worker`, killed with everything below it when the block is left."""
        only = ("--only", *self.environment.names) if stores else ()
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "weir.cli", "worker", app, *options, *only],
                cwd=self.folder,
                env=self.variables(stores=stores, token=token),
                stdout=log,
                stderr=log,
            )
        with killed_whole(process):
            yield process

    def command(self, *words: str, token: str | None = None) -> subprocess.CompletedProcess[str]:
        """One `weir` command, to its end."""
        return subprocess.run(
            [sys.executable, "-m", "weir.cli", *words],
            cwd=self.folder,
            env=self.variables(stores=False, token=token),
            capture_output=True,
            text=True,
            timeout=START_S,
            check=False,
        )


def stop(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(timeout=START_S)
