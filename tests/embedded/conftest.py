"""The embedded ClickHouse for the tests of its front: through its own client and over plain HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import clickhouse_connect
import httpx2
import pytest

from support.urls import with_database


@pytest.fixture
def url(clickhouse_url: str) -> Iterator[str]:
    """A database of the test's own."""
    name = f"t_{uuid4().hex}"
    with clickhouse_connect.get_client(dsn=clickhouse_url) as admin:
        admin.command(f"CREATE DATABASE {name}")
        yield with_database(clickhouse_url, name)
        admin.command(f"DROP DATABASE {name} SYNC")


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    with clickhouse_connect.get_client(dsn=url) as client:
        yield client


@pytest.fixture
def http(clickhouse_url: str) -> Iterator[httpx2.Client]:
    parts = urlsplit(clickhouse_url)
    base = f"http://{parts.hostname}:{parts.port}"
    with httpx2.Client(base_url=base, auth=(parts.username or "", parts.password or "")) as http:
        yield http
