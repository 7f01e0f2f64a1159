"""Signatures in the Standard Webhooks way: `{id}.{timestamp}.{body}` under HMAC-SHA256."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence


def secret_bytes(secret: str) -> bytes:
    """The key inside a secret: Base64, after `whsec_` also without padding; other text is its own key.

    The libraries of Standard Webhooks read Base64 without the prefix too.
    """
    text = secret.removeprefix("whsec_")
    padding = "" if text == secret else "=" * (-len(text) % 4)
    try:
        return base64.b64decode(text + padding, validate=True)
    except (binascii.Error, ValueError):
        return secret.encode()


def signature(key: bytes, *, message_id: str, timestamp_s: int, body: bytes) -> str:
    """One `v1,…` signature."""
    signed = f"{message_id}.{timestamp_s}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def signed_headers(
    secrets: Sequence[str], *, message_id: str, timestamp_s: int, body: bytes
) -> dict[str, str]:
    """The three headers. Each secret gives a signature, so that a receiver can rotate its secret."""
    headers = {"webhook-id": message_id, "webhook-timestamp": str(timestamp_s)}
    signatures = [
        signature(secret_bytes(secret), message_id=message_id, timestamp_s=timestamp_s, body=body)
        for secret in secrets
    ]
    if signatures:
        headers["webhook-signature"] = " ".join(signatures)
    return headers
