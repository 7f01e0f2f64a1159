"""Redis' disk fills up after a rewrite of its file: all that was acknowledged is there at the next start."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

from support.disks import as_seen_by, on_a_small_disk
from support.processes import kill9
from support.servers import redis_program
from support.waiting import wait_until
from weir.embedded.ports import free_port

_PROGRAM = Path(__file__).with_name("supervised_redis.py")
pytestmark = pytest.mark.fault


@dataclass(kw_only=True)
class SmallRedis:
    """A supervised Redis on a small disk, and a ledger of what it acknowledged."""

    client: Redis
    disk: Path
    said: Path
    acknowledged: dict[str, str] = field(default_factory=dict)

    def write(self, key: str, size: int) -> bool:
        value = f"{key} " * (size // (len(key) + 1))
        with suppress(RedisError):
            self.client.set(key, value)
            # The server answers the one write in which it finds the disk full, and keeps it in memory alone.
            if self.client.info("persistence")["aof_last_write_status"] == "ok":
                self.acknowledged[key] = value
            return True
        return False

    def fill(self) -> None:
        """Leave less room than a write needs."""
        with (self.disk / "filler").open("ab", buffering=0) as filler:
            size = 1 << 20
            while size:
                try:
                    filler.write(b"x" * size)
                except OSError:
                    size //= 2

    def free(self) -> None:
        (self.disk / "filler").unlink()

    def rewrite(self) -> None:
        self.client.bgrewriteaof()
        wait_until(lambda: not self.client.info("persistence")["aof_rewrite_in_progress"], what="the rewrite")

    def kill_and_wait(self, *, free: bool = False) -> None:
        """Kill it. With `free`, it then finds no room to mend its file, until there is some."""
        info = self.client.info("server")
        before = info["run_id"]
        kill9(info["process_id"])
        if free:
            time.sleep(0.5)
            self.free()
        wait_until(lambda: self._run() not in (None, before), timeout_s=60, what="Redis is back")

    def _run(self) -> str | None:
        with suppress(RedisError):
            return str(self.client.info("server")["run_id"])
        return None

    def lost(self) -> list[str]:
        return [key for key, value in self.acknowledged.items() if self.client.get(key) != value]


@contextmanager
def small_redis(folder: Path, *, size: str = "24m") -> Iterator[SmallRedis]:
    folder.mkdir()
    mounting = on_a_small_disk(folder, size=size)
    assert mounting, "nobody may mount here; run this test as root or where `unshare --user` is allowed"
    chosen = redis_program()
    command = [*mounting, sys.executable, str(_PROGRAM), str(folder), str(free_port())]
    command += [] if chosen is None else [str(chosen)]
    said = folder.with_suffix(".said")
    with (
        said.open("wb") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors) as program,
    ):
        assert program.stdout is not None
        url = program.stdout.readline().decode().strip()
        with Redis.from_url(url, decode_responses=True) as client:
            yield SmallRedis(client=client, disk=as_seen_by(program.pid, folder), said=said)
        program.communicate()


def test_nothing_acknowledged_is_lost_after_a_rewrite_and_a_full_disk(tmp_path: Path) -> None:
    with small_redis(tmp_path / "disk") as redis:
        redis.write("before", 1_000)
        redis.rewrite()
        redis.fill()
        number = 0
        while redis.write(f"filling-{number}", 5_000):
            number += 1
        redis.free()
        wait_until(lambda: redis.write("room", 100), timeout_s=30, what="Redis writes again")
        for number in range(200):
            assert redis.write(f"after-{number}", 500)
        redis.kill_and_wait()
        assert redis.lost() == []
        assert redis.client.dbsize() >= len(redis.acknowledged)
        redis.kill_and_wait()
        assert redis.lost() == []


@pytest.mark.parametrize("seed", range(20))
def test_kills_at_random_moments_of_a_full_disk_lose_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with small_redis(tmp_path / "disk") as redis:
        redis.write("before", 1_000)
        redis.rewrite()
        killed_at = chance.randrange(60)
        filled = False
        for step in range(80):
            redis.write(f"{seed}-{step}", chance.choice((50, 700, 5_000)))
            if step == killed_at:
                redis.kill_and_wait(free=filled)
                filled = False
                assert redis.lost() == []
            if chance.random() < 0.1:
                filled = not filled
                redis.fill() if filled else redis.free()
            if chance.random() < 0.05 and not filled:
                redis.rewrite()
            if filled and chance.random() < 0.2:
                time.sleep(1.1)
        if filled:
            redis.free()
        wait_until(lambda: redis.write("last", 100), timeout_s=30, what="Redis writes again")
        redis.kill_and_wait()
        assert redis.lost() == []
