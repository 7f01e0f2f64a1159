"""Builds webhooks, specs and workers from the settings."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import structlog

from weir.alerts.lease import INTERVAL_MS
from weir.alerts.rules import follow_spec
from weir.broker.broker import Broker
from weir.channels.channels import Channels
from weir.control.app_register import AppRegister
from weir.control.current_specs import CurrentSpecs
from weir.control.database import Database
from weir.control.sealing import SealingKeys
from weir.control.secrets import Secrets
from weir.control.spec_plans import SpecRules
from weir.control.spec_register import SpecRegister
from weir.control.store_clock import StoreClock
from weir.control.system_events import SystemEvent
from weir.exchange.seam import Pusher
from weir.ingress.receive import Receiver
from weir.ingress.synchronous import SynchronousCommands
from weir.lineage.children import PostgresChildren
from weir.model.clock import Clock
from weir.model.names import EnvironmentRef
from weir.outbound.address_guard import GuardPolicy, check_url, guarded_client
from weir.outbound.addresses import parse_networks
from weir.outbound.delivery_log import PostgresDeliveryLog
from weir.schedules.register import follow_app
from weir.schedules.register import follow_spec as follow_schedules
from weir.serve.loops import Loop
from weir.serve.spec_checks import SPEC_CHECKS
from weir.settings import Settings, WorkerSettings, variables_set
from weir.spec.snapshot import SpecSnapshot
from weir.stores.sealing_keys import sealing_keys
from weir.telemetry.presence import Presence
from weir.workers.commands import Commands, load_commands
from weir.workers.hook_keys import PostgresHookKeys
from weir.workers.journal import PostgresJournal
from weir.workers.run_message import TaskHandler, Tools
from weir.workers.threads import DaemonThreads
from weir.workers.worker import Worker, WorkerOptions

log = structlog.get_logger("weir.serve")
_NAMES_SHOWN = 20
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
        return (
            Loop(name="spec-registry", run=self.registry.run),
            Loop(name="queue-changes", run=self.specs.changes.run),
        )

    async def refresh_registry(self, event: SystemEvent) -> None:
        """Read the specs again, because specs or queues changed, perhaps in another process."""
        await self.registry.refresh()


async def open_hooks(
    database: Database,
    broker: Broker,
    pusher: Pusher,
    settings: WorkerSettings,
    *,
    secrets: Secrets,
    clock: Clock,
    tracer: Tracer | None = None,
    alert_interval_ms: int = INTERVAL_MS,
) -> Hooks:
    """Receive webhooks as the applied specs say, from the first request on."""
    registry = CurrentSpecs(database)
    await registry.refresh()
    warn_of_variables(registry.snapshot, secrets)
    synchronous = SynchronousCommands(
        commands_of(settings), executor=DaemonThreads(), keys=PostgresHookKeys(database), clock=clock
    )
    specs = open_specs(database, broker, settings, alert_interval_ms=alert_interval_ms)
    return Hooks(
        registry=registry,
        receiver=Receiver(
            registry, pusher, secrets=secrets.of, commands=synchronous, clock=clock, tracer=tracer
        ),
        specs=specs,
        apps=open_apps(database, specs),
    )


async def open_secrets(database: Database, keys: SealingKeys | None, *, clock: Clock) -> Secrets:
    """The secrets of all environments, read once; fails if none of the stored ones can be opened."""
    secrets = Secrets(database, keys, clock=clock)
    await secrets.demand_key()
    await secrets.load()
    return secrets


def warn_of_variables(snapshot: SpecSnapshot, secrets: Secrets) -> None:
    """Say at the start which secrets of specs were variables before, and are not stored."""
    missing = {name for environment, name in snapshot.named_secrets() if not secrets.of(environment, name)}
    if found := sorted(variables_set(missing)):
        log.warning(
            "specs name secrets that are not stored, and variables of this process are not read any more; "
            "`weir secret import-environment` stores them, for each environment",
            variables=found[:_NAMES_SHOWN],
        )


def _no_secret(_: EnvironmentRef, __: str) -> tuple[str, ...]:
    """Workers of tasks deliver nothing."""
    return ()


def open_specs(
    database: Database, broker: Broker, settings: WorkerSettings, *, alert_interval_ms: int = INTERVAL_MS
) -> SpecRegister:
    """The register of specs, with the channels, alerts and schedules that change along with a spec."""
    follow_alerts = partial(follow_spec, interval_ms=alert_interval_ms)
    return SpecRegister(
        database,
        broker,
        companions=(Channels(database).follow, follow_alerts, follow_schedules),
        rules=SpecRules(checks=SPEC_CHECKS, check_target=partial(check_url, policy=guard_policy(settings))),
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
    settings: Settings,
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
    secrets = None if tasks is not None else await open_secrets(database, sealing_keys(settings), clock=clock)
    if secrets is not None:
        warn_of_variables(registry.snapshot, secrets)
    log = PostgresDeliveryLog(database, clock=clock)
    await log.refresh()
    journal = PostgresJournal(database, clock=clock)
    children = PostgresChildren(database, clock=clock)
    client = await stack.enter_async_context(guarded_client(guard_policy(settings.worker)))
    tools = Tools(
        broker=broker,
        commands=Commands() if tasks is not None else commands_of(settings.worker),
        tasks=tasks,
        clock=clock,
        secrets=_no_secret if secrets is None else secrets.of,
        client=client,
        log=log,
        executor=DaemonThreads(),
        tracer=tracer,
        children=children,
    )
    loops = (
        Loop(name="store-clock", run=clock.run),
        Loop(name="spec-registry", run=registry.run),
        *(() if secrets is None else (Loop(name="secrets", run=secrets.run),)),
        Loop(name="delivery-log", run=log.run),
        Loop(name="journal", run=journal.run),
        Loop(name="lineage", run=children.run),
    )
    return Worker(tools, registry, journal, options, presence=presence, count_job=count_job), loops
