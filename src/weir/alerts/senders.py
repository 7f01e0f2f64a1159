"""One attempt to send a notification through a channel of any kind."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Mapping
from typing import Any, Protocol

import httpx2
import orjson

from weir.alerts.alert_channels import APPRISE_REFUSED, AlertChannel
from weir.alerts.channel_kinds import ChannelKind
from weir.alerts.mail import send_mail
from weir.alerts.notifications import NotificationKind
from weir.alerts.templates import alertmanager_payload, mail_text, slack_message, subject
from weir.errors import InvalidInput
from weir.model.clock import Clock
from weir.model.wording import duration
from weir.outbound.address_guard import GuardPolicy
from weir.outbound.delivery import DeliveryOutcome, DeliveryVerdict, OutboundRequest, deliver

_APPRISE_TYPES = {
    NotificationKind.FIRING: "failure",
    NotificationKind.RESOLVED: "success",
    NotificationKind.TEST: "info",
}


class Sender(Protocol):
    """Sends one notification through one channel. A failure of the receiver becomes an outcome."""

    async def send(
        self,
        channel: AlertChannel,
        *,
        notification_id: str,
        kind: NotificationKind,
        document: Mapping[str, Any],
    ) -> DeliveryOutcome: ...


class ChannelSender:
    """Sends through channels of every kind. Slack and webhooks share one guarded HTTP client."""

    def __init__(
        self,
        client: httpx2.AsyncClient,
        *,
        policy: GuardPolicy,
        clock: Clock,
        link: str = "",
        timeout_ms: int = 15_000,
        allow_apprise: bool = False,
    ) -> None:
        self._client = client
        self._policy = policy
        self._clock = clock
        self._link = link
        self._timeout_ms = timeout_ms
        self._allow_apprise = allow_apprise

    async def send(
        self,
        channel: AlertChannel,
        *,
        notification_id: str,
        kind: NotificationKind,
        document: Mapping[str, Any],
    ) -> DeliveryOutcome:
        match channel.kind:
            case ChannelKind.SLACK:
                return await self._post(
                    channel, notification_id, slack_message(document, kind, link=self._link)
                )
            case ChannelKind.WEBHOOK:
                body = alertmanager_payload(document, kind, receiver=channel.name, link=self._link)
                return await self._post(channel, notification_id, body)
            case ChannelKind.EMAIL:
                return await send_mail(
                    channel,
                    subject=subject(document, kind),
                    text=mail_text(document, kind, link=self._link),
                    message_id=notification_id,
                    policy=self._policy,
                    timeout_s=self._timeout_ms / 1_000,
                )
            case ChannelKind.APPRISE:
                return await self._send_by_apprise(channel, kind, document)

    async def _post(
        self, channel: AlertChannel, notification_id: str, body: dict[str, Any]
    ) -> DeliveryOutcome:
        request = OutboundRequest(
            url=channel.config["url"],
            body=orjson.dumps(body),
            message_id=notification_id,
            secrets=tuple(channel.config.get("secrets", ())),
            timeout_ms=self._timeout_ms,
        )
        return await deliver(self._client, request, now_ms=self._clock.now_ms())

    async def _send_by_apprise(
        self, channel: AlertChannel, kind: NotificationKind, document: Mapping[str, Any]
    ) -> DeliveryOutcome:
        """Send through Apprise. It makes its own requests, past the guard, so the operator must allow it."""
        started = time.monotonic()
        if not self._allow_apprise:
            return DeliveryOutcome(verdict=DeliveryVerdict.REFUSED, duration_ms=0, error=APPRISE_REFUSED)
        try:
            # In a thread: with its first URL Apprise imports the modules of all its services.
            notifier = await asyncio.to_thread(_notifier, channel.config["url"])
        except InvalidInput as error:
            return DeliveryOutcome(verdict=DeliveryVerdict.REFUSED, duration_ms=0, error=error.message)
        problem = await self._notify(notifier, kind, document)
        return DeliveryOutcome(
            verdict=DeliveryVerdict.RETRY if problem else DeliveryVerdict.DELIVERED,
            duration_ms=int((time.monotonic() - started) * 1_000),
            error=problem,
        )

    async def _notify(self, notifier: Any, kind: NotificationKind, document: Mapping[str, Any]) -> str | None:
        """Let Apprise send; what went wrong, or None. Its URL can ask for any timeout, so ours bounds it."""
        try:
            async with asyncio.timeout(self._timeout_ms / 1_000):
                sent = await notifier.async_notify(
                    title=subject(document, kind),
                    body=mail_text(document, kind, link=self._link),
                    # As plain text, so that Apprise escapes it for services that show HTML or Markdown.
                    body_format="text",
                    notify_type=_APPRISE_TYPES[kind],
                )
        except TimeoutError:
            return f"Apprise did not answer within {duration(self._timeout_ms)}"
        return None if sent else "Apprise reports a failure"


def _notifier(url: str) -> Any:
    """The Apprise object for a URL."""
    try:
        apprise = importlib.import_module("apprise")
    except ImportError:
        raise InvalidInput(
            "Apprise is not installed; the operator can install it: pip install 'weir-queue[apprise]'"
        ) from None
    notifier = apprise.Apprise()
    if not notifier.add(url):
        raise InvalidInput("Apprise does not understand the URL of this channel")
    return notifier
