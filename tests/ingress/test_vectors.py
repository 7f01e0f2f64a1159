"""Signatures that providers published, or that their own libraries made: each holds, and only as it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from weir.ingress.signatures import verify
from weir.spec.ir import SignatureScheme, Verification

FOLDER = Path(__file__).parent / "vectors"
SLACK_SECRET = "8f742231b10e8888abcd99yyyzzz85a5"


@dataclass(frozen=True, kw_only=True)
class Vector:
    """A request that its provider says is genuine, and where it says so."""

    published: str
    scheme: SignatureScheme
    secret: str
    body: bytes
    headers: dict[str, str]
    at_s: int = 0
    options: dict[str, str] = field(default_factory=dict)


def stripe(body: str, *, v1: str) -> Vector:
    """Stripe publishes no secret with its example: secret and body of its tests, signed by its library."""
    return Vector(
        published="stripe-python 16.1.0, WebhookSignature.generate_signature_header",
        scheme=SignatureScheme.STRIPE,
        secret="whsec_test_secret",
        body=body.encode(),
        headers={"stripe-signature": f"t=1700000000,v1={v1}"},
        at_s=1_700_000_000,
    )


def slack(body: bytes, *, published: str, signature: str) -> Vector:
    return Vector(
        published=published,
        scheme=SignatureScheme.SLACK,
        secret=SLACK_SECRET,
        body=body,
        headers={"x-slack-request-timestamp": "1531420618", "x-slack-signature": signature},
        at_s=1_531_420_618,
    )


def plain(body: str, *, signature: str) -> Vector:
    return Vector(
        published="stripe-node, test/crypto/helpers: the digests that each of its providers must compute",
        scheme=SignatureScheme.HMAC,
        secret="test_secret",
        body=body.encode(),
        headers={"x-signature": signature},
        options={"header": "X-Signature"},
    )


VECTORS = {
    "github": Vector(
        published="GitHub docs, Validating webhook deliveries: Testing the webhook payload validation",
        scheme=SignatureScheme.GITHUB,
        secret="It's a Secret to Everybody",
        body=b"Hello, World!",
        headers={
            "x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
        },
    ),
    "standard": Vector(
        published="Standard Webhooks, the tests of its reference libraries",
        scheme=SignatureScheme.STANDARD,
        secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        body=b'{"test": 2432232314}',
        headers={
            "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "webhook-timestamp": "1614265330",
            "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        },
        at_s=1_614_265_330,
    ),
    "slack": slack(
        (FOLDER / "slack.txt").read_bytes(),
        published="Slack docs, Verifying requests from Slack",
        signature="v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    ),
    "slack, beyond ASCII": slack(
        '{"type":"event_callback","text":"Zoë 😀"}'.encode(),
        published="slack_sdk 3.46.0, SignatureVerifier.generate_signature",
        signature="v0=c8113bba86f4dfad6aab8480a33583af93f6b67100b936f1814b857db8162dcc",
    ),
    "slack, empty": slack(
        b"",
        published="slack_sdk 3.46.0, SignatureVerifier.generate_signature",
        signature="v0=55f41ec73231010289b54e669149ea021fccab11b5524355523533ce930cb739",
    ),
    "stripe": stripe(
        '{\n  "id": "evt_test_webhook",\n  "object": "event"\n}',
        v1="4f1cd7feda9826e746b7d482c4badebb657398df1099e1046364f6196a230150",
    ),
    "stripe, beyond ASCII": stripe(
        '{"id":"evt_1","customer":"Zoë 😀"}',
        v1="2d208a2fa3ae6c80a0c908e0e0cfdc81f1ad684ec60291593aef993ba11717ea",
    ),
    "pagerduty": Vector(
        published="PagerDuty's go-pagerduty, webhookv3 tests",
        scheme=SignatureScheme.PAGERDUTY,
        secret="lDQHScfUeXUKaQRNF+8XIiDKZ7XX3itBAYzwU0TARw8lJqRnkKl2iB1anSb0Z+IK",
        body=(FOLDER / "pagerduty.json").read_bytes(),
        headers={
            "x-pagerduty-signature": "v1=0c0b9495b893a39e70d1fea2fe11fbe0a825f88b9f67846f6cc07dd2bc5476cd"
        },
    ),
    "hmac": plain(
        '{"obj1":"hello","obj2":"world"}',
        signature="bebb1a643997f419b315ddba19e6f5411e1ce7f810ba6d3617ce72823092f363",
    ),
    "hmac, empty": plain("", signature="f7f9bd47fb987337b5796fdc1fdb9ba221d0d5396814bfcaf9521f43fd8927fd"),
    "hmac, beyond ASCII": plain(
        "😀", signature="837da296d05c4fe31f61d5d7ead035099d9585a5bcde87de952012a78f0b0c43"
    ),
}


def holds(vector: Vector, *, secret: str | None = None, body: bytes | None = None, later_s: int = 0) -> bool:
    verification = Verification(scheme=vector.scheme, secrets=("S",), **vector.options)  # type: ignore[arg-type]
    return verify(
        verification,
        secrets=[secret or vector.secret],
        headers=vector.headers,
        body=vector.body if body is None else body,
        now_ms=(vector.at_s + later_s) * 1000,
    )


@pytest.mark.parametrize("name", VECTORS)
def test_what_the_provider_signed_holds(name: str) -> None:
    assert holds(VECTORS[name])


@pytest.mark.parametrize("name", VECTORS)
def test_it_holds_with_nothing_changed(name: str) -> None:
    vector = VECTORS[name]
    assert not holds(vector, body=vector.body + b" ")
    assert not holds(vector, secret=vector.secret[:-4] + "AAAA")
    assert not vector.at_s or not holds(vector, later_s=301)


def test_the_signature_that_pagerduty_publishes_as_wrong_does_not_hold() -> None:
    vector = VECTORS["pagerduty"]
    wrong = "v1=7020c8a7ec668a9b7012bc3dd82e483394b038f4230acc6785efbf2a7d8bcaf5"
    verification = Verification(scheme=vector.scheme, secrets=("S",))
    for header, expected in ((wrong, False), (f"{wrong},{vector.headers['x-pagerduty-signature']}", True)):
        headers = {"x-pagerduty-signature": header}
        found = verify(verification, secrets=[vector.secret], headers=headers, body=vector.body, now_ms=0)
        assert found is expected
