"""Answers the handshakes by which senders check an address; they never reach a queue.

| Sender | Asks | Is answered |
|---|---|---|
| Slack | a signed `url_verification` event | with its `challenge` |
| CloudEvents | `OPTIONS` with `WebHook-Request-Origin` | with the origin and a rate without limit |

GitHub's `ping`, PagerDuty's `pagey.ping` and the test events of Stripe and of Standard Webhooks only need a
2xx, so they are treated as ordinary events.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from weir.ingress.incoming_events import parse_event
from weir.spec.ir import SignatureScheme, WebhookSpec

HeaderPairs = tuple[tuple[bytes, bytes], ...]
_VERIFICATION = "url_verification"
# The origin is sent back, so its length is bounded.
_MAX_ORIGIN_BYTES = 255


def challenge_answer(webhook: WebhookSpec, body: bytes) -> bytes | None:
    """The answer to Slack's verification of the address; None if the body is not one.

    The caller has checked the signature, so the question comes from someone who knows the secret.
    """
    verification = webhook.verification
    if verification is None or verification.scheme is not SignatureScheme.SLACK:
        return None
    # A search of the bytes is cheap. Ordinary events must not be parsed here and then again.
    if _VERIFICATION.encode() not in body:
        return None
    document: Any = parse_event(body)
    if not isinstance(document, dict) or document.get("type") != _VERIFICATION:
        return None
    challenge = document.get("challenge")
    return orjson.dumps({"challenge": challenge}) if isinstance(challenge, str) else None


def permission(headers: Mapping[str, str]) -> HeaderPairs:
    """The headers of the answer to `OPTIONS`. Signatures protect the webhook, so any origin is allowed.

    An unknown webhook answers like a known one, so that the handshake does not tell which exist.
    """
    allow = ((b"allow", b"POST, OPTIONS"),)
    origin = headers.get("webhook-request-origin")
    if origin is None:
        return allow
    allowed = origin.encode("latin-1", errors="replace")[:_MAX_ORIGIN_BYTES]
    return (*allow, (b"webhook-allowed-origin", allowed), (b"webhook-allowed-rate", b"*"))
