"""The stores behind the alert commands, for one environment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from weir.alerts.delivery import QUEUE, SPEC, Courier, Relay
from weir.alerts.room import AlertRoom, open_alerts
from weir.alerts.senders import ChannelSender
from weir.broker.redis import RedisBroker
from weir.broker.runner import Connection
from weir.cli.options import settings_with
from weir.cli.scope import Place, within
from weir.control.database import Database
from weir.embedded.urls import resolve_urls
from weir.model.clock import SystemClock
from weir.model.names import EnvironmentRef
from weir.outbound.guard import guarded_client
from weir.serve.hooks import guard_policy
from weir.telemetry.connection import connect
from weir.telemetry.tails import RedisTails
from weir.warehouse.reading.warehouse import open_warehouse

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertDesk:
    environment: EnvironmentRef
    room: AlertRoom
    relay: Relay
    courier: Courier


@asynccontextmanager
async def opened(data_dir: Path | None, environment: EnvironmentRef) -> AsyncIterator[AlertDesk]:
    """The stores of the settings, while the block runs."""
    settings = settings_with(data_dir)
    urls = resolve_urls(settings)
    policy = guard_policy(settings.worker)
    async with AsyncExitStack() as stack:
        broker = RedisBroker(Connection(url=urls.redis), shards=settings.shards)
        stack.push_async_callback(broker.aclose)
        redis = connect(urls.redis)
        stack.push_async_callback(redis.aclose)
        warehouse = open_warehouse(
            urls.clickhouse, tails=RedisTails(redis, shards=settings.shards), shards=settings.shards
        )
        stack.push_async_callback(warehouse.aclose)
        client = await stack.enter_async_context(guarded_client(policy))
        database = await stack.enter_async_context(Database(urls.postgres, max_size=4, name="weir-cli"))
        await broker.define(QUEUE, SPEC)
        sender = ChannelSender(
            client,
            policy=policy,
            clock=SystemClock(),
            link=settings.alerts.link,
            timeout_ms=round(settings.alerts.timeout_s * 1_000),
            allow_apprise=settings.alerts.allow_apprise,
        )
        yield AlertDesk(
            environment=environment,
            room=open_alerts(database, broker, warehouse, policy=policy),
            relay=Relay(database, broker),
            courier=Courier(database, broker, sender, consumer="cli"),
        )


def at_alerts(place: Place, work: Callable[[AlertDesk], Awaitable[Result]]) -> Result:
    """Run a command's work; Ctrl-C ends it early."""
    return within(opened(place.data_dir, place.environment), work)
