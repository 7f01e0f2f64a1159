"""Notifications tell what is true when they are sent, and none of them holds up another one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from alerts.post import OPEN, Post
from alerts.receivers import Receiver, receiving, status
from support.waiting import until
from weir.alerts.alert import Alert
from weir.alerts.alert_channels import AlertChannel
from weir.alerts.alert_records import AlertRecords
from weir.alerts.evaluation_writer import SQL, _alert_row
from weir.alerts.notification_queue import (
    CLAIMED_MS,
    NEVER_TOLD,
    OVER,
    PATIENCE,
    NotificationLog,
    NotificationSender,
)
from weir.alerts.notifications import MAX_TESTS, NotificationKind, fire_test, notify
from weir.control.database import Database, execute
from weir.errors import Overloaded
from weir.model.asyncio_tasks import cancel_and_wait
from weir.model.durations import MINUTE_MS
from weir.model.ids import new_id
from weir.model.names import EnvironmentRef
from weir.outbound.delivery import DeliveryOutcome, DeliveryVerdict


@pytest.fixture
async def post(database: Database, environment: EnvironmentRef) -> AsyncIterator[Post]:
    post = Post(database, environment, OPEN)
    yield post
    await post.client.aclose()


@asynccontextmanager
async def sending(sender: NotificationSender) -> AsyncIterator[None]:
    task = asyncio.create_task(sender.run())
    try:
        yield
    finally:
        await cancel_and_wait([task])


async def fire(post: Post, queues: Sequence[str], *, channel: str = "ops") -> list[Alert]:
    """Raise an alert of one rule for each queue, and tell of all of them in one notification."""
    rule_id = new_id()
    rule = {
        "id": rule_id,
        "name": "orders back up",
        "metric": "backlog",
        "operator": ">",
        "threshold": 5.0,
        "window_ms": MINUTE_MS,
        "channels": [channel],
    }
    alerts = [
        Alert(
            id=new_id(),
            rule_id=rule_id,
            environment=post.environment,
            rule=rule,
            queue=queue,
            state="firing",
            fired_at_ms=post.clock.now_ms(),
            resolved_at_ms=None,
            unknown_since_ms=None,
            value=10.0,
            peak=10.0,
            cause="unknown",
            verdict={"cause": "unknown", "summary": "it backs up", "evidence": {}, "also": []},
            notified=True,
            acknowledged_at_ms=None,
            acknowledged_by=None,
        )
        for queue in queues
    ]
    async with post.database.transaction() as connection:
        for alert in alerts:
            await execute(connection, SQL["raise_alert"], **_alert_row(alert))
            await connection.execute("UPDATE weir.alerts SET notified = true")
        await notify(connection, NotificationKind.FIRING, alerts, now_ms=post.clock.now_ms())
    return alerts


async def resolve(post: Post, alert: Alert) -> None:
    await AlertRecords(post.database, clock=post.clock).resolve(post.environment, alert.id, actor="a person")


def told(receiver: Receiver) -> list[tuple[str, list[str]]]:
    """What a receiver was told: firing or resolved, and of which queues."""
    bodies = [json.loads(request.body) for request in receiver.requests]
    return [(body["status"], [one["labels"]["queue"] for one in body["alerts"]]) for body in bodies]


async def states(post: Post) -> list[tuple[str, str, str | None]]:
    """Every notification in its order: kind, state and error."""
    found = await NotificationLog(post.database).of(post.environment)
    return [(one["kind"], one["state"], one["last_error"]) for one in reversed(found)]


async def test_a_resolved_alert_is_told_after_its_firing(post: Post) -> None:
    async with receiving() as receiver:
        await post.channel("webhook", url=receiver.url)
        (alert,) = await fire(post, ["orders"])
        await post.carry(1)
        await resolve(post, alert)
        await post.carry(2)
    assert told(receiver) == [("firing", ["orders"]), ("resolved", ["orders"])]


async def test_a_firing_that_may_have_arrived_is_not_sent_again_once_it_is_over_and_its_end_is_told(
    post: Post,
) -> None:
    async with receiving(lambda n: status(500) if n == 0 else status(200)) as receiver:
        await post.channel("webhook", url=receiver.url)
        (alert,) = await fire(post, ["orders"])
        await post.carry(1, advance_ms=1)
        await resolve(post, alert)
        assert await post.notifier.send_due() == 0, "what is over waits behind what is tried again"
        post.clock.advance(MINUTE_MS)
        await post.carry(2)
    assert told(receiver) == [("firing", ["orders"]), ("resolved", ["orders"])]
    assert await states(post) == [("firing", "skipped", OVER), ("resolved", "delivered", None)]


async def test_an_alert_that_is_over_before_it_could_be_sent_is_not_told_at_all(post: Post) -> None:
    async with receiving() as receiver:
        await post.channel("webhook", url=receiver.url)
        (alert,) = await fire(post, ["orders"])
        await resolve(post, alert)
        await post.carry(3)
    assert told(receiver) == []
    assert await states(post) == [("firing", "skipped", OVER), ("resolved", "skipped", NEVER_TOLD)]


async def test_of_several_alerts_only_those_that_still_fire_are_told(post: Post) -> None:
    async with receiving() as receiver:
        await post.channel("webhook", url=receiver.url)
        over, still = await fire(post, ["over", "still"])
        await resolve(post, over)
        await post.carry(2)
        await resolve(post, still)
        await post.carry(1)
    assert told(receiver) == [("firing", ["still"]), ("resolved", ["still"])]


async def test_a_notification_that_is_put_off_holds_up_no_other_rule_of_its_channel(post: Post) -> None:
    async with receiving(lambda n: status(500) if n == 0 else status(200)) as receiver:
        await post.channel("webhook", url=receiver.url)
        await fire(post, ["first"])
        await post.carry(1, advance_ms=1)
        await fire(post, ["second"])
        await post.carry(1, advance_ms=1)
    assert told(receiver) == [("firing", ["first"]), ("firing", ["second"])]


class Latin:
    """A mail server that refuses in Latin-1."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 hello\r\n")
        try:
            while line := await reader.readline():
                writer.write(
                    b"250 ok\r\n"
                    if line[:4] in (b"EHLO", b"HELO")
                    else "550 gesch\xfctzt\r\n".encode("latin-1")
                )
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()


