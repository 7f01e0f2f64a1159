"""Sends notifications from their table in PostgreSQL, with retries; every attempt is logged.

Notifications of one rule to one channel go out one after the other. Before each try the alerts are looked at
again: an alert that is over is not told as firing. A channel that was never told of an alert is not told that
it is over; a channel that may have been told always is.

A receiver gets a notification twice if the sender ends before it settles, if the answer is lost, or if a mail
server refused some of the other recipients.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import structlog

from weir.alerts.alert import alert_of
from weir.alerts.alert_channels import AlertChannel, AlertChannels
from weir.alerts.notifications import NotificationKind, document_of
from weir.alerts.senders import Sender
from weir.control.database import Database, Row
from weir.control.scopes import scope_names, scope_of
from weir.control.sealing import SealingKeys
from weir.control.sql import load_queries
from weir.errors import NotFound, WeirError
from weir.model.asyncio_tasks import in_turns
from weir.model.backoff import Backoff
from weir.model.clock import Clock, SystemClock
from weir.model.durations import DAY_MS, SECOND_MS
from weir.model.ids import check_id
from weir.model.item_loops import ItemPatience, ItemSlots, Setback, attempt
from weir.model.names import EnvironmentRef
from weir.outbound.delivery import DeliveryOutcome, DeliveryVerdict

SQL = load_queries("weir.alerts", "notification_queue.sql")
log = structlog.get_logger("weir.alerts")

PATIENCE = ItemPatience(tries=12, longest_s=75.0, backoff=Backoff(first_s=5.0, longest_s=1_800.0))
"""A channel's own time limit is 60 s at most, so only what nobody foresaw takes longer."""
CLAIMED_MS = 90 * SECOND_MS
"""If a process ends while it sends, another one tries again after this time."""
SLOTS = 32
SLOTS_EACH = 8
"""Receivers of one organization that hang take up to this many slots."""
IDLE_S = 1.0
FORGET_EVERY_S = 60.0
KEEP_MS = 30 * DAY_MS
OVER = "every alert was over before it could be sent"
NEVER_TOLD = "this channel was not told of these alerts: they were over before they could be sent"


