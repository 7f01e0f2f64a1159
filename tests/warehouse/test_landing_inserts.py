"""A landing insert reaches every table exactly once, however often it is repeated or cut off."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from support.history import Moment, landing_table
from support.servers import RunningServer, start_server
from support.urls import with_database
from support.warehouse import NOW_MS, tier_rows
from weir.embedded.clickhouse import ClickHouseServer
from weir.errors import WarehouseUnavailable
from weir.model.names import EnvironmentRef
from weir.pipeline.definition import QUEUE_METRIC
from weir.warehouse.connection import INSERT_SETTINGS, ClickHouseConnection
from weir.warehouse.migrate import migrate_warehouse
from weir.warehouse.tables import ENVIRONMENTS, OFFSETS, QUEUES

TABLES = (*(tier.table for each in (QUEUES, ENVIRONMENTS) for tier in each.tiers), "queue_ledger", OFFSETS)
KILLS = 40


def landing(*, seed: int, queues: int = 60, buckets: int = 3) -> pa.Table:
    """Rows of one insert: several buckets of many queues, with waits."""
    chance = random.Random(seed)
    environments = [
        EnvironmentRef(organization="acme", project="shop", environment=f"env-{number}")
        for number in range(4)
    ]
    moments = [
        Moment(
            queue=environments[queue % 4].queue(f"queue-{queue}"),
            at_ms=NOW_MS - 600_000 + 5_000 * (bucket + seed % 50),
            counts={"enqueued": chance.randrange(5), "acked": 1},
            gauges={"queue_length": chance.randrange(500), "environment_length": chance.randrange(5_000)},
            odometers={"enqueued": 10 * seed + bucket},
            waits_ms=[chance.randrange(1, 100_000) for _ in range(chance.randrange(4))],
        )
        for queue in range(queues)
        for bucket in range(buckets)
    ]
    return landing_table(moments)


def held(connection: ClickHouseConnection) -> dict[str, list[dict]]:
    return {table: tier_rows(connection, table) for table in TABLES}


@pytest.fixture
def connection(warehouse_url: str) -> Iterator[ClickHouseConnection]:
    connection = ClickHouseConnection(warehouse_url)
    yield connection
    connection.close()


def test_a_repeated_token_changes_no_table(connection: ClickHouseConnection) -> None:
    connection.insert(QUEUE_METRIC.landing, landing(seed=1), token="one")
    connection.insert(QUEUE_METRIC.landing, landing(seed=2), token="two")
    once = held(connection)
    assert all(once.values())
    for token, seed in (("one", 1), ("two", 2), ("one", 1)):
        connection.insert(QUEUE_METRIC.landing, landing(seed=seed), token=token)
    assert held(connection) == once


def test_rows_that_arrive_in_several_blocks_are_the_same_insert(connection: ClickHouseConnection) -> None:
    rows = landing(seed=3)
    connection.insert(QUEUE_METRIC.landing, rows, token="three")
    once = held(connection)
    for pieces in (2, 7, rows.num_rows):
        size = -(-rows.num_rows // pieces)
        cut = pa.concat_tables([rows.slice(start, size) for start in range(0, rows.num_rows, size)])
        assert cut.column(0).num_chunks > 1
        connection.insert(QUEUE_METRIC.landing, cut, token="three")
    assert held(connection) == once


def test_every_view_is_fed_side_by_side(connection: ClickHouseConnection) -> None:
    """Ungrouped views and parallel ones hold what one row at a time would give."""
    assert INSERT_SETTINGS["parallel_view_processing"] == 1
    rows = landing(seed=4)
    connection.insert(QUEUE_METRIC.landing, rows, token="whole")
    whole = held(connection)
    for table in TABLES:
        connection.command(f"TRUNCATE TABLE {table}")
    for start in range(0, rows.num_rows, 30):
        connection.insert(QUEUE_METRIC.landing, rows.slice(start, 30), token=f"part-{start}")
    assert held(connection) == whole


@pytest.fixture
def clickhouse(tmp_path: Path) -> Iterator[RunningServer]:
    """A ClickHouse of the test's own: it will be killed."""
    server = start_server(
        lambda port: ClickHouseServer(tmp_path / "clickhouse", port=port, password="secret"),
        log_folder=tmp_path,
    )
    yield server
    server.stop()


def test_a_token_from_before_a_restart_is_known_after_it(clickhouse: RunningServer) -> None:
    """Also right after the migration, when no view has been loaded from disk yet."""
    asyncio.run(migrate_warehouse(clickhouse.url))
    rows = landing(seed=5)
    _insert(clickhouse.url, rows, "five")
    once = _events(clickhouse.url)
    assert set(once.values()) == {rows.num_rows}
    clickhouse.kill()
    clickhouse.start()
    _insert(clickhouse.url, rows, "five")
    assert _events(clickhouse.url) == once


@pytest.mark.fault
def test_a_kill_in_the_middle_of_an_insert_loses_and_doubles_nothing(clickhouse: RunningServer) -> None:
    """Each insert is cut off once and repeated; some kills must find a part of the tables fed."""
    url, calm_url = (with_database(clickhouse.url, name) for name in ("killed", "calm"))
    for each in (url, calm_url):
        asyncio.run(migrate_warehouse(each))
    chance, torn, usual_s = random.Random(11), 0, 0.5
    for number in range(KILLS):
        rows, before = landing(seed=number, queues=3_000), _events(url)
        insert = threading.Thread(target=_try, args=(url, rows, f"batch-{number}"))
        insert.start()
        time.sleep(chance.uniform(0, usual_s))
        clickhouse.kill()
        insert.join(timeout=60)
        clickhouse.start()
        grown = {table: count - before[table] for table, count in _events(url).items()}
        torn += 0 < sum(map(bool, grown.values())) < len(TABLES)
        began = time.monotonic()
        _insert(url, rows, f"batch-{number}")
        usual_s = 0.7 * usual_s + 0.3 * (time.monotonic() - began)
    for number in range(KILLS):
        _insert(calm_url, landing(seed=number, queues=3_000), f"batch-{number}")
    killed, calm = ClickHouseConnection(url), ClickHouseConnection(calm_url)
    for table in TABLES:
        assert tier_rows(killed, table) == tier_rows(calm, table), table
    assert torn > 0


def _insert(url: str, rows: pa.Table, token: str) -> None:
    connection = ClickHouseConnection(url)
    try:
        connection.insert(QUEUE_METRIC.landing, rows, token=token)
    finally:
        connection.close()


def _try(url: str, rows: pa.Table, token: str) -> None:
    try:
        _insert(url, rows, token)
    except WarehouseUnavailable:
        """The server was killed: whether the rows are in is unknown."""


def _events(url: str) -> dict[str, int]:
    connection = ClickHouseConnection(url)
    try:
        return {
            table: connection.rows(f"SELECT sum(events) AS events FROM {table}")[0]["events"]
            for table in TABLES
        }
    finally:
        connection.close()
