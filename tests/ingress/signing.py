"""Signing as the providers do, for the tests: each returns the headers of a genuine request."""

from __future__ import annotations

import base64
import hashlib
import hmac


def hexmac(secret: str, data: bytes, algorithm: str = "sha256") -> str:
    return hmac.new(secret.encode(), data, algorithm).hexdigest()


def plain(secret: str, body: bytes, now_s: int) -> dict[str, str]:
    return {"x-sig": hexmac(secret, body)}


def github(secret: str, body: bytes, now_s: int) -> dict[str, str]:
    return {"x-hub-signature-256": "sha256=" + hexmac(secret, body), "x-github-delivery": "d-1"}


def stripe(secret: str, body: bytes, now_s: int) -> dict[str, str]:
    return {"stripe-signature": f"t={now_s},v1={hexmac(secret, f'{now_s}.'.encode() + body)},v0=00"}


def slack(secret: str, body: bytes, now_s: int) -> dict[str, str]:
    digest = hexmac(secret, f"v0:{now_s}:".encode() + body)
    return {"x-slack-signature": f"v0={digest}", "x-slack-request-timestamp": str(now_s)}


def pagerduty(secret: str, body: bytes, now_s: int) -> dict[str, str]:
    return {"x-pagerduty-signature": f"v1={'0' * 64},v1={hexmac(secret, body)}"}


def generic(secret: str, body: bytes, now_s: int) -> dict[str, str]:
    digest = hmac.new(secret.encode(), f"{now_s}.".encode() + body, hashlib.sha512).digest()
    return {"x-digest": "sha512=" + base64.b64encode(digest).decode(), "x-time": str(now_s)}


def standard(secret: str, body: bytes, now_s: int, message_id: str = "msg_1") -> dict[str, str]:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.new(key, f"{message_id}.{now_s}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(now_s),
        "webhook-signature": "v1," + base64.b64encode(digest).decode(),
    }
