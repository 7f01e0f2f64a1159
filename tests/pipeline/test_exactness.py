"""A million events while everything around the pipeline is killed, cut or lost: not one more or less."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.emission import Emission
from tests.pipeline.exactness import (
    Rig,
    bounce,
    is_jvm,
    is_python_worker,
    kill_child,
    proxied,
    wait_until_landed,
    wait_until_settled,
)

from support.servers import RunningServer, start_server
from support.tcp_proxy import TcpProxy
from weir.embedded.clickhouse import ClickHouseServer
from weir.telemetry.events import QUEUE_COUNTERS
from weir.telemetry.store import StreamStore
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.migrate import migrate_warehouse

EVENTS = 1_000_000
QUEUES = 1_000
SHARDS = 4
SPLIT_EVENTS = 125_000
PATIENT = ("--wait-s", "150")
"""Everything that a killed pipeline left must land first, and the lease of its audit must end."""


@pytest.fixture
def clickhouse(tmp_path: Path) -> Iterator[RunningServer]:
    """A ClickHouse of the test's own: it will be killed."""
    server = start_server(
        lambda port: ClickHouseServer(tmp_path / "clickhouse", port=port, password="secret"),
        log_folder=tmp_path,
    )
    yield server
    server.stop()


@pytest.fixture
def proxy(clickhouse: RunningServer) -> Iterator[TcpProxy]:
    with proxied(clickhouse.url) as proxy:
        yield proxy


@pytest.fixture
def rig(streams_url: str, clickhouse: RunningServer, proxy: TcpProxy, tmp_path: Path) -> Rig:
    asyncio.run(migrate_warehouse(clickhouse.url))
    return Rig(redis_url=streams_url, clickhouse_url=proxy.url, folder=tmp_path, shards=SHARDS)


def faults(
    rig: Rig, clickhouse: RunningServer, proxy: TcpProxy, chance: random.Random
) -> list[Callable[[], None]]:
    """Each fault several times, in random order, and the long outage once."""
    repeated: list[Callable[[], None]] = [
        rig.kill,
        lambda: kill_child(rig, is_jvm, chance),
        lambda: kill_child(rig, is_python_worker, chance),
        lambda: kill_child(rig, is_python_worker, chance),
        lambda: bounce(clickhouse, away_s=chance.uniform(0.1, 3)),
        rig.forget_checkpoint,
        proxy.drop_next_reply,
        proxy.cut,
    ]
    chosen = [fault for fault in repeated for _ in range(3)] + [lambda: bounce(clickhouse, away_s=60)]
    chance.shuffle(chosen)
    return chosen


@pytest.mark.fault
def test_a_million_events_land_exactly_once_whatever_is_killed(
    rig: Rig, clickhouse: RunningServer, proxy: TcpProxy, streams_url: str
) -> None:
    chance = random.Random(20_261_116)
    emission = Emission(streams_url, shards=SHARDS, queues=QUEUES, environments=40)
    rig.start()
    emitting = threading.Thread(target=_emit_slowly, args=(emission,))
    emitting.start()
    for fault in faults(rig, clickhouse, proxy, chance):
        time.sleep(chance.uniform(3, 12))
        rig.ensure()
        fault()
        rig.ensure()
    emitting.join()
    try:
        landed = wait_until_landed(rig, lambda: ClickHouseConnection(clickhouse.url), EVENTS, wait_s=600)
        assert landed == EVENTS
        wait_until_settled(StreamStore(streams_url), wait_s=60)
        _check(ClickHouseConnection(clickhouse.url), emission)
        report = rig.command("audit", *PATIENT)
        assert (report["drift"], report["events"], report["queues"]) == (0, EVENTS, QUEUES)
    finally:
        rig.stop()
        emission.redis.close()


@pytest.mark.fault
@pytest.mark.parametrize("queues", [QUEUES, 15_000], ids=["few rows", "many rows"])
def test_one_stream_read_by_four_tasks_lands_exactly_once_whatever_is_killed(
    clickhouse: RunningServer, proxy: TcpProxy, streams_url: str, tmp_path: Path, queues: int
) -> None:
    """Backlogs that are cut into four ranges each, with a kill while they are read, merged or inserted."""
    asyncio.run(migrate_warehouse(clickhouse.url))
    settings = {"WEIR_PIPELINE__MAX_READ_TASKS": "4", "WEIR_PIPELINE__MAX_EVENTS": "200000"}
    rig = Rig(redis_url=streams_url, clickhouse_url=proxy.url, folder=tmp_path, shards=1, **settings)
    chance, store = random.Random(4), StreamStore(streams_url)
    emission = Emission(streams_url, shards=1, queues=queues, environments=40)
    kills: list[Callable[[], None]] = [
        lambda: kill_child(rig, is_python_worker, chance),
        lambda: kill_child(rig, is_python_worker, chance),
        lambda: bounce(clickhouse, away_s=1),
        lambda: bounce(clickhouse, away_s=0.1),
        proxy.drop_next_reply,
        lambda: kill_child(rig, is_jvm, chance),
        rig.kill,
        rig.forget_checkpoint,
    ]
    rig.start()
    try:
        cuts = 0
        for kill in kills:
            store.hold(600, holder="test")
            emission.emit(SPLIT_EVENTS)
            store.release(holder="test")
            plan = _wait_for_cuts(rig, store)
            cuts += len(plan["end"]["split"]["cuts"]["queue"]["0"])
            time.sleep(chance.uniform(0.1, 1.5))
            kill()
            landed = wait_until_landed(
                rig, lambda: ClickHouseConnection(clickhouse.url), emission.events, wait_s=200
            )
            assert landed == emission.events
        assert cuts == 3 * len(kills)
        wait_until_settled(store, wait_s=60)
        _check(ClickHouseConnection(clickhouse.url), emission)
        report = rig.command("audit", *PATIENT)
        assert (report["drift"], report["events"]) == (0, emission.events)
    finally:
        rig.stop()
        store.close()
        emission.redis.close()


def _wait_for_cuts(rig: Rig, store: StreamStore) -> dict[str, Any]:
    """The plan of a batch with a cut stream, as soon as there is one."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        rig.ensure()
        plan = store.recall("plan")
        if plan is not None and plan["start"] != plan["end"] and "split" in plan["end"]:
            return plan
        time.sleep(0.02)
    raise TimeoutError("no batch was cut")


def _emit_slowly(emission: Emission) -> None:
    """About four minutes of traffic, so that every fault falls into some of it."""
    for _ in range(200):
        emission.emit(EVENTS // 200)
        time.sleep(0.6)


def _check(warehouse: ClickHouseConnection, emission: Emission) -> None:
    columns = ", ".join(f"sum({name}) AS {name}" for name in ("events", *QUEUE_COUNTERS))
    expected = {"events": emission.events, **{name: emission.counted[name] for name in QUEUE_COUNTERS}}
    for tier in ("5s", "1m", "1h"):
        for subject in ("queue", "environment"):
            table = f"{subject}_metrics_{tier}"
            assert warehouse.rows(f"SELECT {columns} FROM {table}")[0] == expected, table
