"""Sends notifications through a queue of Weir's own, with its retries; every attempt is logged.

The relay moves stored notifications into the queue. The id of each is its idempotency key, so it is moved
once even if a crash comes between the two stores. The sender takes them out and sends them. A receiver gets a
notification twice if the sender crashes before it settles, if the answer is lost, or if a mail server refused
some of the other recipients.
"""

from __future__ import annotations

import asyncio
from typing import Any

import structlog

from weir.alerts.alert_channels import AlertChannel, AlertChannels
from weir.alerts.notifications import NotificationKind
from weir.alerts.senders import Sender
from weir.broker.broker import Broker
from weir.control.database import Database, Row, execute, fetch
from weir.control.scopes import scope_names, scope_of
from weir.control.sql import load_queries
from weir.errors import NotFound, Unavailable
from weir.model.clock import Clock, SystemClock
from weir.model.durations import DAY_MS
from weir.model.ids import check_id
from weir.model.message import Delivery, Enqueue, Failure, NewMessage
from weir.model.names import SYSTEM_ORGANIZATION, EnvironmentRef
from weir.outbound.delivery import DeliveryOutcome, DeliveryVerdict
from weir.spec.ir import DeliveryPolicy, QueueSpec

SQL = load_queries("weir.alerts", "notification_queue.sql")
log = structlog.get_logger("weir.alerts")

_OWN = EnvironmentRef(organization=SYSTEM_ORGANIZATION, project="system", environment="alerts")
QUEUE = _OWN.queue("notifications")
"""A queue of the organization that Weir keeps for itself."""
SPEC = QueueSpec(
    name=QUEUE.queue,
    delivery=DeliveryPolicy(
        max_attempts=12, initial_backoff_ms=5_000, max_backoff_ms=1_800_000, jitter=0.2, lease_ms=60_000
    ),
)
KEEP_MS = 30 * DAY_MS
# Rows that stay locked during one call to Redis.
_BATCH = 100


class NotificationRelay:
    """Moves stored notifications into the queue."""

    def __init__(
        self, database: Database, broker: Broker, *, clock: Clock | None = None, every_s: float = 1.0
    ) -> None:
        self._database = database
        self._broker = broker
        self._clock = clock or SystemClock()
        self._every_s = every_s

    async def run(self) -> None:
        await self._broker.define(QUEUE, SPEC)
        while True:
            try:
                while await self.relay():
                    pass
                await self.forget()
            except Unavailable as error:
                log.warning("relay failed", code=error.code, error=str(error))
            await asyncio.sleep(self._every_s)

    async def relay(self) -> int:
        """Move a batch; return how many. The rows stay locked until the queue has them."""
        async with self._database.transaction() as connection:
            rows = await fetch(connection, SQL["waiting_notifications"], limit=_BATCH)
            ids = [str(row["id"]) for row in rows]
            if not ids:
                return 0
            # Redis before the mark in PostgreSQL: after a crash in between, the idempotency key makes the
            # next try a duplicate.
            messages = [NewMessage(payload=one.encode(), idempotency_key=one) for one in ids]
            answers = await self._broker.enqueue(QUEUE, messages)
            taken = (Enqueue.ACCEPTED, Enqueue.DUPLICATE)
            moved = [one for one, answer in zip(ids, answers, strict=True) if answer.outcome in taken]
            await execute(connection, SQL["mark_queued"], ids=moved)
            return len(moved)

    async def forget(self) -> int:
        """Delete notifications that were settled long ago."""
        return await self._database.execute(
            SQL["forget_notifications"], before_ms=self._clock.now_ms() - KEEP_MS
        )


