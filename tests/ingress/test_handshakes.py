"""What senders ask before they send, and how GitHub may pack what it sends."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from urllib.parse import quote_plus, urlencode

import httpx2
import pytest

from ingress import signing
from ingress.house import SECRET, House

SPEC = """
app Hands {
  queue In {}
  webhook Slack { queue: In, verify slack { secret: "HOOK" } }
  webhook SlackNow { verify slack { secret: "HOOK" }, map_to: command Chat.Answer { n: payload.n } }
  webhook Github { queue: In, verify github { secret: "HOOK" } }
  webhook Plain { queue: In, verify_hmac { header: "X-Sig", secret: "HOOK" } }
  webhook Open { queue: In }
}
"""
CHALLENGE = {"token": "t", "type": "url_verification", "challenge": "3eZbrw1a<&\u2713"}
FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture
async def house(house: House) -> House:
    await house.apply(SPEC)
    return house


async def post(
    house: House, name: str, body: bytes, headers: Mapping[str, str], *, long: bool = False
) -> httpx2.Response:
    scope = house.environment
    parts = [scope.organization, scope.project, scope.environment, name] if long else [name]
    path = "/".join(quote_plus(part).replace("+", "%20") for part in parts)
    chosen = {"content-type": "application/json", **headers}
    return await house.client.post(f"/hook/{path}", content=body, headers=chosen)


async def slack(house: House, name: str, document: object, *, long: bool = False) -> httpx2.Response:
    body = json.dumps(document).encode()
    return await post(house, name, body, signing.slack(SECRET, body, int(time.time())), long=long)


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("name", ["Slack", "SlackNow"])
async def test_slacks_url_verification_is_answered_with_the_challenge_and_is_no_work(
    house: House, name: str, long: bool
) -> None:
    answer = await slack(house, name, CHALLENGE, long=long)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {"challenge": CHALLENGE["challenge"]}
    assert await house.depth("In") == 0


async def test_a_challenge_that_slack_did_not_sign_is_not_answered(house: House) -> None:
    body = json.dumps(CHALLENGE).encode()
    unsigned = await post(house, "Slack", body, {})
    forged = await post(house, "Slack", body, signing.slack("another secret", body, int(time.time())))
    assert {unsigned.status_code, forged.status_code} == {401}
    assert CHALLENGE["challenge"] not in unsigned.text + forged.text


@pytest.mark.parametrize(
    "document",
    [
        {"type": "event_callback", "event_id": "Ev1", "event": {"text": "url_verification"}},
        {"type": "url_verification"},
        {"type": "url_verification", "challenge": 1},
        [CHALLENGE],
    ],
)
async def test_anything_else_from_slack_is_work(house: House, document: object) -> None:
    assert (await slack(house, "Slack", document)).status_code == 202
    assert await house.depth("In") == 1


async def test_only_slack_asks_for_a_challenge(house: House) -> None:
    assert (await house.hook("Plain", CHALLENGE)).status_code == 202
    assert await house.depth("In") == 1


async def test_handshakes_are_counted_as_what_they_are(house: House) -> None:
    await slack(house, "Slack", CHALLENGE)
    shown = (await house.client.get("/metrics")).text
    assert 'weir_webhooks_total{outcome="handshake",scheme="slack"} 1.0' in shown


@pytest.mark.parametrize("path", ["/hook/Open", "/hook/Nowhere", "/hook/a/b/c/Open"])
async def test_the_cloudevents_handshake_allows_the_origin_and_any_rate(house: House, path: str) -> None:
    asked = {"webhook-request-origin": "events.example", "webhook-request-rate": "120"}
    answer = await house.client.options(path, headers=asked)
    assert answer.status_code == 200
    assert answer.headers["webhook-allowed-origin"] == "events.example"
    assert answer.headers["webhook-allowed-rate"] == "*"
    assert answer.headers["allow"] == "POST, OPTIONS"


async def test_who_does_not_ask_as_cloudevents_do_is_allowed_nothing(house: House) -> None:
    answer = await house.client.options("/hook/Open")
    assert answer.headers["allow"] == "POST, OPTIONS"
    assert "webhook-allowed-origin" not in answer.headers


async def github(house: House, body: bytes, headers: Mapping[str, str]) -> httpx2.Response:
    return await post(house, "Github", body, {**signing.github(SECRET, body, 0), **headers})


async def test_githubs_form_is_unpacked_to_the_json_that_it_holds(house: House) -> None:
    payload = '{"zen": "a b+c & d=e \u2713 %", "n": 12345678901234567890}'
    answer = await github(house, urlencode({"payload": payload}).encode(), FORM)
    assert answer.status_code == 202
    assert answer.json()["idempotency_key"] == "d-1"
    (message,) = await house.broker.dequeue(house.environment.queue("In"), consumer="c")
    assert message.payload == payload.encode()
    assert message.headers["content-type"] == "application/json"


async def test_the_same_delivery_as_form_and_as_json_is_one_message(house: House) -> None:
    payload = b'{"zen": "x"}'
    first = await github(house, b"payload=" + quote_plus(payload).encode(), FORM)
    second = await github(house, payload, {})
    assert first.json()["id"] == second.json()["id"]
    assert await house.depth("In") == 1


async def test_the_signature_of_a_form_is_over_the_form(house: House) -> None:
    payload = b'{"zen": "x"}'
    inside = {**signing.github(SECRET, payload, 0), **FORM}
    assert (await post(house, "Github", b"payload=" + payload, inside)).status_code == 401


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain"])
async def test_other_content_types_are_415_once_the_sender_is_known(house: House, kind: str) -> None:
    body = b"payload=%7B%7D"
    signed = {**signing.plain(SECRET, body, 0), **signing.slack(SECRET, body, int(time.time()))}
    for name in ("Open", "Plain", "Slack"):
        answer = await post(house, name, body, {**signed, "content-type": kind})
        assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media"), name
    assert (await post(house, "Plain", body, {"content-type": kind})).status_code == 401
