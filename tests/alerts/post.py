"""The whole way of a notification to a receiver, under the control of a test."""

from __future__ import annotations

from psycopg.types.json import Jsonb

from weir.alerts.alert_channels import AlertChannel, AlertChannels, channel_of
from weir.alerts.notification_queue import NotificationLog, NotificationSender
from weir.alerts.notifications import NotificationKind, fire_test
from weir.alerts.senders import ChannelSender
from weir.control.database import Database
from weir.control.sealing import KEY_BYTES, SealingKeys
from weir.model.names import EnvironmentRef
from weir.outbound.address_guard import GuardPolicy, guarded_client
from weir.outbound.addresses import parse_networks
from weir.testing.clocks import ManualClock

OPEN = GuardPolicy(allowed=parse_networks(["127.0.0.0/8"]))


KEYS = SealingKeys(b"k" * KEY_BYTES)


class Post:
    """An environment with channels, and the sender of its notifications."""

    def __init__(self, database: Database, environment: EnvironmentRef, policy: GuardPolicy) -> None:
        self.database, self.environment, self.policy = database, environment, policy
        self.clock = ManualClock(1_790_000_000_000)
        self.client = guarded_client(policy)
        self.sender = ChannelSender(
            self.client, policy=policy, clock=self.clock, timeout_ms=500, allow_apprise=True
        )
        self.notifier = NotificationSender(database, self.sender, keys=KEYS, clock=self.clock)

    async def channel(
        self, kind: str, *, name: str = "ops", environment: EnvironmentRef | None = None, **config: object
    ) -> AlertChannel:
        channel = channel_of(
            environment or self.environment,
            name=name,
            kind=kind,
            config=config,
            policy=OPEN,
            allow_apprise=True,
        )
        await AlertChannels(self.database, keys=KEYS).put(channel)
        return channel

    async def say(
        self,
        channel: AlertChannel,
        document: dict | None = None,
        kind: NotificationKind = NotificationKind.TEST,
    ) -> None:
        """A test notification, or one that is filled with a document of the caller's."""
        told = await fire_test(self.database, channel, kind=kind, now_ms=self.clock.now_ms())
        if document is not None:
            async with self.database.connection() as connection:
                await connection.execute(
                    "UPDATE weir.alert_notifications SET document = %s WHERE id = %s", (Jsonb(document), told)
                )

    async def carry(self, rounds: int, *, advance_ms: int = 3_600_000) -> None:
        for _ in range(rounds):
            await self.notifier.send_due()
            self.clock.advance(advance_ms)

    async def log(self) -> dict:
        (entry,) = await NotificationLog(self.database).of(self.environment)
        return entry
