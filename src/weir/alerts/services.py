"""The parts of alerting that routes and commands use, built once per process."""

from __future__ import annotations

from dataclasses import dataclass

from weir.alerts.alert_channels import AlertChannel, AlertChannels
from weir.alerts.alert_records import AlertRecords
from weir.alerts.causes import explain
from weir.alerts.forecast import Outlook, outlook_of
from weir.alerts.lease import INTERVAL_MS
from weir.alerts.notification_queue import NotificationLog
from weir.alerts.notifications import NotificationKind, fire_test
from weir.alerts.recovery import Recovery, read_recovery
from weir.alerts.rule import RuleDraft, check_seen
from weir.alerts.rules import AlertRules
from weir.alerts.silences import Silences
from weir.alerts.situations import DEFAULT_RECENT_MS, DefinedLifetimes, Situations
from weir.alerts.verdict import Cause, Verdict
from weir.broker.broker import Broker
from weir.control.database import Database
from weir.control.sealing import SealingKeys
from weir.errors import InvalidInput, NotFound
from weir.model.clock import Clock, SystemClock
from weir.model.names import EnvironmentRef, QueueRef
from weir.outbound.address_guard import GuardPolicy
from weir.telemetry.live_workers import WorkerRegister
from weir.warehouse.reading.warehouse import Warehouse


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    queue: QueueRef
    verdict: Verdict
    outlook: Outlook
    backed_up: bool
    """Messages wait, and there is a cause for it. A queue in which nothing waits is never backed up."""
    recovery: Recovery | None = None
    """None unless the queue is well now and was backed up within the last half hour."""
    at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertServices:
    database: Database
    broker: Broker
    rules: AlertRules
    records: AlertRecords
    channels: AlertChannels
    silences: Silences
    deliveries: NotificationLog
    situations: Situations
    warehouse: Warehouse
    policy: GuardPolicy
    allow_apprise: bool
    clock: Clock
    interval_ms: int
    """The time between two evaluations."""

    async def check_references(self, environment: EnvironmentRef, draft: RuleDraft) -> None:
        """Refuse a rule that names a queue or a channel that does not exist, or a window too short to see."""
        check_seen(draft, interval_ms=self.interval_ms)
        if draft.queue is not None:
            try:
                await self.broker.state(environment.queue(draft.queue))
            except NotFound:
                raise InvalidInput(f"there is no queue `{draft.queue}`; define it first") from None
        known = {channel.name for channel in await self.channels.of(environment)}
        missing = [name for name in draft.channels if name not in known]
        if missing:
            raise InvalidInput(f"there is no alert channel `{missing[0]}`; create it first")

    async def explain(self, queue: QueueRef, *, recent_ms: int = DEFAULT_RECENT_MS) -> Explanation:
        """The verdict on a queue and its forecast; NotFound if there is no such queue."""
        # Raises NotFound before the costly queries.
        await self.broker.state(queue)
        situation = await self.situations.of(queue, recent_ms=recent_ms)
        ttls = await DefinedLifetimes(self.database).ttls_ms([queue.scope])
        verdict, now_ms = explain(situation), self.clock.now_ms()
        backed_up = situation.depth > 0 and verdict.cause is not Cause.HEALTHY
        return Explanation(
            queue=queue,
            verdict=verdict,
            outlook=outlook_of(situation, ttl_ms=ttls.get(queue)),
            backed_up=backed_up,
            recovery=None if backed_up else await read_recovery(self.warehouse, queue, now_ms=now_ms),
            at_ms=now_ms,
        )

    async def test(self, channel: AlertChannel) -> str:
        """Store a test notification for a channel; return its id in the notification log."""
        return await fire_test(self.database, channel, kind=NotificationKind.TEST, now_ms=self.clock.now_ms())


def alert_services(
    database: Database,
    broker: Broker,
    warehouse: Warehouse,
    *,
    policy: GuardPolicy | None = None,
    allow_apprise: bool = False,
    keys: SealingKeys | None = None,
    clock: Clock | None = None,
    workers: WorkerRegister | None = None,
    interval_ms: int = INTERVAL_MS,
) -> AlertServices:
    """Build the parts. The evaluator and the sender are started elsewhere."""
    clock = clock or SystemClock()
    return AlertServices(
        database=database,
        broker=broker,
        rules=AlertRules(database, clock=clock),
        records=AlertRecords(database, clock=clock),
        channels=AlertChannels(database, keys=keys, clock=clock),
        silences=Silences(database, clock=clock),
        deliveries=NotificationLog(database),
        situations=Situations(warehouse, broker, database, clock=clock, workers=workers),
        warehouse=warehouse,
        policy=policy or GuardPolicy(),
        allow_apprise=allow_apprise,
        clock=clock,
        interval_ms=interval_ms,
    )
