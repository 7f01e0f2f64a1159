"""Builds webhooks, specs and workers from the settings."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from weir.alerts.rules import follow_spec
from weir.broker.broker import Broker
from weir.channels.channels import Channels
from weir.control.app_register import AppRegister
from weir.control.current_specs import CurrentSpecs
from weir.control.database import Database
from weir.control.spec_register import SpecRegister
from weir.control.store_clock import StoreClock
from weir.control.system_events import SystemEvent
from weir.exchange.seam import Pusher
from weir.ingress.receive import Receiver
from weir.ingress.synchronous import SynchronousCommands
from weir.lineage.children import PostgresChildren
from weir.model.clock import Clock
from weir.outbound.address_guard import GuardPolicy, check_url, guarded_client
from weir.outbound.addresses import parse_networks
from weir.outbound.delivery_log import PostgresDeliveryLog
from weir.schedules.register import follow_app
from weir.schedules.register import follow_spec as follow_schedules
from weir.serve.loops import Loop
from weir.settings import WorkerSettings, secret
from weir.telemetry.presence import Presence
from weir.workers.commands import Commands, load_commands
from weir.workers.hook_keys import PostgresHookKeys
from weir.workers.journal import PostgresJournal
from weir.workers.run_message import TaskHandler, Tools
from weir.workers.threads import DaemonThreads
from weir.workers.worker import Worker, WorkerOptions

if TYPE_CHECKING:
    from weir.tracing.tracer import Tracer


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """The specs, apps and webhooks of an API process."""

    registry: CurrentSpecs
    receiver: Receiver
    specs: SpecRegister
    apps: AppRegister

    def loops(self) -> tuple[Loop, ...]:
        return (Loop(name="spec-registry", run=self.registry.run),)

    async def refresh_registry(self, event: SystemEvent) -> None:
        """Read the specs again, because specs or queues changed, perhaps in another process."""
        await self.registry.refresh()


async def open_hooks(
    database: Database,
    broker: Broker,
    pusher: Pusher,
    settings: WorkerSettings,
    *,
    clock: Clock,
    tracer: Tracer | None = None,
) -> Hooks:
    """Receive webhooks as the applied specs say, from the first request on."""
    registry = CurrentSpecs(database)
    await registry.refresh()
    synchronous = SynchronousCommands(
        commands_of(settings), executor=DaemonThreads(), keys=PostgresHookKeys(database), clock=clock
    )
    specs = open_specs(database, broker, settings)
    return Hooks(
        registry=registry,
        receiver=Receiver(registry, pusher, secrets=secret, commands=synchronous, clock=clock, tracer=tracer),
        specs=specs,
        apps=open_apps(database, specs),
    )


def open_specs(database: Database, broker: Broker, settings: WorkerSettings) -> SpecRegister:
    """The register of specs, with the channels, alerts and schedules that change along with a spec."""
    return SpecRegister(
        database,
        broker,
        companions=(Channels(database).follow, follow_spec, follow_schedules),
        check_target=partial(check_url, policy=guard_policy(settings)),
    )


def open_apps(database: Database, specs: SpecRegister) -> AppRegister:
    """The register of apps, with the schedules that change along with an app."""
    return AppRegister(database, specs, follow_schedules=follow_app)


def commands_of(settings: WorkerSettings) -> Commands:
    """The registered commands; none if no app is named."""
    return Commands() if settings.app is None else load_commands(settings.app)


def guard_policy(settings: WorkerSettings) -> GuardPolicy:
    """Where outbound requests of this installation may go."""
    return GuardPolicy(allowed=parse_networks(settings.allowed_subnets), https_only=settings.https_only)


async def open_worker(
    stack: AsyncExitStack,
    database: Database,
    broker: Broker,
    settings: WorkerSettings,
    options: WorkerOptions,
    *,
    presence: Presence,
    count_job: Callable[[], None],
    tracer: Tracer | None = None,
    tasks: TaskHandler | None = None,
) -> tuple[Worker, tuple[Loop, ...]]:
    """A worker on the stores, and the loops that must run beside it."""
    registry = CurrentSpecs(database)
    await registry.refresh()
    clock = StoreClock(database)
    await clock.ask()
    log = PostgresDeliveryLog(database, clock=clock)
    await log.refresh()
    journal = PostgresJournal(database, clock=clock)
    children = PostgresChildren(database, clock=clock)
    client = await stack.enter_async_context(guarded_client(guard_policy(settings)))
    tools = Tools(
        broker=broker,
        commands=Commands() if tasks is not None else commands_of(settings),
        tasks=tasks,
        clock=clock,
        secrets=secret,
        client=client,
        log=log,
        executor=DaemonThreads(),
        tracer=tracer,
        children=children,
    )
    loops = (
        Loop(name="store-clock", run=clock.run),
        Loop(name="spec-registry", run=registry.run),
        Loop(name="delivery-log", run=log.run),
        Loop(name="journal", run=journal.run),
        Loop(name="lineage", run=children.run),
    )
    return Worker(tools, registry, journal, options, presence=presence, count_job=count_job), loops