async def test_a_mail_server_that_answers_in_latin_1_is_told_to_its_owner_and_stops_nobody(
    post: Post,
) -> None:
    server = await asyncio.start_server(Latin().serve, "127.0.0.1", 0)
    async with server, receiving() as receiver:
        port = server.sockets[0].getsockname()[1]
        mail = {
            "host": "127.0.0.1",
            "port": port,
            "tls": "none",
            "from": "a@example.com",
            "to": ["b@example.com"],
        }
        await post.say(await post.channel("email", name="mail", **mail))
        await post.say(await post.channel("webhook", name="hook", url=receiver.url))
        async with sending(post.notifier):
            await until(lambda: _settled(post, 2))
    found = await by_channel(post)
    assert found["hook"]["state"] == "delivered"
    assert found["mail"]["state"] == "failed"
    assert "the mail server said gesch" in found["mail"]["last_error"]


async def by_channel(post: Post) -> dict[str, dict[str, Any]]:
    return {one["channel"]: one for one in await NotificationLog(post.database).of(post.environment)}


async def _settled(post: Post, count: int) -> bool:
    return sum(one["state"] != "waiting" for one in (await by_channel(post)).values()) == count


async def test_receivers_that_hang_delay_nobody_else(post: Post) -> None:
    """Sixty of one organization; each would be waited for much longer than this test runs."""
    post.sender._timeout_ms = 600_000
    other = EnvironmentRef(organization=new_id(), project="p", environment="e")
    async with AsyncExitStack() as stack:
        slow = await stack.enter_async_context(receiving(hang=True))
        quick = await stack.enter_async_context(receiving())
        channels = [await post.channel("webhook", name=f"slow {n}", url=slow.url) for n in range(MAX_TESTS)]
        for _ in range(6):
            for channel in channels:
                await post.say(channel)
            post.clock.advance(MINUTE_MS + 1)
        async with sending(post.notifier):
            await until(lambda: _reached(slow, 8))
            await post.say(await post.channel("webhook", name="quick", environment=other, url=quick.url))
            await until(lambda: _reached(quick, 1))
        assert len(slow.requests) == 8, "an organization has only some of the slots"


async def _reached(receiver: Receiver, count: int) -> bool:
    return len(receiver.requests) >= count


class Odd:
    """A sender that fails in a way that nobody foresaw, or ends, for the channel `odd`."""

    def __init__(self, at: Any) -> None:
        self._at = at
        self.sent: list[str] = []

    async def send(
        self,
        channel: AlertChannel,
        *,
        notification_id: str,
        kind: NotificationKind,
        document: Mapping[str, Any],
    ) -> DeliveryOutcome:
        if channel.name == "odd":
            await self._at()
        self.sent.append(channel.name)
        return DeliveryOutcome(verdict=DeliveryVerdict.DELIVERED, duration_ms=1)


async def two_channels(post: Post) -> None:
    for name in ("odd", "even"):
        await post.say(await post.channel("webhook", name=name, url="http://127.0.0.1:9/"))


async def test_a_notification_that_raises_is_tried_again_and_given_up_with_its_error(post: Post) -> None:
    async def fail() -> None:
        raise LookupError("half an emoji: \ud83d")

    sender = Odd(fail)
    post.notifier = NotificationSender(post.database, sender, clock=post.clock)
    await two_channels(post)
    await post.carry(PATIENCE.tries + 2)
    assert sender.sent == ["even"]
    entry = (await by_channel(post))["odd"]
    assert (entry["state"], entry["last_error"]) == ("failed", "LookupError: half an emoji: ?")
    assert len(entry["deliveries"]) == PATIENCE.tries


async def test_a_notification_that_ends_its_process_is_given_up_and_the_others_arrive(post: Post) -> None:
    reached = asyncio.Event()

    async def end() -> None:
        reached.set()
        await asyncio.Event().wait()

    sender = Odd(end)
    post.notifier = NotificationSender(post.database, sender, clock=post.clock)
    await two_channels(post)
    for _ in range(PATIENCE.tries):
        reached.clear()
        task = asyncio.create_task(post.notifier.send_due())
        await reached.wait()
        await cancel_and_wait([task])
        post.clock.advance(CLAIMED_MS + 1)
    await post.carry(1)
    found = await by_channel(post)
    entry = found["odd"]
    assert (entry["state"], found["even"]["state"]) == ("failed", "delivered")
    assert "the process that worked on it ended each time" in entry["last_error"]


async def test_an_environment_sends_so_many_tests_per_minute_and_no_more(post: Post) -> None:
    channel = await post.channel("webhook", url="http://127.0.0.1:9/")
    fires = [
        fire_test(post.database, channel, kind=NotificationKind.TEST, now_ms=post.clock.now_ms())
        for _ in range(MAX_TESTS + 5)
    ]
    answers = await asyncio.gather(*fires, return_exceptions=True)
    refused = [one for one in answers if isinstance(one, Overloaded)]
    assert len(refused) == 5
    assert refused[0].retry_after_s == 60
    post.clock.advance(MINUTE_MS + 1)
    await post.say(channel)