class NotificationSender:
    """Run one in every process; a notification is claimed by one of them at a time."""

    def __init__(
        self,
        database: Database,
        sender: Sender,
        *,
        keys: SealingKeys | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._database = database
        self._sender = sender
        self._channels = AlertChannels(database, keys=keys)
        self._clock = clock or SystemClock()
        self._forgot_s = float("-inf")

    async def run(self) -> None:
        async with ItemSlots(total=SLOTS, each=SLOTS_EACH) as slots:
            while True:
                try:
                    started = await self._start_due(slots)
                    await self._forget_sometimes()
                except WeirError as error:
                    log.warning("notifications wait", code=error.code, error=str(error))
                    started = 0
                if not started:
                    await slots.wait(IDLE_S)

    async def send_due(self) -> int:
        """Try every notification that is due and the first of its channel and rule; return how many."""
        rows = await self._claim(limit=SLOTS, each=SLOTS, crowded=[])
        await in_turns([self._work_on(row) for row in rows])
        return len(rows)

    async def _start_due(self, slots: ItemSlots) -> int:
        if not slots.free:
            return 0
        # One of each organization per claim, so that none gets more than its slots.
        rows = await self._claim(limit=slots.free, each=1, crowded=slots.crowded())
        for row in rows:
            slots.start(row["organization"], self._work_on(row))
        return len(rows)

    async def _claim(self, *, limit: int, each: int, crowded: Sequence[str]) -> list[Row]:
        now_ms = self._clock.now_ms()
        return await self._database.fetch(
            SQL["claim_notifications"],
            now_ms=now_ms,
            again_ms=now_ms + CLAIMED_MS,
            limit=limit,
            each=each,
            crowded=list(crowded),
        )

    async def _forget_sometimes(self) -> None:
        if time.monotonic() - self._forgot_s > FORGET_EVERY_S:
            await self.forget()
            self._forgot_s = time.monotonic()

    async def forget(self) -> int:
        """Delete notifications that were settled long ago."""
        return await self._database.execute(
            SQL["forget_notifications"], before_ms=self._clock.now_ms() - KEEP_MS
        )

    async def _work_on(self, row: Row) -> None:
        """Try to send a notification, and store what came of it. Whatever goes wrong is stored with it."""
        started = time.monotonic()
        name = f"notification {row['id']}"
        result = await attempt(lambda: self._send(row), tries=row["tries"], patience=PATIENCE, item=name)
        if isinstance(result, Setback):
            duration_ms = round((time.monotonic() - started) * 1_000)
            outcome = DeliveryOutcome(
                verdict=DeliveryVerdict.REFUSED if result.given_up else DeliveryVerdict.RETRY,
                duration_ms=duration_ms,
                error=result.error,
            )
            await self._settle(row, outcome, tries=row["tries"] if result.counted else row["tries"] - 1)
        elif result is not None:
            await self._settle(row, result, tries=row["tries"])

    async def _send(self, row: Row) -> DeliveryOutcome | None:
        """Send a notification as its alerts are now; None if there is nothing to say any more."""
        document = await self._document_now(row)
        if document is None:
            over = row["kind"] == NotificationKind.FIRING
            await self._mark(row, state="skipped", error=OVER if over else NEVER_TOLD)
            return None
        channel = await self._channel(row)
        return await self._attempt(row, channel, document)

    async def _document_now(self, row: Row) -> dict[str, Any] | None:
        """What to say now; None if nothing is left. A test stays as it is, and so does an older document."""
        ids = [str(one) for one in row["alert_ids"]]
        if not ids:
            return dict(row["document"])
        alerts = [alert_of(one) for one in await self._database.fetch(SQL["alerts_now"], ids=ids)]
        if row["kind"] == NotificationKind.FIRING:
            left = [alert for alert in alerts if alert.state == "firing"]
            if row["tries"] == 1:
                await self._withhold(row, {*ids} - {alert.id for alert in left})
        else:
            never_told = await self._withheld_before(row, ids)
            left = [alert for alert in alerts if alert.id not in never_told]
        return document_of(left) if left else None

    async def _withhold(self, row: Row, alerts: set[str]) -> None:
        if alerts:
            await self._database.execute(SQL["withhold"], id=row["id"], alerts=sorted(alerts))

    async def _withheld_before(self, row: Row, ids: Sequence[str]) -> set[str]:
        found = await self._database.fetch(
            SQL["withheld_before"],
            channel=row["channel"],
            subject=row["subject"],
            alerts=list(ids),
            **scope_names(scope_of(row)),
        )
        return {str(one["id"]) for one in found}

    async def _channel(self, row: Row) -> AlertChannel | None:
        try:
            return await self._channels.find(scope_of(row), row["channel"])
        except NotFound:
            return None

    async def _attempt(
        self, row: Row, channel: AlertChannel | None, document: dict[str, Any]
    ) -> DeliveryOutcome:
        if channel is None or channel.disabled_reason is not None:
            reason = "there is no such channel" if channel is None else channel.disabled_reason
            return DeliveryOutcome(verdict=DeliveryVerdict.REFUSED, duration_ms=0, error=reason)
        return await self._sender.send(
            channel, notification_id=str(row["id"]), kind=NotificationKind(row["kind"]), document=document
        )

    async def _settle(self, row: Row, outcome: DeliveryOutcome, *, tries: int) -> None:
        """Log an attempt, and store whether another one follows."""
        await self._record(row, outcome)
        last = tries >= PATIENCE.tries
        if outcome.verdict is DeliveryVerdict.RETRY and not last:
            pause_ms = PATIENCE.pause_ms(tries)
            await self._database.execute(
                SQL["put_off_notification"],
                id=row["id"],
                error=outcome.error,
                claimed=row["tries"],
                tries=tries,
                next_at_ms=self._clock.now_ms() + max(pause_ms, outcome.retry_after_ms or 0),
            )
            return
        delivered = outcome.verdict is DeliveryVerdict.DELIVERED
        await self._mark(row, state="delivered" if delivered else "failed", error=outcome.error)
        if outcome.verdict is DeliveryVerdict.GONE:
            await self._channels.disable(
                scope_of(row), row["channel"], reason="the receiver answered 410 Gone"
            )
        if not delivered:
            log.warning("notification failed", channel=row["channel"], error=outcome.error)

    async def _record(self, row: Row, outcome: DeliveryOutcome) -> None:
        await self._database.execute(
            SQL["record_delivery"],
            notification_id=row["id"],
            attempt=row["tries"],
            at_ms=self._clock.now_ms(),
            duration_ms=outcome.duration_ms,
            verdict=outcome.verdict.value,
            status=outcome.status,
            error=outcome.error,
            excerpt=outcome.excerpt,
        )

    async def _mark(self, row: Row, *, state: str, error: str | None) -> None:
        await self._database.execute(
            SQL["settle_notification"],
            id=row["id"],
            state=state,
            now_ms=self._clock.now_ms(),
            error=error,
        )


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
