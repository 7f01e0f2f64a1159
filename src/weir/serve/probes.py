"""Readiness probes: a process takes traffic while the essential ones succeed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from weir.api.services import ReadinessProbe
from weir.broker.broker import Broker
from weir.broker.preflight import check_redis
from weir.control.database import Database
from weir.control.epochs import Epochs
from weir.control.sql import NamedQuery
from weir.embedded.datadir import free_space
from weir.errors import ControlUnavailable, Unavailable
from weir.model.names import SYSTEM_ORGANIZATION, EnvironmentRef

_ONE = NamedQuery(name="one", sentence="Show that PostgreSQL answers.", text="SELECT 1 AS one")
_PROBE_SCOPE = EnvironmentRef(organization=SYSTEM_ORGANIZATION, project="weir", environment="readiness")


def redis_probe(broker: Broker, *, url: str) -> ReadinessProbe:
    """Redis takes writes, and would be accepted at a start.

    With a full disk, or as a read-only replica, it answers reads but refuses a write. Its settings may change
    while this process serves.
    """

    async def check() -> None:
        await broker.limit(_PROBE_SCOPE, None)
        await check_redis(url)

    return ReadinessProbe(name="redis", check=check)


def postgres_probe(database: Database) -> ReadinessProbe:
    """PostgreSQL answers. Not essential: requests with known tokens work without it for a while."""

    async def check() -> None:
        await database.fetch_one(_ONE)

    return ReadinessProbe(name="postgres", check=check, essential=False)


def epoch_probe(epochs: Epochs) -> ReadinessProbe:
    """Redis is the one that PostgreSQL knows. While PostgreSQL is away, the probe succeeds."""

    async def check() -> None:
        try:
            await epochs.check()
        except ControlUnavailable:
            return

    return ReadinessProbe(name="epoch", check=check)


def disk_probe(path: Path, *, min_free_bytes: int) -> ReadinessProbe:
    """The disk of the data directory, on which the embedded servers write, has free space."""

    async def check() -> None:
        existing, free_bytes = await asyncio.to_thread(free_space, path)
        if free_bytes < min_free_bytes:
            raise Unavailable(f"only {free_bytes} bytes are free in `{existing}`; make room")

    return ReadinessProbe(name="disk", check=check)
