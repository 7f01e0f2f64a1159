"""A pipeline of a test's own: a Redis database, a warehouse, folders; and one Spark session for all."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from redis import Redis
from tests.pipeline.emission import Emission

from support.urls import with_database
from weir.pipeline.job import PipelineOptions
from weir.pipeline.session import SessionOptions, open_session
from weir.warehouse.connection import ClickHouseConnection

_DATABASES = count()


@pytest.fixture
def streams_url(redis_url: str) -> Iterator[str]:
    """A Redis database that no other room writes to: streams have fixed names."""
    url = with_database(redis_url, str(8 + next(_DATABASES) % 8))
    redis = Redis.from_url(url)
    redis.flushdb()
    yield url
    redis.flushdb()
    redis.close()


@pytest.fixture
def emission(streams_url: str) -> Iterator[Emission]:
    emission = Emission(streams_url)
    yield emission
    emission.redis.close()


@pytest.fixture
def warehouse(warehouse_url: str) -> Iterator[ClickHouseConnection]:
    connection = ClickHouseConnection(warehouse_url)
    yield connection
    connection.close()


@pytest.fixture
def options(streams_url: str, warehouse_url: str, tmp_path: Path) -> PipelineOptions:
    return PipelineOptions(
        redis_url=streams_url,
        clickhouse_url=warehouse_url,
        checkpoint=str(tmp_path / "checkpoint"),
        archive=str(tmp_path / "archive"),
        shards=2,
        trigger_ms=100,
    )


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for every test that needs one; starting it takes seconds."""
    scratch = tmp_path_factory.mktemp("spark")
    session = open_session(SessionOptions(master="local[2,4]", name="weir-tests", scratch=scratch))
    yield session
    session.stop()
