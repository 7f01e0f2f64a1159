"""Bodies: JSON within bounds, CloudEvents in three modes, and the id that tells repeats."""

from __future__ import annotations

import contextlib
import json
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.errors import InvalidInput, Malformed, TooLarge, UnsupportedMedia
from weir.ingress.incoming_events import IncomingEvent, events_of
from weir.spec.ir import SignatureScheme, Verification, WebhookSpec

PLAIN = WebhookSpec(name="W", queue="Q")
EVENT = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "order.placed", "data": {"n": 1}}


def hook(scheme: SignatureScheme, **options) -> WebhookSpec:
    return WebhookSpec(
        name="W", queue="Q", verification=Verification(scheme=scheme, secrets=("S",)), **options
    )


def test_a_body_keeps_its_bytes():
    body = b'{"big": 123456789012345678901234567890, "f": 1.10 }'
    (event,) = events_of(PLAIN, {"content-type": "application/json"}, body)
    assert event.payload is body


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", Malformed),
        (b"{", Malformed),
        (b"NaN", Malformed),
        (b"[1e999]", Malformed),
        (b'"\\ud800"', Malformed),
        (b"\xef\xbb\xbf{}", Malformed),
        (b"\xff", Malformed),
        (b"[" * 100_000, Malformed),
        (b"[" * 65 + b"]" * 65, TooLarge),
        (b"[" * 1_000_000, Malformed),
    ],
)
def test_a_body_that_is_not_acceptable_json_is_refused(body, error):
    with pytest.raises(error):
        events_of(PLAIN, {"content-type": "application/json"}, body)


def test_sixty_four_levels_are_fine():
    assert events_of(PLAIN, {}, b"[" * 64 + b"]" * 64)


@pytest.mark.parametrize(
    "kind",
    [
        "image/png",
        "text/plain; charset=utf-8",
        "application/xml",
        "application/octet-stream",
        "application/x-www-form-urlencoded",
        "application/cloudevents+avro",
        "application/cloudevents-batch+xml",
    ],
)
def test_an_unknown_content_type_is_415(kind):
    with pytest.raises(UnsupportedMedia):
        events_of(PLAIN, {"content-type": kind}, b"{}")


FORM = {"content-type": "application/x-www-form-urlencoded; charset=utf-8", "x-github-delivery": "d"}


def test_githubs_form_is_the_json_that_it_holds():
    payload = '{"zen": "a b+c & d=e \u2713 %", "n": 12345678901234567890}'
    form = urlencode({"payload": payload}).encode()
    (event,) = events_of(hook(SignatureScheme.GITHUB), FORM, form)
    assert event == IncomingEvent(payload=payload.encode(), id="d", media_type="application/json")


@pytest.mark.parametrize(
    "body",
    [
        b"a=1",
        b"payload=",
        b"payload={}&payload={}",
        b"payload={}&a=1",
        b"payload=%7B",
        b"payload=%ff",
        b"payload=\xff",
        b"payload=" + b"[" * 65 + b"]" * 65,
        b"&".join(b"payload={}" for _ in range(5_000)),
    ],
)
def test_a_form_that_is_not_one_json_payload_is_refused(body):
    with pytest.raises((Malformed, TooLarge)):
        events_of(hook(SignatureScheme.GITHUB), FORM, body)


@pytest.mark.parametrize(
    ("webhook", "headers", "body", "expected"),
    [
        (hook(SignatureScheme.GITHUB), {"x-github-delivery": "abc"}, b"{}", "abc"),
        (hook(SignatureScheme.STANDARD), {"webhook-id": "msg_1"}, b"{}", "msg_1"),
        (hook(SignatureScheme.PAGERDUTY), {}, b'{"event": {"id": "E1"}}', "E1"),
        (hook(SignatureScheme.STRIPE), {}, b'{"id": "evt_1"}', "evt_1"),
        (hook(SignatureScheme.SLACK), {}, b'{"event_id": "Ev1"}', "Ev1"),
        (hook(SignatureScheme.HMAC, idempotency_header="X-Id"), {"x-id": '"quoted"'}, b"{}", "quoted"),
        (PLAIN, {"idempotency-key": "k1"}, b"{}", "k1"),
        (PLAIN, {}, b"{}", None),
    ],
)
def test_each_scheme_has_its_own_id(webhook, headers, body, expected):
    assert events_of(webhook, headers, body)[0].id == expected


@pytest.mark.parametrize("value", ["", " ", "a" * 201, "ä", "a b"])
def test_an_id_header_that_cannot_be_one_is_refused(value):
    with pytest.raises(Malformed):
        events_of(PLAIN, {"idempotency-key": value}, b"{}")


def test_a_structured_event_is_known_by_source_and_id():
    body = json.dumps(EVENT).encode()
    (event,) = events_of(PLAIN, {"content-type": "Application/CloudEvents+JSON; charset=utf-8"}, body)
    assert (event.payload, event.id) == (body, '["/shop", "1"]')


def test_a_binary_event_is_known_by_its_decoded_headers():
    headers = {
        "content-type": "application/json",
        "ce-specversion": "1.0",
        "ce-id": "a%20b",
        "ce-source": "/caf%C3%A9",
        "ce-type": "t",
    }
    (event,) = events_of(PLAIN, headers, b'{"n": 1}')
    assert event.payload == b'{"n": 1}'
    assert event.id == '["/caf\\u00e9", "a b"]'


def test_a_batch_gives_each_event_as_it_stands_in_the_text():
    body = b'[ {"specversion":"1.0","id":"1","source":"s","type":"t","data":12345678901234567890123},\n' + (
        json.dumps({**EVENT, "id": "2"}).encode() + b" ]"
    )
    first, second = events_of(PLAIN, {"content-type": "application/cloudevents-batch+json"}, body)
    assert b"12345678901234567890123" in first.payload
    assert json.loads(second.payload)["id"] == "2"


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"content-type": "application/cloudevents+json"}, b"[]"),
        ({"content-type": "application/cloudevents+json"}, b'{"specversion": "1.0"}'),
        (
            {"content-type": "application/cloudevents+json"},
            json.dumps({**EVENT, "specversion": "0.3"}).encode(),
        ),
        ({"content-type": "application/cloudevents-batch+json"}, b"{}"),
        ({"content-type": "application/cloudevents-batch+json"}, b"[1]"),
        ({"content-type": "application/cloudevents-batch+json"}, b"[]"),
        ({"ce-specversion": "1.0", "ce-id": "%C0%A0", "ce-source": "s", "ce-type": "t"}, b"{}"),
        ({"ce-specversion": "1.0", "ce-id": "1"}, b"{}"),
    ],
)
def test_an_event_that_is_not_well_formed_is_refused(headers, body):
    with pytest.raises(InvalidInput):
        events_of(PLAIN, headers, body)


@given(
    st.dictionaries(
        st.sampled_from(
            ["content-type", "ce-specversion", "ce-id", "ce-source", "ce-type", "idempotency-key"]
        ),
        st.text(max_size=40).map(lambda text: text.encode()[:40].decode("latin-1")),
    ),
    st.binary(max_size=60),
)
def test_no_request_escapes_the_error_tree(headers, body):
    with contextlib.suppress(InvalidInput):
        events_of(PLAIN, headers, body)
