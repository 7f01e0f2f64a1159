"""HTTP delivery by workers: signed, retried as asked, disabled on 410, logged."""

from __future__ import annotations

import base64

import pytest
from standardwebhooks import Webhook

from outbound.receiver import plain, receiving
from support.waiting import until
from weir.outbound.address_guard import GuardPolicy

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()


def spec(url: str, more: str = "") -> str:
    return f"""
    app A {{
      queue Out {{
        delivery {{ max_attempts: 3, initial_backoff_ms: 1, max_backoff_ms: 2 }}
        deliver: {url} {{ secret: "HOOK" {more} }}
      }}
    }}
    """


async def test_a_message_is_pushed_signed_with_its_own_id_and_logged(rig):
    rig.secrets["HOOK"] = SECRET
    async with receiving() as receiver:
        await rig.apply(spec(receiver.url))
        (message_id,) = await rig.put("Out", b'{"a":1}')
        async with rig.working():
            await until(lambda: rig.endings() == ["done"])
    headers, body = receiver.requests[0]
    assert body == b'{"a":1}'
    assert headers["webhook-id"] == message_id
    Webhook(SECRET).verify(body, headers)
    (record,) = rig.log.records
    assert (record.message_id, record.outcome.status, record.attempt) == (message_id, 200, 1)


@pytest.mark.parametrize(
    ("state", "sent"), [("vendor=1", "vendor=1"), ("a\r\nx-evil: 1", None), ("é", None), ("x" * 513, None)]
)
async def test_the_trace_of_a_message_goes_with_it_and_nothing_that_http_cannot_carry(rig, state, sent):
    rig.secrets["HOOK"] = SECRET
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with receiving() as receiver:
        await rig.apply(spec(receiver.url))
        await rig.put("Out", b"{}", headers={"traceparent": traceparent, "tracestate": state})
        await rig.put("Out", b"{}", headers={"traceparent": f"{traceparent}\r\nx-evil: 1"})
        async with rig.working():
            await until(lambda: rig.endings() == ["done", "done"])
    found = [(headers.get("traceparent"), headers.get("tracestate")) for headers, _ in receiver.requests]
    assert sorted(found, key=str) == sorted([(traceparent, sent), (None, None)], key=str)
    assert all("x-evil" not in headers for headers, _ in receiver.requests)


async def test_a_failing_endpoint_is_tried_again_with_the_same_id_until_the_message_dies(rig):
    rig.secrets["HOOK"] = SECRET
    async with receiving() as receiver:
        receiver.answer = plain(500)
        await rig.apply(spec(receiver.url))
        await rig.put("Out", b"{}")
        async with rig.working():
            await until(lambda: rig.endings() == ["failed", "failed", "dead"])
    assert len({headers["webhook-id"] for headers, _ in receiver.requests}) == 1
    (dead,) = await rig.outbox()
    assert "answered 500" in dead.error


async def test_retry_after_decides_when_the_next_attempt_is(rig):
    rig.secrets["HOOK"] = SECRET
    async with receiving() as receiver:
        receiver.answer = plain(429, retry_after="3600")
        await rig.apply(spec(receiver.url))
        await rig.put("Out", b"{}")
        async with rig.working():
            await until(lambda: rig.endings() == ["failed"])
    state = await rig.broker.state(rig.environment.queue("Out"))
    assert (state.depth, state.delayed) == (1, 1)


async def test_an_endpoint_that_answers_410_gets_nothing_more_and_the_rest_waits(rig):
    rig.secrets["HOOK"] = SECRET
    async with receiving() as receiver:
        receiver.answer = plain(410)
        await rig.apply(spec(receiver.url))
        await rig.put("Out", b"{}")
        async with rig.working():
            await until(lambda: rig.endings() == ["dead"])
            await rig.put("Out", b"{}")
            await until(lambda: rig.log.is_disabled(rig.environment, receiver.url))
    assert len(receiver.requests) == 1
    assert (await rig.broker.state(rig.environment.queue("Out"))).depth == 1


async def test_messages_that_were_claimed_before_a_410_lose_no_attempt(rig):
    rig.secrets["HOOK"] = SECRET
    async with receiving() as receiver:
        receiver.answer = plain(410)
        await rig.apply(spec(receiver.url))
        ids = await rig.put("Out", *[b"{}"] * 20)
        async with rig.working(concurrency=1, prefetch=19):
            await until(lambda: "dead" in rig.endings())
            await until(lambda: len(rig.endings()) == 20)
            receiver.answer = plain(200)
            rig.log.disabled.clear()
            await until(lambda: rig.endings().count("done") == 19, within_s=20)
    assert len(receiver.requests) == 20
    done = {
        one.delivery.message_id: one.delivery.attempt for one in rig.journal.attempts if one.ending == "done"
    }
    assert done == dict.fromkeys(ids[1:], 1)


async def test_a_private_address_is_refused_and_the_message_dies_with_the_reason(rig):
    rig.secrets["HOOK"] = SECRET
    async with receiving() as receiver:
        await rig.apply(spec(receiver.url))
        await rig.put("Out", b"{}")
        async with rig.working(policy=GuardPolicy()):
            await until(lambda: rig.endings() == ["dead"])
    assert receiver.requests == []
    assert "not a public address" in rig.journal.attempts[0].error


async def test_a_missing_secret_is_a_failure_and_nothing_is_sent_unsigned(rig):
    async with receiving() as receiver:
        await rig.apply(spec(receiver.url))
        await rig.put("Out", b"{}")
        async with rig.working():
            await until(lambda: len(rig.endings()) == 3)
    assert receiver.requests == []
    assert "the secret `HOOK` is not stored" in rig.journal.attempts[0].error


@pytest.mark.parametrize("status", [301, 302, 307])
async def test_a_redirect_is_a_failure_and_is_not_followed(rig, status):
    rig.secrets["HOOK"] = SECRET
    async with receiving() as receiver, receiving() as other:
        receiver.answer = plain(status, location=other.url)
        await rig.apply(spec(receiver.url))
        await rig.put("Out", b"{}")
        async with rig.working():
            await until(lambda: len(rig.endings()) == 3)
    assert other.requests == []
