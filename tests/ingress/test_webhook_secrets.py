"""A webhook without a secret: strangers learn nothing of it, and its operator everything."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest
import structlog

from ingress import signing
from ingress.house import SECRET, House, open_house
from support.secrets import fixed_secrets
from weir.cli.doctor import readable
from weir.control.database import Database
from weir.control.principals import Role
from weir.control.sealing import new_key, read_keys
from weir.control.secrets import Secrets
from weir.control.tokens import NewToken
from weir.errors import Unauthenticated
from weir.ingress.receive import Receiver
from weir.ingress.webhook_secrets import WARN_EVERY_S, WebhookSecrets, can_verify
from weir.model.names import EnvironmentRef
from weir.settings import SecretSettings, Settings
from weir.spec.ir import MAX_WEBHOOK_BODY_BYTES, SignatureScheme, Verification, WebhookSpec
from weir.spec.snapshot import Hook
from weir.stores.checkup import inspect_webhooks

SPEC = """
app Secrets {
  queue In {}
  webhook Signed { queue: In, verify_hmac { header: "X-Sig", secret: "HOOK" } }
  webhook Keyless { queue: In, verify_hmac { header: "X-Sig", secret: ["NOWHERE", "NEITHER"] } }
  webhook Tight { queue: In, max_body_bytes: 100, verify_hmac { header: "X-Sig", secret: "HOOK" } }
  webhook Rotated { queue: In, verify github { secret: ["HOOK", "OLD"] } }
  webhook Open { queue: In }
}
"""
PLACE = EnvironmentRef(organization="o", project="p", environment="e")


@pytest.fixture
async def house(house: House) -> House:
    await house.apply(SPEC)
    return house


def told(answer: httpx2.Response) -> tuple[int, str, tuple[str, ...]]:
    """Everything that a stranger sees, but for the id of the request and the moment."""
    document = {**answer.json(), "instance": ""}
    return answer.status_code, json.dumps(document, sort_keys=True), tuple(sorted(answer.headers))


@pytest.mark.parametrize("secret", ["", "unknown", "NOWHERE"])
async def test_a_webhook_without_a_secret_answers_like_one_that_does_not_exist(
    house: House, secret: str
) -> None:
    signed = {"x-sig": signing.hexmac(secret, b"{}"), "content-type": "application/json"}
    answers = [
        await house.client.post(f"/hook/{name}", content=b"{}", headers=signed)
        for name in ("Keyless", "Nowhere", "Signed")
    ]
    assert {told(answer) for answer in answers} == {told(answers[0])}
    assert answers[0].status_code == 401
    assert "NOWHERE" not in answers[0].text
    assert await house.depth("In") == 0


async def test_a_limit_of_its_own_does_not_tell_that_a_webhook_exists(house: House) -> None:
    body = b'"' + b"x" * 200 + b'"'
    strangers = [await house.client.post(f"/hook/{name}", content=body) for name in ("Tight", "Nowhere")]
    assert {told(answer) for answer in strangers} == {told(strangers[0])}
    scope = house.environment
    long = "/".join(
        quote(name, safe="") for name in (scope.organization, scope.project, scope.environment, "Tight")
    )
    for path in ("Tight", long):
        assert (await house.hook(path, body)).json()["code"] == "too_large", path
    large = [
        await house.client.post(f"/hook/{name}", content=b"x" * (MAX_WEBHOOK_BODY_BYTES + 1))
        for name in ("Signed", "Nowhere")
    ]
    assert [answer.status_code for answer in large] == [413, 413]


def hook(scheme: SignatureScheme, *, secret: str = "SET") -> Hook:
    verification = Verification(scheme=scheme, secrets=(secret,), header="X-Sig")
    return Hook(environment=PLACE, webhook=WebhookSpec(name=secret, queue="Q", verification=verification))


def cost_ms(receiver: Receiver, asked: Hook | None, headers: dict[str, str], body: bytes) -> float:
    """What it takes this process to refuse a stranger, at best."""

    def once() -> float:
        started = time.process_time()
        with pytest.raises(Unauthenticated):
            asyncio.run(receiver.receive(asked, headers=headers, body=body, source_ip="::1"))
        return (time.process_time() - started) * 1000

    return min(once() for _ in range(10))


def test_refusing_takes_as_long_whether_a_webhook_exists_has_a_secret_or_was_given_a_signature() -> None:
    secrets = {"SET": "a secret"}
    receiver = Receiver(None, None, secrets=fixed_secrets(secrets))  # type: ignore[arg-type]
    body = b"x" * 8 * MAX_WEBHOOK_BODY_BYTES
    wrong = {"x-sig": "00" * 32}
    known = cost_ms(receiver, hook(SignatureScheme.HMAC), wrong, body)
    others = {
        "no secret": cost_ms(receiver, hook(SignatureScheme.HMAC, secret="UNSET"), wrong, body),
        "unknown": cost_ms(receiver, None, wrong, body),
        "no signature": cost_ms(receiver, hook(SignatureScheme.SLACK), wrong, body),
    }
    assert {name for name, cost in others.items() if not known / 3 < cost < known * 3} == set(), (
        known,
        others,
    )


def test_the_operator_is_told_in_the_log_at_most_once_a_minute_per_webhook() -> None:
    now_s = 1_000.0
    secrets = WebhookSecrets(fixed_secrets({}), monotonic=lambda: now_s)
    keyless, other = hook(SignatureScheme.HMAC), hook(SignatureScheme.HMAC, secret="OTHER")
    with structlog.testing.capture_logs() as lines:
        for _ in range(5):
            assert secrets.of(keyless) == []
        secrets.of(other)
        now_s += WARN_EVERY_S
        secrets.of(keyless)
    assert [(line["webhook"], line["secrets"], line["refused"]) for line in lines] == [
        ("SET", ["SET"], 1),
        ("OTHER", ["OTHER"], 1),
        ("SET", ["SET"], 5),
    ]
    assert {line["log_level"] for line in lines} == {"warning"}
    assert lines[0]["environment"] == "e"


async def test_the_log_of_the_api_names_webhook_and_variable(house: House) -> None:
    with structlog.testing.capture_logs() as lines:
        await house.hook("Keyless", {})
        await house.hook("Nowhere", {})
        await house.hook("Signed", {}, x_sig="00")
    (line,) = [line for line in lines if "webhook" in line]
    assert (line["webhook"], line["secrets"]) == ("Keyless", ["NOWHERE", "NEITHER"])


async def test_the_list_of_webhooks_says_which_secrets_are_not_set(house: House) -> None:
    found = (await house.client.get("/api/v1/webhooks")).json()["items"]
    shown = {one["name"]: (one["scheme"], one["missing_secrets"], one["accepts"]) for one in found}
    assert shown == {
        "Keyless": ("hmac", ["NOWHERE", "NEITHER"], False),
        "Open": (None, [], True),
        "Rotated": ("github", ["OLD"], True),
        "Signed": ("hmac", [], True),
        "Tight": ("hmac", [], True),
    }
    signed = next(one for one in found if one["name"] == "Signed")
    assert (signed["path"], signed["queue"], signed["secrets"]) == ("/hook/Signed", "In", ["HOOK"])
    everyones = house.registry.snapshot.hooks_by_environment.values()
    silent = sum(not can_verify(one, fixed_secrets(house.secrets, of=house.environment)) for one in everyones)
    assert "weir_webhooks_without_secret" not in (await house.client.get("/metrics")).text
    assert house.services.tokens is not None
    new = NewToken(name="operator", role=Role.OPERATOR, organization=None)
    operator = {"authorization": f"Bearer {(await house.services.tokens.create(new))[0]}"}
    shown = (await house.client.get("/metrics", headers=operator)).text
    assert f"weir_webhooks_without_secret {silent}.0" in shown


async def test_a_webhook_whose_short_address_is_anothers_is_listed_with_its_long_one(
    house: House, database: Database, redis_url: str
) -> None:
    second = EnvironmentRef(organization="sec/ond", project="p q", environment="e")
    async with open_house(second, database, redis_url) as other:
        await other.apply(SPEC)
        found = (await other.client.get("/api/v1/webhooks")).json()["items"]
    assert found[0]["path"] == "/hook/sec%2Fond/p%20q/e/Keyless"


async def test_doctor_notes_webhooks_without_a_secret_and_secrets_without_their_key(
    house: House, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NOWHERE", "a variable is not read any more")
    old, new = new_key(), new_key()
    keys = tmp_path / "keys"
    keys.write_text(f"{old}\n")
    settings = Settings(secrets=SecretSettings(key_file=keys))
    async with house.database.connection() as connection:
        await connection.execute("DELETE FROM weir.secrets")
    stored = Secrets(house.database, read_keys(keys))
    await stored.put(house.environment, "HOOK", SECRET, actor="test")
    section = await inspect_webhooks(house.database.url, settings)
    scope = house.environment
    ours = f" of `{scope.organization}/{scope.project}/{scope.environment}` "
    (note,) = [text for text in section["notes"] if ours in text]
    assert note.startswith("`Keyless` of ")
    assert "`weir secret set NOWHERE`" in note
    assert section["count"] == len(house.registry.snapshot.hooks_by_environment)
    assert section["problems"] == []
    report = {"ok": True, "webhooks": {**section, "ok": True}, "problems": [], "notes": [f"webhooks: {note}"]}
    assert f"- note: webhooks: {note}" in readable(report)
    keys.write_text(f"{new}\n{old}\n")
    assert "sealed with an older key" in str((await inspect_webhooks(house.database.url, settings))["notes"])
    keys.write_text(f"{new}\n")
    assert "no key here opens" in str((await inspect_webhooks(house.database.url, settings))["problems"])
    await stored.delete(house.environment, "HOOK")
