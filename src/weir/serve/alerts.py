"""The alerts of a process: the evaluator, and the loops that send notifications."""

from __future__ import annotations

from contextlib import AsyncExitStack

from weir.alerts.evaluator import Evaluator
from weir.alerts.notification_queue import NotificationSender
from weir.alerts.senders import ChannelSender
from weir.alerts.services import AlertServices, alert_services
from weir.alerts.situations import DefinedLifetimes
from weir.broker.broker import Broker
from weir.control.database import Database
from weir.control.sealing import SealingKeys
from weir.model.clock import Clock
from weir.outbound.address_guard import GuardPolicy, guarded_client
from weir.serve.loops import Loop
from weir.settings import AlertSettings
from weir.telemetry.live_workers import WorkerRegister
from weir.warehouse.reading.warehouse import Warehouse


def open_alerting(
    stack: AsyncExitStack,
    settings: AlertSettings,
    database: Database,
    broker: Broker,
    warehouse: Warehouse,
    *,
    policy: GuardPolicy,
    keys: SealingKeys | None,
    clock: Clock,
    workers: WorkerRegister,
) -> tuple[AlertServices, tuple[Loop, ...]]:
    """The alert services that routes use, and their two loops."""
    client = guarded_client(policy)
    stack.push_async_callback(client.aclose)
    sender = ChannelSender(
        client,
        policy=policy,
        clock=clock,
        link=settings.link,
        timeout_ms=round(settings.timeout_s * 1_000),
        allow_apprise=settings.allow_apprise,
    )
    evaluator = Evaluator(
        database=database,
        warehouse=warehouse,
        broker=broker,
        lifetimes=DefinedLifetimes(database),
        clock=clock,
        interval_ms=round(settings.interval_s * 1_000),
        workers=workers,
    )
    loops = (
        Loop(name="alert-evaluator", run=evaluator.run),
        Loop(name="alert-courier", run=NotificationSender(database, sender, keys=keys, clock=clock).run),
    )
    room = alert_services(
        database,
        broker,
        warehouse,
        policy=policy,
        allow_apprise=settings.allow_apprise,
        keys=keys,
        clock=clock,
        workers=workers,
        interval_ms=round(settings.interval_s * 1_000),
    )
    return room, loops
