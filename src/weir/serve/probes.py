"""Readiness probes: a process takes traffic while the essential ones succeed."""

from __future__ import annotations

from weir.api.services import ReadinessProbe
from weir.broker.broker import Broker
from weir.broker.preflight import check_redis
from weir.control.database import Database
from weir.control.epochs import Epochs
from weir.control.sql import NamedQuery
from weir.errors import ControlUnavailable
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
