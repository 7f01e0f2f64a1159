"""`weir worker --processes`: its processes are restarted, stopped together, and seen apart."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest

from support.processes import descendants, is_alive, kill9
from support.waiting import until
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.control.database import Database
from weir.control.spec_plans import SpecText
from weir.model.ids import MessageId
from weir.model.inspection import Touched
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef
from weir.redis_client import connect
from weir.serve.hooks import open_specs
from weir.settings import Settings, WorkerSettings
from weir.telemetry.live_workers import LiveWorkers
from weir.workers.journal import attempts_of
from weir.workers.timeline import Timelines

# Python needs a second to import a worker, and ten on a machine that is busy with other tests.
START_S = 60.0
ROOT = Path(__file__).parents[1]
SPEC = """
app A {
  queue Q {
    message_type { number: int, pause_s: float }
    delivery { max_attempts: 5, lease: 2s }
    map_to: command Thing.Do { number: number, pause_s: pause_s }
  }
}
"""


@dataclass(frozen=True, kw_only=True)
class Note:
    """One line of what handlers wrote."""

    what: str
    number: int
    attempt: int
    pid: int


@dataclass(frozen=True, kw_only=True)
class Place:
    """A queue in real stores, and the files of the worker processes on it."""

    environment: EnvironmentRef
    broker: RedisBroker
    redis_url: str
    postgres_url: str
    folder: Path

    async def put(self, numbers: range, *, pause_s: float) -> list[MessageId]:
        payloads = [orjson.dumps({"number": number, "pause_s": pause_s}) for number in numbers]
        answers = await self.broker.enqueue(
            self.environment.queue("Q"), [NewMessage(payload=payload) for payload in payloads]
        )
        return [answer.message_id for answer in answers]

    def notes(self, what: str) -> list[Note]:
        path = self.folder / "notes"
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [
            Note(what=word, number=int(number), attempt=int(attempt), pid=int(pid))
            for word, number, attempt, pid in lines
            if word == what
        ]

    def log(self) -> str:
        return (self.folder / "log").read_text()

    @asynccontextmanager
    async def supervised(
        self, *options: str, app: str = "workers.processes_app:app"
    ) -> AsyncIterator[subprocess.Popen[bytes]]:
        """`weir worker --processes 2`, killed with everything below it when the block is left."""
        command = [sys.executable, "-m", "weir.cli", "worker", "--app", app, "--processes", "2", *options]
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "WEIR_REDIS_URL": self.redis_url,
            "WEIR_POSTGRES_URL": self.postgres_url,
            "WEIR_CLICKHOUSE_URL": "http://127.0.0.1:1",
            "WORKER_NOTES": str(self.folder / "notes"),
        }
        with (self.folder / "log").open("ab") as log:
            supervisor = subprocess.Popen(  # noqa: ASYNC220
                [*command, "--only", *self.environment.names],
                cwd=self.folder, env=environment, stdout=log, stderr=log,
            )  # fmt: skip
        try:
            yield supervisor
        finally:
            below = descendants(supervisor.pid)
            supervisor.kill()
            supervisor.wait()
            for one in below:
                if one.is_running():
                    one.kill()


@pytest.fixture
async def place(
    redis_url: str, database_url: str, environment: EnvironmentRef, tmp_path: Path
) -> AsyncIterator[Place]:
    broker = RedisBroker(RedisConnection(url=redis_url), shards=Settings().shards)
    async with Database(database_url, max_size=2) as database:
        await open_specs(database, broker, WorkerSettings()).apply(
            environment, SpecText(source=SPEC), actor="test"
        )
    yield Place(
        environment=environment,
        broker=broker,
        redis_url=redis_url,
        postgres_url=database_url,
        folder=tmp_path,
    )
    await broker.aclose()


async def test_a_killed_process_is_replaced_and_its_messages_are_delivered_again(place: Place) -> None:
    async with place.supervised("--concurrency", "4") as supervisor:
        await place.put(range(40), pause_s=0.3)
        await until(lambda: len({note.pid for note in place.notes("began")}) == 2, within_s=START_S)
        victim = place.notes("began")[-1].pid
        held = {note.number for note in place.notes("began") if note.pid == victim}
        held -= {note.number for note in place.notes("ended")}
        kill9(victim)

        async def all_done() -> bool:
            for shard in range(place.broker.shards):
                await place.broker.sweep(shard)
            return {note.number for note in place.notes("ended")} == set(range(40))

        await until(all_done, within_s=START_S)
        await until(lambda: len({one.pid for one in descendants(supervisor.pid)}) == 2, within_s=START_S)
        again = {note.number for note in place.notes("began") if note.attempt > 1}
        assert held <= again
        pids = {note.pid for note in place.notes("began")}
        assert victim in pids
        assert "signal 9" in place.log()
        assert f"{victim}" in place.log()


async def test_a_stop_lets_handlers_finish_and_loses_nothing(place: Place) -> None:
    async with place.supervised("--concurrency", "3") as supervisor:
        await place.put(range(60), pause_s=0.1)
        await until(lambda: len(place.notes("ended")) >= 10, within_s=START_S)
        supervisor.send_signal(signal.SIGTERM)
        await until(lambda: supervisor.poll() is not None, within_s=START_S)
        assert supervisor.returncode == 0
    began = Counter(note.number for note in place.notes("began"))
    ended = Counter(note.number for note in place.notes("ended"))
    assert began == ended
    assert set(began.values()) == {1}, "nothing ran twice"
    state = await place.broker.state(place.environment.queue("Q"))
    assert (state.running, state.depth) == (0, 60 - len(ended))


async def test_a_message_that_is_cancelled_while_it_runs_stops_within_a_second(place: Place) -> None:
    queue = place.environment.queue("Q")
    async with place.supervised("--concurrency", "3") as supervisor:
        ids = await place.put(range(2), pause_s=60)
        await until(lambda: len(place.notes("began")) == 2, within_s=START_S)
        asked = time.monotonic()
        assert await place.broker.cancel(queue, ids) == [Touched.REVOKED] * 2
        await until(lambda: len(place.notes("cancelled")) == 2, within_s=START_S)
        assert time.monotonic() - asked < 1.5, "a second, and some time to note it"
        await place.put(range(2, 3), pause_s=0)
        await until(lambda: place.notes("ended"), within_s=START_S)
        supervisor.send_signal(signal.SIGTERM)
        await until(lambda: supervisor.poll() is not None, within_s=START_S)
    assert {note.number for note in place.notes("began")} == {0, 1, 2}
    assert {note.attempt for note in place.notes("began")} == {1}, "nothing was tried again"
    async with Database(place.postgres_url, max_size=1) as database:
        attempts = [row for one in ids for row in await attempts_of(database, place.environment, one)]
        assert [row["ending"] for row in attempts] == ["cancelled"] * 2
        timeline = await Timelines(database, place.broker).of(place.environment, ids[0])
    assert timeline.state == "cancelled"
    assert timeline.moments[-1].what == "attempt cancelled"
    state = await place.broker.state(queue)
    assert (state.running, state.depth, state.delayed) == (0, 0, 0)


async def test_each_process_is_a_worker_of_its_own(place: Place) -> None:
    redis = connect(place.redis_url)

    async def alive() -> list[object]:
        return [one for one in await LiveWorkers(redis).alive() if one.environment == place.environment]

    try:
        async with place.supervised() as supervisor:
            await until(lambda: _count(alive, 2), within_s=START_S)
            supervisor.send_signal(signal.SIGINT)
            await until(lambda: supervisor.poll() is not None, within_s=START_S)
            assert supervisor.returncode == 0
            assert not await alive(), "a worker that ended well takes its note away"
    finally:
        await redis.aclose()


async def _count(look, count: int) -> bool:
    return len(await look()) == count


async def test_processes_that_are_misconfigured_are_not_started_again(place: Place) -> None:
    async with place.supervised(app="nowhere_at_all:app") as supervisor:
        await until(lambda: supervisor.poll() is not None, within_s=START_S)
        assert supervisor.returncode == 2
        assert not descendants(supervisor.pid)
    assert "cannot be imported" in place.log()
    assert "started again" not in place.log()


async def test_processes_drain_when_their_supervisor_is_killed(place: Place) -> None:
    async with place.supervised() as supervisor:
        await place.put(range(4), pause_s=0.5)
        await until(lambda: place.notes("began"), within_s=START_S)
        below = [one.pid for one in descendants(supervisor.pid)]
        kill9(supervisor.pid)
        await until(lambda: not any(is_alive(pid) for pid in below), within_s=START_S)
    assert len(place.notes("began")) == len(place.notes("ended"))
