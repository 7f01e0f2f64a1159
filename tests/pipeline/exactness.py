"""A pipeline process under fire: what may be done to it and its stores while events flow."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from support.servers import RunningServer
from support.tcp_proxy import TcpProxy
from weir.telemetry.store import StreamStore
from weir.warehouse.connection import ClickHouseConnection


class Rig:
    """One `weir pipeline run`, started again whenever it dies, as a service manager would."""

    def __init__(
        self, *, redis_url: str, clickhouse_url: str, folder: Path, shards: int, **settings: str
    ) -> None:
        self._folder = folder
        self._environment = {
            **os.environ,
            "WEIR_REDIS_URL": redis_url,
            "WEIR_POSTGRES_URL": "postgresql://nobody@127.0.0.1:1/none",
            "WEIR_CLICKHOUSE_URL": clickhouse_url,
            "WEIR_SHARDS": str(shards),
            "WEIR_PIPELINE__TRIGGER_MS": "200",
            "WEIR_PIPELINE__MAX_EVENTS": "60000",
            "WEIR_EMBEDDED__DATA_DIR": str(folder / "data"),
            **settings,
        }
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def checkpoint(self) -> Path:
        return self._folder / "data" / "pipeline" / "checkpoint"

    def start(self) -> None:
        with (self._folder / "pipeline.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "weir.cli", "pipeline", "run"],
                env=self._environment, cwd=self._folder, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def ensure(self) -> None:
        if self.process is None or self.process.poll() is not None:
            self.start()

    def kill(self) -> None:
        """End the driver and whatever it left, at once."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            mine = psutil.Process(self.process.pid).children(recursive=True)
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
            for child in mine:
                if child.is_running():
                    child.kill()

    def child(self, chosen: Callable[[psutil.Process], bool], chance: random.Random) -> psutil.Process | None:
        """One of the processes below the driver."""
        if self.process is None or self.process.poll() is not None:
            return None
        found = [
            one for one in psutil.Process(self.process.pid).children(recursive=True) if _safely(chosen, one)
        ]
        return chance.choice(found) if found else None

    def forget_checkpoint(self) -> None:
        """Stop hard and lose the checkpoint."""
        self.kill()
        shutil.rmtree(self.checkpoint, ignore_errors=True)

    def command(self, *words: str) -> dict[str, object]:
        """Run another command of the pipeline and read its JSON."""
        output = subprocess.run(
            [sys.executable, "-m", "weir.cli", "pipeline", *words, "--json"],
            env=self._environment, cwd=self._folder, capture_output=True, check=False,
        )  # fmt: skip
        assert output.stdout, output.stderr.decode()[-2_000:]
        answer: dict[str, object] = json.loads(output.stdout.splitlines()[-1])
        return answer


@contextmanager
def proxied(url: str) -> Iterator[TcpProxy]:
    """A proxy to a server, in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    proxy = TcpProxy.to(url)
    asyncio.run_coroutine_threadsafe(proxy.__aenter__(), loop).result()
    try:
        yield proxy
    finally:
        asyncio.run_coroutine_threadsafe(proxy.__aexit__(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def is_jvm(process: psutil.Process) -> bool:
    return "java" in process.name()


def is_python_worker(process: psutil.Process) -> bool:
    return "worker_daemon" in " ".join(process.cmdline())


def kill_child(rig: Rig, chosen: Callable[[psutil.Process], bool], chance: random.Random) -> None:
    child = rig.child(chosen, chance)
    if child is not None:
        child.kill()


def bounce(server: RunningServer, *, away_s: float) -> None:
    """Kill a server and bring it back after a while."""
    server.kill()
    time.sleep(away_s)
    server.start()


def wait_until_landed(
    rig: Rig, connection: Callable[[], ClickHouseConnection], events: int, *, wait_s: float
) -> int:
    """Wait until the ledger holds as many events as were emitted, restarting the pipeline if it died."""
    deadline = time.monotonic() + wait_s
    landed = 0
    while time.monotonic() < deadline:
        rig.ensure()
        try:
            landed = connection().rows("SELECT sum(events) AS n FROM queue_ledger")[0]["n"]
        except Exception:
            landed = -1
        if landed >= events:
            break
        time.sleep(0.5)
    return landed


def wait_until_settled(store: StreamStore, *, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        plan = store.recall("plan")
        if plan is not None and plan["start"] == plan["end"]:
            return
        time.sleep(0.2)


def _safely(chosen: Callable[[psutil.Process], bool], process: psutil.Process) -> bool:
    try:
        return chosen(process)
    except psutil.Error:
        return False
