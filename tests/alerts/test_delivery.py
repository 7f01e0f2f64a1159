"""Telling, to real receivers that fail, throttle, redirect and hang; through the queue, with a log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from email import message_from_bytes
from email.policy import default as default_policy

import pytest
from aiosmtpd.controller import Controller
from standardwebhooks.webhooks import Webhook

from alerts.post import OPEN, Post
from alerts.receivers import receiving, status
from weir.alerts.alert_channels import AlertChannels, channel_of
from weir.alerts.notification_queue import CLAIMED_MS, PATIENCE
from weir.alerts.notifications import NotificationKind
from weir.alerts.templates import alertmanager_payload, mail_text, slack_message, subject
from weir.control.database import Database
from weir.embedded.ports import free_port
from weir.errors import InvalidInput
from weir.model.asyncio_tasks import cancel_and_wait
from weir.model.names import EnvironmentRef
from weir.outbound.address_guard import GuardPolicy

CLOSED = GuardPolicy()
SECRET = "a-secret-of-more-than-24-bytes"
lenient = pytest.mark.filterwarnings("ignore::DeprecationWarning")
"""Apprise loads all of its services, some of them by means that Python will drop."""
NASTY = '<!channel> & "x"\r\nBcc: everybody@example.com'


@pytest.fixture
async def post(database: Database, environment: EnvironmentRef) -> AsyncIterator[Post]:
    post = Post(database, environment, OPEN)
    yield post
    await post.client.aclose()


async def test_a_webhook_is_signed_and_has_the_shape_of_alertmanager(post: Post) -> None:
    async with receiving() as receiver:
        await post.say(await post.channel("webhook", url=receiver.url, secrets=[SECRET]))
        await post.carry(1)
    (request,) = receiver.requests
    body = json.loads(request.body)
    assert body["version"] == "4"
    assert {"groupKey", "status", "receiver", "commonLabels", "externalURL", "truncatedAlerts"} <= body.keys()
    assert body["alerts"][0]["endsAt"] == "0001-01-01T00:00:00Z"
    assert all(isinstance(value, str) for value in body["alerts"][0]["labels"].values())
    headers = dict(line.split(": ", 1) for line in request.head.splitlines()[1:] if ": " in line)
    lowered = {name.lower(): value for name, value in headers.items()}
    assert lowered["webhook-id"] == (await post.log())["id"]
    webhook = Webhook(SECRET.encode())
    signature = webhook.sign(
        lowered["webhook-id"],
        __import__("datetime").datetime.fromtimestamp(
            int(lowered["webhook-timestamp"]), tz=__import__("datetime").UTC
        ),
        request.body.decode(),
    )
    assert lowered["webhook-signature"] == signature
    assert (await post.log())["state"] == "delivered"


async def test_a_receiver_that_fails_is_tried_again_and_every_attempt_is_logged(post: Post) -> None:
    async with receiving(lambda n: status(500) if n < 3 else status(204)) as receiver:
        await post.say(await post.channel("webhook", url=receiver.url))
        await post.carry(6)
    entry = await post.log()
    assert entry["state"] == "delivered"
    assert [one["verdict"] for one in entry["deliveries"]] == ["retry", "retry", "retry", "delivered"]
    assert [one["status"] for one in entry["deliveries"]] == [500, 500, 500, 204]


async def test_a_receiver_that_throttles_is_not_asked_before_its_time(post: Post) -> None:
    async with receiving(lambda n: status(429, "retry-after: 120") if n == 0 else status(200)) as receiver:
        await post.say(await post.channel("webhook", url=receiver.url))
        await post.carry(1, advance_ms=100_000)
        await post.carry(1, advance_ms=30_000)
        assert len(receiver.requests) == 1
        await post.carry(1)
        assert len(receiver.requests) == 2
    assert (await post.log())["state"] == "delivered"


async def test_a_redirect_is_a_failure_and_is_not_followed(post: Post) -> None:
    async with receiving() as target, receiving(lambda _: status(301, f"location: {target.url}")) as receiver:
        await post.say(await post.channel("webhook", url=receiver.url))
        await post.carry(1)
        assert target.requests == []
    assert (await post.log())["deliveries"][0]["verdict"] == "retry"


async def test_a_receiver_that_hangs_is_cut_off(post: Post) -> None:
    async with receiving(hang=True) as receiver:
        await post.say(await post.channel("webhook", url=receiver.url))
        await post.carry(1)
    entry = await post.log()
    assert entry["deliveries"][0]["verdict"] == "retry"
    assert entry["deliveries"][0]["duration_ms"] < 5_000


async def test_a_receiver_that_is_gone_is_never_called_again(post: Post) -> None:
    async with receiving(lambda _: status(410)) as receiver:
        channel = await post.channel("webhook", url=receiver.url)
        await post.say(channel)
        await post.carry(2)
        assert (await post.log())["state"] == "failed"
        assert (await AlertChannels(post.database).find(post.environment, "ops")).disabled_reason
        await post.say(channel)
        await post.carry(1)
        assert len(receiver.requests) == 1


async def test_giving_up_after_the_last_attempt_is_recorded(post: Post) -> None:
    async with receiving(lambda _: status(503)) as receiver:
        await post.say(await post.channel("webhook", url=receiver.url))
        await post.carry(PATIENCE.tries + 3, advance_ms=7_200_000)
        assert len(receiver.requests) == PATIENCE.tries
    assert (await post.log())["state"] == "failed"


async def test_a_private_address_is_refused_at_once_and_for_good(
    database: Database, environment: EnvironmentRef
) -> None:
    post = Post(database, environment, CLOSED)
    async with receiving() as receiver:
        await post.say(await post.channel("webhook", url=receiver.url))
        await post.carry(2)
        assert receiver.requests == []
    entry = await post.log()
    assert (entry["state"], entry["deliveries"][0]["verdict"]) == ("failed", "refused")
    await post.client.aclose()


@pytest.mark.parametrize(
    ("ends_before", "told"), [("_attempt", 1), ("_settle", 2), ("_record", 2), ("_mark", 2)]
)
async def test_a_sender_that_ends_sends_twice_at_most(
    post: Post, monkeypatch: pytest.MonkeyPatch, ends_before: str, told: int
) -> None:
    reached = asyncio.Event()

    async def hang(*_: object, **__: object) -> None:
        reached.set()
        await asyncio.Event().wait()

    async with receiving() as receiver:
        await post.say(await post.channel("webhook", url=receiver.url))
        with monkeypatch.context() as patch:
            patch.setattr(post.notifier, ends_before, hang)
            sending = asyncio.create_task(post.notifier.send_due())
            await reached.wait()
            await cancel_and_wait([sending])
        assert await post.notifier.send_due() == 0, "it may still be sent by the other one"
        post.clock.advance(CLAIMED_MS + 1)
        await post.carry(4)
        assert len(receiver.requests) == told
        ids = {line for one in receiver.requests for line in one.head.splitlines() if "webhook-id" in line}
        assert len(ids) == 1, "the receiver can tell that it is the same one"
    assert (await post.log())["state"] == "delivered"


async def test_slack_gets_its_own_shape_and_no_name_can_mention_or_link_anybody(post: Post) -> None:
    async with receiving() as receiver:
        channel = await post.channel("slack", url=receiver.url)
        await post.say(channel, document(NASTY), NotificationKind.FIRING)
        await post.carry(1)
    (request,) = receiver.requests
    assert request.head.startswith("POST /hook HTTP/1.1")
    assert "content-type: application/json" in request.head.lower()
    body = json.loads(request.body)
    assert body.keys() == {"text", "unfurl_links", "unfurl_media"}
    assert body["unfurl_links"] is body["unfurl_media"] is False
    title, *lines = body["text"].split("\n")
    assert title.startswith("*[FIRING] &lt;!channel&gt; &amp; ")
    assert "<" not in body["text"]
    assert len(lines) == 11, "ten alerts and how many more"
    assert all(line.startswith(("• `", "… and 55 more")) for line in lines)
    assert (await post.log())["state"] == "delivered"


@lenient
@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (NotificationKind.FIRING, "failure"),
        (NotificationKind.RESOLVED, "success"),
        (NotificationKind.TEST, "info"),
    ],
)
async def test_an_apprise_url_is_told_and_what_it_shows_as_html_is_escaped(
    post: Post, kind: NotificationKind, word: str
) -> None:
    async with receiving() as receiver:
        channel = await post.channel("apprise", url=f"json://127.0.0.1:{receiver.port}/?format=html")
        await post.say(channel, document("<b>&"), kind)
        await post.carry(1)
    body = json.loads(receiver.requests[0].body)
    assert body["type"] == word
    assert body["title"].startswith(f"[{kind.value.upper()}]")
    assert "<b>" not in body["message"]
    assert "&lt;b&gt;" in body["message"]
    assert (await post.log())["state"] == "delivered"


@lenient
async def test_an_apprise_service_that_fails_is_tried_again(post: Post) -> None:
    async with receiving(lambda n: status(500) if n == 0 else status(200)) as receiver:
        await post.say(await post.channel("apprise", url=f"json://127.0.0.1:{receiver.port}/"))
        await post.carry(2)
    entry = await post.log()
    assert [one["verdict"] for one in entry["deliveries"]] == ["retry", "delivered"]


@lenient
async def test_an_apprise_service_that_hangs_is_cut_off(post: Post) -> None:
    async with receiving(hang=True) as receiver:
        # Apprise itself waits for as long as the URL says.
        url = f"json://127.0.0.1:{receiver.port}/?rto=30"
        await post.say(await post.channel("apprise", url=url))
        await post.carry(1)
    (delivery,) = (await post.log())["deliveries"]
    assert delivery["verdict"] == "retry"
    assert delivery["duration_ms"] < 5_000


async def test_apprise_is_refused_unless_the_operator_allows_it(post: Post) -> None:
    post.sender._allow_apprise = False
    async with receiving() as receiver:
        await post.say(await post.channel("apprise", url=f"json://127.0.0.1:{receiver.port}/"))
        await post.carry(1)
        assert receiver.requests == []
    assert (await post.log())["deliveries"][0]["verdict"] == "refused"


class Mailbox:
    """What a mail server received."""

    def __init__(self) -> None:
        self.mails: list[bytes] = []
        self.answer = "250 OK"
        self.hangs_at = ""

    async def handle_DATA(self, server: object, session: object, envelope: object) -> str:
        await self._hang_at("DATA")
        if self.answer.startswith("250"):
            self.mails.append(envelope.content)
        return self.answer

    async def handle_QUIT(self, server: object, session: object, envelope: object) -> str:
        await self._hang_at("QUIT")
        return "221 Bye"

    async def _hang_at(self, command: str) -> None:
        if self.hangs_at == command:
            await asyncio.Event().wait()


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


@pytest.fixture
def mail_port(mailbox: Mailbox) -> Iterator[int]:
    controller = Controller(mailbox, hostname="127.0.0.1", port=free_port())
    controller.start()
    yield controller.port
    controller.stop()


def mail_config(port: int) -> dict[str, object]:
    return {
        "host": "127.0.0.1",
        "port": port,
        "tls": "none",
        "from": "weir@example.com",
        "to": ["a@example.com"],
    }


async def test_a_mail_arrives(post: Post, mailbox: Mailbox, mail_port: int) -> None:
    await post.say(await post.channel("email", **mail_config(mail_port)))
    await post.carry(1)
    mail = message_from_bytes(mailbox.mails[0], policy=default_policy)
    assert mail["To"] == "a@example.com"
    assert mail["Subject"].startswith("[TEST] test: `test` in")
    assert "nothing is wrong" in mail.get_content()
    assert (await post.log())["state"] == "delivered"


async def test_a_mail_server_that_is_busy_is_tried_again_and_one_that_refuses_is_not(
    post: Post, mailbox: Mailbox, mail_port: int
) -> None:
    channel = await post.channel("email", **mail_config(mail_port))
    mailbox.answer = "451 try later"
    await post.say(channel)
    await post.carry(1)
    mailbox.answer = "554 no"
    await post.carry(2)
    entry = await post.log()
    assert [one["verdict"] for one in entry["deliveries"]] == ["retry", "refused"]
    assert entry["state"] == "failed"


async def test_a_mail_server_without_tls_gets_no_mail_that_wants_it(
    post: Post, mailbox: Mailbox, mail_port: int
) -> None:
    await post.say(await post.channel("email", **{**mail_config(mail_port), "tls": "starttls"}))
    await post.carry(1)
    assert mailbox.mails == []
    assert (await post.log())["deliveries"][0]["verdict"] == "retry"


async def test_a_mail_server_that_is_down_is_tried_again(post: Post) -> None:
    await post.say(await post.channel("email", **mail_config(9)))
    await post.carry(1)
    assert (await post.log())["deliveries"][0]["verdict"] == "retry"


async def test_a_mail_server_that_hangs_is_cut_off(post: Post, mailbox: Mailbox, mail_port: int) -> None:
    mailbox.hangs_at = "DATA"
    await post.say(await post.channel("email", **mail_config(mail_port)))
    await post.carry(1)
    (delivery,) = (await post.log())["deliveries"]
    assert delivery["verdict"] == "retry"
    assert delivery["duration_ms"] < 5_000


async def test_a_mail_that_was_accepted_is_not_sent_again_because_the_server_does_not_say_goodbye(
    post: Post, mailbox: Mailbox, mail_port: int
) -> None:
    mailbox.hangs_at = "QUIT"
    post.sender._timeout_ms = 5_000
    await post.say(await post.channel("email", **mail_config(mail_port)))
    await post.carry(1)
    assert ((await post.log())["state"], len(mailbox.mails)) == ("delivered", 1)


def document(name: str) -> dict:
    return {
        "organization": name,
        "project": name,
        "environment": name,
        "rule": {
            "id": "r",
            "name": name,
            "metric": "backlog",
            "operator": ">",
            "threshold": 5.0,
            "window_ms": 60_000,
        },
        "alerts": [
            {
                "id": "a",
                "queue": name,
                "state": "firing",
                "value": None,
                "fired_at_ms": 1,
                "resolved_at_ms": None,
                "cause": "unknown",
                "verdict": {"summary": name * 100},
            }
        ]
        * 60,
        "more": 5,
    }


def test_names_cannot_mention_link_or_inject() -> None:
    said = slack_message(document(NASTY), NotificationKind.FIRING, link="https://weir.example/?a=<b>")["text"]
    assert "<!channel>" not in said
    assert "&lt;!channel&gt;" in said
    assert "… and 55 more" in said
    line = subject(document(NASTY), NotificationKind.FIRING)
    assert "\r" not in line
    assert "\n" not in line
    assert not any(
        text.startswith("Bcc:")
        for text in mail_text(document(NASTY), NotificationKind.FIRING, link="").split("\n")
    )
    payload = alertmanager_payload(document(NASTY), NotificationKind.RESOLVED, receiver="r", link="")
    assert payload["truncatedAlerts"] == 5
    assert len(payload["alerts"][0]["annotations"]["cause"]) <= 500


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("pigeon", {"url": "https://example.com"}),
        ("slack", {}),
        ("slack", {"url": "https://example.com", "more": 1}),
        ("slack", {"url": "file:///etc/passwd"}),
        ("webhook", {"url": "http://127.0.0.1/"}),
        ("webhook", {"url": "http://localhost/"}),
        ("slack", {"url": "https://a.LocalHost./"}),
        ("email", {"host": "localhost", "from": "a@b.c", "to": ["a@b.c"]}),
        ("webhook", {"url": "http://169.254.169.254/latest"}),
        ("webhook", {"url": "http://[::ffff:127.0.0.1]/"}),
        ("webhook", {"url": "http://2130706433/"}),
        ("webhook", {"url": "http://0x7f.1/"}),
        ("webhook", {"url": "http://user:pw@example.com/"}),
        ("webhook", {"url": "https://example.com", "secrets": ["short"]}),
        ("webhook", {"url": "https://example.com", "secrets": "a" * 30}),
        ("webhook", {"url": 7}),
        ("email", {"host": "10.0.0.1", "from": "a@b.c", "to": ["a@b.c"]}),
        ("email", {"host": "::1", "from": "a@b.c", "to": ["a@b.c"]}),
        ("email", {"host": "mail.example.com", "from": "a@b.c\r\nX: y", "to": ["a@b.c"]}),
        ("email", {"host": "mail.example.com", "from": "a@b.c", "to": []}),
        ("email", {"host": "mail.example.com", "from": "a@b.c", "to": ["nobody"]}),
        ("email", {"host": "mail.example.com", "from": "a@b.c", "to": ["a@b.c"], "port": 0}),
        ("email", {"host": "mail.example.com", "from": "a@b.c", "to": ["a@b.c"], "tls": "perhaps"}),
        ("apprise", {"url": "nothing"}),
    ],
)
def test_a_channel_that_could_not_work_or_must_not_is_refused(
    environment: EnvironmentRef, kind: str, config: dict
) -> None:
    with pytest.raises(InvalidInput):
        channel_of(environment, name="c", kind=kind, config=config, policy=CLOSED, allow_apprise=True)


def test_credentials_are_not_shown(environment: EnvironmentRef) -> None:
    url = "https://hooks.slack.com/services/T0/B0/verysecret"
    slack = channel_of(environment, name="c", kind="slack", config={"url": url}, policy=CLOSED)
    assert "verysecret" not in str(slack.shown())
    assert "verysecret" not in repr(slack)
    hook = channel_of(
        environment,
        name="c",
        kind="webhook",
        config={"url": "https://example.com", "secrets": [SECRET]},
        policy=CLOSED,
    )
    assert SECRET not in str(hook.shown())
