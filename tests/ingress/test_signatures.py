"""Signatures: the reference library as oracle, rotation, replay, and any bytes at all."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from standardwebhooks import Webhook

from ingress import signing
from weir.ingress.signatures import verify
from weir.outbound.signing import signed_headers
from weir.spec.ir import SignatureScheme, Verification

NOW_S = 1_700_000_000
BODY = b'{"hello": "w\xc3\xb6rld"}'
SECRET = "a secret of enough length"
STANDARD_SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()

SCHEMES = {
    "hmac": (
        Verification(scheme=SignatureScheme.HMAC, secrets=("S",), header="X-Sig"),
        signing.plain,
        SECRET,
    ),
    "github": (Verification(scheme=SignatureScheme.GITHUB, secrets=("S",)), signing.github, SECRET),
    "stripe": (Verification(scheme=SignatureScheme.STRIPE, secrets=("S",)), signing.stripe, SECRET),
    "slack": (Verification(scheme=SignatureScheme.SLACK, secrets=("S",)), signing.slack, SECRET),
    "pagerduty": (
        Verification(scheme=SignatureScheme.PAGERDUTY, secrets=("S",)),
        signing.pagerduty,
        SECRET,
    ),
    "standard": (
        Verification(scheme=SignatureScheme.STANDARD, secrets=("S",)),
        signing.standard,
        STANDARD_SECRET,
    ),
    "generic": (
        Verification(
            scheme=SignatureScheme.GENERIC,
            secrets=("S",),
            header="X-Digest",
            prefix="sha512=",
            algorithm="sha512",
            encoding="base64",
            timestamp_header="X-Time",
        ),
        signing.generic,
        SECRET,
    ),
}
TIMED = ("stripe", "slack", "standard", "generic")


def holds(name: str, headers, *, body: bytes = BODY, secrets=None, now_s: int = NOW_S) -> bool:
    verification, _, secret = SCHEMES[name]
    return verify(verification, secrets=secrets or [secret], headers=headers, body=body, now_ms=now_s * 1000)


@pytest.mark.parametrize("name", SCHEMES)
def test_a_genuine_request_holds_and_a_changed_one_does_not(name):
    _, sign, secret = SCHEMES[name]
    headers = sign(secret, BODY, NOW_S)
    assert holds(name, headers)
    assert not holds(name, headers, body=BODY + b" ")
    assert not holds(name, headers, secrets=[base64.b64encode(b"another secret of that length").decode()])
    assert not holds(name, {})


@pytest.mark.parametrize("name", SCHEMES)
def test_old_and_new_secret_both_hold_while_a_secret_is_rotated(name):
    _, sign, secret = SCHEMES[name]
    new = (
        "whsec_" + base64.b64encode(b"f" * 32).decode()
        if name == "standard"
        else "a brand new secret of length"
    )
    assert holds(name, sign(secret, BODY, NOW_S), secrets=[new, secret])
    assert holds(name, sign(new, BODY, NOW_S), secrets=[new, secret])
    assert not holds(name, sign(secret, BODY, NOW_S), secrets=[new])


@pytest.mark.parametrize("name", TIMED)
@pytest.mark.parametrize("drift_s", [-301, 301, -100_000, 10**10])
def test_outside_the_replay_window_nothing_holds(name, drift_s):
    _, sign, secret = SCHEMES[name]
    assert not holds(name, sign(secret, BODY, max(0, NOW_S + drift_s)))


@pytest.mark.parametrize("name", TIMED)
@pytest.mark.parametrize("drift_s", [-300, 0, 300])
def test_inside_the_replay_window_it_holds(name, drift_s):
    _, sign, secret = SCHEMES[name]
    assert holds(name, sign(secret, BODY, NOW_S + drift_s))


@pytest.mark.parametrize(
    "stamp", ["nan", "1e10", "-1700000000", "1700000000.0", "", " 1700000000", "१७", "9" * 400]
)
def test_a_timestamp_that_is_not_whole_seconds_does_not_hold(stamp):
    headers = signing.slack(SECRET, BODY, NOW_S)
    digest = signing.hexmac(SECRET, f"v0:{stamp}:".encode() + BODY)
    headers.update({"x-slack-request-timestamp": stamp, "x-slack-signature": f"v0={digest}"})
    assert not holds("slack", headers)


@given(body=st.text().map(str.encode), message_id=st.from_regex(r"msg_[A-Za-z0-9]{1,20}", fullmatch=True))
@settings(max_examples=60, deadline=None)
def test_what_the_reference_library_signs_we_accept_and_the_other_way_round(body, message_id):
    now = datetime.now(UTC)
    now_s = int(now.timestamp())
    reference = Webhook(STANDARD_SECRET)
    theirs = {
        "webhook-id": message_id,
        "webhook-timestamp": str(now_s),
        "webhook-signature": reference.sign(message_id, now, body.decode()),
    }
    assert holds("standard", theirs, body=body, now_s=now_s)
    ours = signed_headers([STANDARD_SECRET], message_id=message_id, timestamp_s=now_s, body=body)
    assert ours == theirs
    if body.strip():
        reference.verify(body, ours) if _is_json(body) else None


def _is_json(body: bytes) -> bool:
    import json

    try:
        json.loads(body)
    except ValueError:
        return False
    return True


HEADER_BYTES = st.binary(max_size=200).map(lambda data: data.decode("latin-1"))


@given(values=st.lists(HEADER_BYTES, min_size=12, max_size=12), name=st.sampled_from(sorted(SCHEMES)))
@settings(max_examples=400, deadline=None)
def test_no_header_bytes_raise_or_hold(values, name):
    names = [
        "x-sig",
        "x-hub-signature-256",
        "stripe-signature",
        "x-slack-signature",
        "x-slack-request-timestamp",
        "x-pagerduty-signature",
        "x-digest",
        "x-time",
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
        "x-other",
    ]
    assert holds(name, dict(zip(names, values, strict=True))) is False


@pytest.mark.parametrize(
    "value",
    [
        "v1",
        "v1,",
        "v1,!!!!",
        "v2,abcd",
        "v1,äöü",
        "v1," + "A" * 10_000,
        " ".join(["v1,AAAA"] * 10_000),
        ",",
        "\x00",
    ],
)
def test_malformed_standard_signatures_do_not_hold(value):
    headers = {**signing.standard(STANDARD_SECRET, BODY, NOW_S), "webhook-signature": value}
    assert not holds("standard", headers)


def test_unknown_versions_beside_a_good_signature_are_skipped():
    headers = signing.standard(STANDARD_SECRET, BODY, NOW_S)
    headers["webhook-signature"] = "v9,xx v1a,yy " + headers["webhook-signature"]
    assert holds("standard", headers)
