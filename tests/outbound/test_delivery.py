"""One attempt: signed, bounded, and judged."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook

from outbound.receiver import plain, receiving
from weir import __version__
from weir.ingress.signatures import verify
from weir.model.clock import SystemClock
from weir.outbound.address_guard import GuardPolicy, guarded_client
from weir.outbound.addresses import parse_networks
from weir.outbound.delivery import (
    RESPONSE_CAP_BYTES,
    DeliveryVerdict,
    OutboundRequest,
    deliver,
    retry_after_ms,
)
from weir.spec.ir import SignatureScheme, Verification

LOOPBACK = GuardPolicy(allowed=parse_networks(["127.0.0.0/8"]))
SECRETS = ("whsec_" + base64.b64encode(b"a" * 32).decode(), "whsec_" + base64.b64encode(b"b" * 32).decode())


async def attempt(url: str, *, policy: GuardPolicy = LOOPBACK, timeout_ms: int = 2_000, **options):
    request = OutboundRequest(url=url, body=b'{"a": 1}', message_id="msg_1", timeout_ms=timeout_ms, **options)
    async with guarded_client(policy) as client:
        return await deliver(client, request, now_ms=SystemClock().now_ms())


async def test_a_delivery_verifies_with_the_reference_library_under_every_secret():
    async with receiving() as receiver:
        outcome = await attempt(receiver.url, secrets=SECRETS)
    assert outcome.verdict is DeliveryVerdict.DELIVERED
    headers, body = receiver.requests[0]
    for secret in SECRETS:
        Webhook(secret).verify(body, headers)


KEY = base64.b64encode(b"k" * 25).decode()


@pytest.mark.parametrize("secret", [KEY, f"whsec_{KEY}", f"whsec_{KEY.rstrip('=')}"])
async def test_base64_is_read_as_the_reference_library_reads_it_with_and_without_its_prefix(secret):
    """The library itself takes no secret without padding; others do."""
    library = Webhook(secret if secret.endswith("=") else secret + "==")
    async with receiving() as receiver:
        await attempt(receiver.url, secrets=[secret])
    headers, body = receiver.requests[0]
    library.verify(body, headers)
    now = datetime.now(UTC)
    signed = {
        "webhook-id": "msg_2",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": library.sign("msg_2", now, body.decode()),
    }
    standard = Verification(scheme=SignatureScheme.STANDARD, secrets=("S",))
    now_ms = int(now.timestamp() * 1000)
    assert verify(standard, secrets=[secret], headers=signed, body=body, now_ms=now_ms)
    assert not verify(standard, secrets=[secret.swapcase()], headers=signed, body=body, now_ms=now_ms)


async def test_text_that_is_not_base64_is_its_own_key():
    text = "a secret, no Base64, of enough bytes"
    async with receiving() as receiver:
        await attempt(receiver.url, secrets=[text])
    headers, body = receiver.requests[0]
    Webhook(base64.b64encode(text.encode()).decode()).verify(body, headers)


async def test_a_delivery_names_the_version_that_sends_it():
    async with receiving() as receiver:
        await attempt(receiver.url)
    headers, _ = receiver.requests[0]
    assert headers["user-agent"] == f"Weir/{__version__}"


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (204, DeliveryVerdict.DELIVERED),
        (301, DeliveryVerdict.RETRY),
        (404, DeliveryVerdict.RETRY),
        (410, DeliveryVerdict.GONE),
        (500, DeliveryVerdict.RETRY),
    ],
)
async def test_only_2xx_is_success_and_410_is_gone(status, verdict):
    async with receiving() as receiver:
        receiver.answer = plain(status)
        outcome = await attempt(receiver.url)
    assert (outcome.verdict, outcome.status) == (verdict, status)


async def test_retry_after_is_read():
    async with receiving() as receiver:
        receiver.answer = plain(429, retry_after="7")
        outcome = await attempt(receiver.url)
    assert outcome.retry_after_ms == 7_000


def test_retry_after_takes_dates_and_ignores_nonsense():
    assert retry_after_ms("Thu, 01 Jan 1970 00:01:00 GMT", now_ms=30_000) == 30_000
    assert retry_after_ms("soon", now_ms=0) is None
    assert retry_after_ms("999999999", now_ms=0) == 24 * 3600 * 1000
    assert retry_after_ms("²", now_ms=0) is None


async def test_an_endpoint_that_never_answers_is_given_up():
    async with receiving() as receiver:
        receiver.answer = b""
        outcome = await attempt(receiver.url, timeout_ms=200)
    assert outcome.verdict is DeliveryVerdict.RETRY
    assert outcome.duration_ms < 1_500


async def test_a_huge_response_is_cut():
    async with receiving() as receiver:
        receiver.answer = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (4 * RESPONSE_CAP_BYTES)
        outcome = await attempt(receiver.url)
    assert outcome.verdict is DeliveryVerdict.DELIVERED
    assert len(outcome.excerpt) == 1024


async def test_a_private_destination_is_refused_and_nothing_is_sent():
    async with receiving() as receiver:
        outcome = await attempt(receiver.url, policy=GuardPolicy())
    assert outcome.verdict is DeliveryVerdict.REFUSED
    assert receiver.requests == []


async def test_a_closed_port_is_a_failure_to_retry():
    outcome = await attempt("http://127.0.0.1:1/")
    assert outcome.verdict is DeliveryVerdict.RETRY
    assert "ConnectError" in outcome.error