class NotificationSender:
    """Takes notifications out of the queue and sends them."""

    def __init__(
        self,
        database: Database,
        broker: Broker,
        sender: Sender,
        *,
        clock: Clock | None = None,
        consumer: str = "alerts",
        wait_ms: int = 5_000,
    ) -> None:
        self._database = database
        self._broker = broker
        self._sender = sender
        self._channels = AlertChannels(database)
        self._clock = clock or SystemClock()
        self._consumer = consumer
        self._wait_ms = wait_ms

    async def run(self) -> None:
        await self._broker.define(QUEUE, SPEC)
        while True:
            try:
                await self.send_waiting(wait_ms=self._wait_ms)
            except Unavailable as error:
                log.warning("sending notifications failed", code=error.code, error=str(error))
                await asyncio.sleep(1)

    async def send_waiting(self, *, wait_ms: int = 0) -> int:
        """Try to send up to ten waiting notifications; return how many were tried."""
        deliveries = await self._broker.dequeue(QUEUE, consumer=self._consumer, limit=10, wait_ms=wait_ms)
        await asyncio.gather(*(self._send(delivery) for delivery in deliveries))
        return len(deliveries)

    async def _send(self, delivery: Delivery) -> None:
        notification_id = delivery.payload.decode()
        row = await self._database.fetch_one(SQL["find_notification"], id=notification_id)
        if row is None or row["state"] in ("delivered", "failed"):
            await self._broker.ack([delivery.lease])
            return
        channel = await self._channel(row)
        outcome = await self._attempt(row, channel)
        await self._record(notification_id, delivery.attempt, outcome)
        await self._settle(delivery, row, outcome)

    async def _channel(self, row: Row) -> AlertChannel | None:
        try:
            return await self._channels.find(scope_of(row), row["channel"])
        except NotFound:
            return None

    async def _attempt(self, row: Row, channel: AlertChannel | None) -> DeliveryOutcome:
        if channel is None or channel.disabled_reason is not None:
            reason = "there is no such channel" if channel is None else channel.disabled_reason
            return DeliveryOutcome(verdict=DeliveryVerdict.REFUSED, duration_ms=0, error=reason)
        return await self._sender.send(
            channel,
            notification_id=str(row["id"]),
            kind=NotificationKind(row["kind"]),
            document=row["document"],
        )

    async def _record(self, notification_id: str, attempt: int, outcome: DeliveryOutcome) -> None:
        await self._database.execute(
            SQL["record_delivery"],
            notification_id=notification_id,
            attempt=attempt,
            at_ms=self._clock.now_ms(),
            duration_ms=outcome.duration_ms,
            verdict=outcome.verdict.value,
            status=outcome.status,
            error=outcome.error,
            excerpt=outcome.excerpt,
        )

    async def _settle(self, delivery: Delivery, row: Row, outcome: DeliveryOutcome) -> None:
        """Settle in PostgreSQL first and in the queue second: a crash in between does not send it again."""
        last = delivery.attempt >= SPEC.delivery.max_attempts
        if outcome.verdict is DeliveryVerdict.RETRY and not last:
            await self._database.execute(SQL["note_error"], id=row["id"], error=outcome.error)
            failure = Failure(
                lease=delivery.lease, error=outcome.error or "", delay_ms=outcome.retry_after_ms
            )
            await self._broker.nack([failure])
            return
        delivered = outcome.verdict is DeliveryVerdict.DELIVERED
        await self._database.execute(
            SQL["settle_notification"],
            id=row["id"],
            state="delivered" if delivered else "failed",
            now_ms=self._clock.now_ms(),
            error=outcome.error,
        )
        if outcome.verdict is DeliveryVerdict.GONE:
            await self._channels.disable(
                scope_of(row), row["channel"], reason="the receiver answered 410 Gone"
            )
        if delivered:
            await self._broker.ack([delivery.lease])
        else:
            log.warning("notification failed", channel=row["channel"], error=outcome.error)
            await self._broker.dead_letter([Failure(lease=delivery.lease, error=outcome.error or "")])


class NotificationLog:
    """The notifications of an environment, sent or not, each with its channel and its attempts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(
        self, environment: EnvironmentRef, *, before: str | None = None, limit: int = 100
    ) -> list[dict[str, Any]]:
        rows = await self._database.fetch(
            SQL["list_notifications"],
            before=None if before is None else check_id(before, what="notification"),
            limit=limit,
            **scope_names(environment),
        )
        return [{**row, "id": str(row["id"])} for row in rows]
