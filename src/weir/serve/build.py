"""Builds a process from the settings: constructs every part once, and closes them in reverse order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, fields

import structlog
from prometheus_client import CollectorRegistry
from pydantic import SecretStr

from weir.admission.admission import Admission
from weir.admission.capacity import AdaptiveLimit
from weir.admission.decide import DEFAULT_THRESHOLDS, AdmissionPolicy, Threshold
from weir.admission.kinds import OperationType
from weir.alerts.exposition import alert_families
from weir.api.limits import Limits
from weir.api.services import Services
from weir.broker.broker import Broker
from weir.broker.direct_users import DirectUsers
from weir.broker.disk_room import DiskRoom
from weir.broker.metrics_switch import MetricsSwitch
from weir.broker.observed import Observed, PrometheusObserver
from weir.broker.runner import RedisConnection
from weir.channels.channels import Channels
from weir.control.annotations import Annotations
from weir.control.audit_log import AuditLog
from weir.control.authentication import CachedAuthenticator
from weir.control.bounded import DatabaseActivity
from weir.control.database import Database
from weir.control.epochs import Epochs
from weir.control.queue_definitions import QueueDefinitions
from weir.control.store_clock import StoreClock
from weir.control.system_events import SystemEventKind, SystemEvents
from weir.control.tenants import Tenants
from weir.control.tokens import Tokens
from weir.deadletters.audit import DeadLetterAuditor
from weir.deadletters.bulk_action_runner import BulkActionRunner
from weir.deadletters.copier import DeadLetterCopier
from weir.deadletters.mover import Mover
from weir.deadletters.retention import DeadLetterRetention
from weir.deadletters.services import open_dead_letters
from weir.exchange.admit import AnsweringPusher
from weir.exchange.attempt import CoalescingPusher, CoalescingSettler, DirectPusher
from weir.exchange.lineage import ChainedMessages
from weir.exchange.metrics import operation_families
from weir.exchange.resume import ResumingPusher
from weir.exchange.seam import Pusher, Settler
from weir.exchange.service import OperationService
from weir.exchange.settle import DirectSettler
from weir.exchange.traced import TracedPusher, TracedSettler
from weir.lineage.children import PostgresChildren
from weir.model.clock import Clock
from weir.model.durations import DAY_MS
from weir.schedules.register import Schedules
from weir.schedules.scheduler import Scheduler
from weir.serve.alerts import open_alerting
from weir.serve.direct_users import DirectUserKeeper
from weir.serve.disk_watch import DiskFloors, DiskWatch
from weir.serve.hooks import guard_policy, open_hooks, open_secrets
from weir.serve.housekeeping import Heart, Sweeper
from weir.serve.loops import Loop, LoopSupervisor
from weir.serve.probes import epoch_probe, postgres_probe, redis_probe
from weir.serve.restore import restore
from weir.serve.switching import metrics_switching
from weir.serve.watch import pipeline_families, pipeline_watch
from weir.settings import (
    ApiSettings,
    DeadLetterSettings,
    LoadSettings,
    Settings,
    StoreUrls,
    opentelemetry_variables,
)
from weir.stores.open import open_stores, start_database
from weir.stores.sealing_keys import sealing_keys
from weir.telemetry.emitter import StreamEmitter
from weir.telemetry.live_workers import LiveWorkers
from weir.telemetry.presence import Presence, ServingProcesses
from weir.telemetry.process_counts import ProcessCounts
from weir.telemetry.process_families import process_families
from weir.telemetry.sampler import Probes as SamplerProbes
from weir.telemetry.sampler import ProcessIdentity, ProcessSampler
from weir.telemetry.tails import RedisTails
from weir.tracing.export import tracing
from weir.warehouse.reading.log import LogReader
from weir.warehouse.reading.periods import retention_by_resolution
from weir.warehouse.reading.warehouse import open_warehouse
from weir.workers.timeline import Timelines

log = structlog.get_logger("weir.serve")
CONTROL_WAIT_S = 0.5
"""How long a request waits for a connection: it may need two, and must answer 503 within two seconds."""
_FIRST_CONNECTIONS = 4
"""Connections that are open before the loops start, because all of them ask at once (0090)."""
OPERATION_ANSWER_S = 3.0
"""How long PostgreSQL may take to answer about operations, because a push that is queued waits for it.
A group commit takes less than 0.1 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process of Weir, ready to serve."""

    services: Services
    supervisor: LoopSupervisor


@asynccontextmanager
async def open_process(
    settings: Settings, urls: StoreUrls, *, accept_loss: bool = False
) -> AsyncIterator[Process]:
    """Connect every part that the settings describe, and define the queues of PostgreSQL in Redis again."""
    async with AsyncExitStack() as stack:
        tracer = await stack.enter_async_context(
            tracing(opentelemetry_variables(), service="weir-api", say=log.warning)
        )
        counts = ProcessCounts()
        database = Database(
            urls.postgres,
            min_size=min(_FIRST_CONNECTIONS, settings.api.postgres_connections),
            max_size=settings.api.postgres_connections,
            timeout_s=CONTROL_WAIT_S,
            name="weir-api",
            activity=counts,
        )
        stores = await open_stores(
            stack, urls, database=database, shards=settings.shards, say=log.warning, activity=counts
        )
        redis = stores.redis
        clock = StoreClock(database)
        # Windows and schedules follow the time of PostgreSQL from the first request on.
        await clock.ask()
        # This comes before `restore`: queues that are defined in an empty Redis would hide the loss.
        epochs = Epochs(database, stores.broker)
        await epochs.agree(accept_loss=accept_loss)
        observer = PrometheusObserver(CollectorRegistry())
        broker = Observed(stores.broker, observer, activity=counts, tracer=tracer)
        definitions, tenants = QueueDefinitions(database), Tenants(database)
        await restore(broker, definitions=definitions, tenants=tenants)
        switch = MetricsSwitch(RedisConnection(url=urls.redis), shards=settings.shards)
        stack.push_async_callback(switch.aclose)
        await switch.take_over()
        room = DiskRoom(RedisConnection(url=urls.redis), shards=settings.shards)
        stack.push_async_callback(room.aclose)
        emitter = StreamEmitter(redis, shards=settings.shards)
        identity = ProcessIdentity(role="api")
        presence = Presence(redis, worker_id=identity.worker_id)
        sampler = ProcessSampler(identity, emitter, counts, probes=_pool_probes(database))
        warehouse = open_warehouse(
            urls.clickhouse,
            tails=RedisTails(redis, shards=settings.shards),
            shards=settings.shards,
            retention_ms=retention_by_resolution(settings.warehouse.retention),
            activity=counts,
        )
        stack.push_async_callback(warehouse.aclose)
        tokens = Tokens(database)
        direct_users = DirectUsers(redis, shards=settings.shards)
        authenticator = CachedAuthenticator(
            tokens, fresh_s=settings.api.token_fresh_s, stale_s=settings.api.token_stale_s
        )
        children = PostgresChildren(database, clock=clock)
        chained = ChainedMessages(children, clock=clock)
        operations, events = await _open_operations(
            stack, settings, urls, broker, definitions, activity=counts, chained=chained
        )
        disk = DiskWatch(redis, room, url=urls.redis, floors=_floors(settings.api))
        operations.admission.no_room = disk.refusal
        pusher, settler = _exchange(settings.load, operations, broker, chained=chained)
        # The receiver of webhooks joins pushes into calls itself, per queue and in order.
        front: Pusher = operations.front() if settings.load.admission else DirectPusher(broker)
        front = AnsweringPusher(front, operations.tally)
        keys = sealing_keys(settings)
        secrets = await open_secrets(database, keys, clock=clock)
        # A restart with a new first key is a rotation.
        while await secrets.seal_again():
            pass
        hooks = await open_hooks(
            database,
            broker,
            front,
            settings.worker,
            secrets=secrets,
            clock=clock,
            tracer=tracer,
            alert_interval_ms=round(settings.alerts.interval_s * 1_000),
        )
        if tracer is not None:
            # The receiver of webhooks writes their spans itself, before it joins them into calls.
            pusher, settler = TracedPusher(pusher, tracer), TracedSettler(settler, tracer)
            front = TracedPusher(front, tracer)
        alerts, alert_loops = open_alerting(
            stack,
            settings.alerts,
            database,
            broker,
            warehouse,
            policy=guard_policy(settings.worker),
            keys=keys,
            clock=clock,
            workers=LiveWorkers(redis),
        )
        await alerts.channels.seal_again()
        scheduler = Scheduler(database, broker, front, clock=clock)
        for kind in SystemEventKind:
            events.on(kind, hooks.refresh_registry)
            events.on(kind, scheduler.wake)
        supervisor = LoopSupervisor(
            (
                Loop(name="store-clock", run=clock.run),
                Loop(name="redis-disk", run=disk.run),
                Loop(name="sweeper", run=Sweeper(broker).run),
                Loop(name="heartbeat", run=Heart(broker).run),
                Loop(name="emitter", run=emitter.run),
                Loop(name="sampler", run=sampler.run),
                Loop(name="presence", run=presence.run),
                Loop(name="lineage", run=children.run),
                Loop(name="last-used", run=authenticator.run),
                Loop(name="direct-users", run=DirectUserKeeper(direct_users, tokens, clock=clock).run),
                *(Loop(name=name, run=run) for name, run in operations.loops().items()),
                Loop(name="system-events", run=events.run),
                *hooks.loops(),
                Loop(name="secrets", run=secrets.run),
                *alert_loops,
                Loop(name="scheduler", run=scheduler.run),
                *_dead_letter_loops(settings.dead_letters, database, broker, warehouse.log, clock=clock),
            )
        )
        services = Services(
            broker=broker,
            authenticator=authenticator,
            pusher=pusher,
            settler=settler,
            operations=operations,
            events=events,
            limits=_limits(settings.api),
            tokens=tokens,
            direct_users=direct_users,
            tenants=tenants,
            definitions=definitions,
            changes=hooks.specs.changes,
            audit=AuditLog(database),
            annotations=Annotations(database, clock=clock),
            warehouse=warehouse,
            alerts=alerts,
            dead_letters=open_dead_letters(database, broker, clock=clock),
            channels=Channels(database, clock=clock),
            schedules=Schedules(database, broker, clock=clock),
            clock=clock,
            receiver=hooks.receiver,
            specs=hooks.specs,
            secrets=secrets,
            apps=hooks.apps,
            timelines=Timelines(database, broker),
            presence=presence,
            servers=ServingProcesses(redis),
            probes=(
                redis_probe(broker, url=urls.redis),
                epoch_probe(epochs),
                postgres_probe(database),
                disk.probe(),
            ),
            metric_sources=(
                supervisor.families,
                alert_families(database),
                observer.families,
                process_families(counts),
                operation_families(operations),
                switch.families,
                pipeline_families(urls.redis),
                disk.families,
            ),
            pools={"api": database.state, "operations": operations.pool_state},
            pipeline=pipeline_watch(urls, shards=settings.shards),
            metrics_switching=metrics_switching(switch, broker, urls),
            trace_url=settings.trace_url,
            writes_spans=tracer is not None,
            metrics_token=_text(settings.api.metrics_token),
        )
        yield Process(services=services, supervisor=supervisor)


async def _open_operations(
    stack: AsyncExitStack,
    settings: Settings,
    urls: StoreUrls,
    broker: Broker,
    definitions: QueueDefinitions,
    *,
    activity: DatabaseActivity,
    chained: ChainedMessages,
) -> tuple[OperationService, SystemEvents]:
    """The operation queue, on its own connections, for which a request waits only `postgres_wait_s`."""
    load = settings.load
    reserved = Database(
        urls.postgres,
        min_size=load.postgres_connections,
        max_size=load.postgres_connections,
        timeout_s=load.postgres_wait_s,
        answer_s=OPERATION_ANSWER_S,
        trusted_s=1.0,
        name="weir-operations",
        activity=activity,
    )
    await start_database(stack, reserved)
    limit = AdaptiveLimit(
        initial=load.initial_limit,
        minimum=load.min_limit,
        maximum=load.max_limit,
        target_ms=load.target_latency_ms,
    )
    thresholds = {
        **DEFAULT_THRESHOLDS,
        OperationType.PUSH: Threshold(utilization=load.push_utilization, depth=load.push_queue_depth),
    }
    admission = Admission(policy=AdmissionPolicy(thresholds=thresholds), limit=limit, enabled=load.admission)
    service = OperationService(
        database=reserved,
        broker=broker,
        admission=admission,
        known=definitions.defines,
        chained=chained.record_child,
    )
    return service, SystemEvents(database=reserved)


def _exchange(
    load: LoadSettings, operations: OperationService, broker: Broker, *, chained: ChainedMessages
) -> tuple[Pusher, Settler]:
    """The pusher and the settler. Without admission they only call the broker, however busy it is."""
    front: Pusher = CoalescingPusher(DirectPusher(broker))
    settler: Settler = CoalescingSettler(DirectSettler(broker))
    if load.admission:
        front = operations.front(CoalescingPusher(operations.attempt))
        settler = CoalescingSettler(operations.settlements)
    intake = operations.intake if load.admission else None
    resuming = ResumingPusher(front, broker=broker, intake=intake)
    pusher = AnsweringPusher(front, operations.tally, resuming=resuming, chained=chained)
    return pusher, operations.counted_settler(settler)


def _dead_letter_loops(
    settings: DeadLetterSettings, database: Database, broker: Broker, log: LogReader, *, clock: Clock
) -> tuple[Loop, ...]:
    auditor = DeadLetterAuditor(
        database,
        clock=clock,
        interval_ms=round(settings.audit_interval_s * 1000),
        max_letters=settings.audit_max_letters,
        keep_replayed_ms=round(settings.keep_replayed_days * DAY_MS),
    )
    retention = DeadLetterRetention(broker, database, interval_s=settings.retention_interval_s)
    return (
        Loop(name="dead-letter-mover", run=Mover(broker, database, clock=clock).run),
        Loop(name="dead-letter-copies", run=DeadLetterCopier(broker, database).run),
        Loop(name="dead-letter-retention", run=retention.run),
        Loop(name="dead-letter-tasks", run=BulkActionRunner(broker, database, log=log, clock=clock).run),
        Loop(name="dead-letter-audit", run=auditor.run),
    )


def _floors(settings: ApiSettings) -> DiskFloors:
    return DiskFloors(refuse_bytes=settings.min_free_disk_bytes, rewrite_bytes=settings.rewrite_disk_bytes)


def _limits(settings: ApiSettings) -> Limits:
    """The limits, with every value that has a setting of the same name; the others are fixed."""
    names = [field.name for field in fields(Limits) if field.name in ApiSettings.model_fields]
    return Limits(**{name: getattr(settings, name) for name in names})


def _pool_probes(database: Database) -> SamplerProbes:
    """Probes for the sampler. The pool of an API process is its connections to PostgreSQL."""
    return SamplerProbes(
        free_slots=lambda: database.state().max_size - database.state().busy,
        pool_size=lambda: database.state().max_size,
        internal_queue=lambda: database.state().waiting,
    )


def _text(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
