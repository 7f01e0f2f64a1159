"""What senders ask before they send: answered at once, and never work.

| Who | Asks | Is answered |
|---|---|---|
| Slack | a signed `url_verification` event | with its `challenge` |
| CloudEvents | `OPTIONS` with `WebHook-Request-Origin` | with the origin and a rate without limit |

GitHub's `ping`, PagerDuty's `pagey.ping` and the test events of Stripe and of Standard Webhooks want
nothing but a 2xx: they are ordinary events.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from weir.ingress.incoming_events import parsed
from weir.spec.ir import SignatureScheme, WebhookSpec

HeaderPairs = tuple[tuple[bytes, bytes], ...]
_VERIFICATION = "url_verification"
_MAX_ORIGIN_BYTES = 255


def challenge_answer(webhook: WebhookSpec, body: bytes) -> bytes | None:
    """The answer to Slack's question whether this address is its owner's; None if that is not asked.

    The caller has checked the signature: who may ask is whoever knows the secret.
    """
    verification = webhook.verification
    if verification is None or verification.scheme is not SignatureScheme.SLACK:
        return None
    # Ordinary events are parsed once, by who takes them.
    if _VERIFICATION.encode() not in body:
        return None
    document: Any = parsed(body)
    if not isinstance(document, dict) or document.get("type") != _VERIFICATION:
        return None
    challenge = document.get("challenge")
    return orjson.dumps({"challenge": challenge}) if isinstance(challenge, str) else None


def permission(headers: Mapping[str, str]) -> HeaderPairs:
    """The headers of the answer to `OPTIONS`. Signatures decide who gets in, so any origin is allowed.

    An unknown webhook answers like a known one: the handshake must not tell which exist.
    """
    allow = ((b"allow", b"POST, OPTIONS"),)
    origin = headers.get("webhook-request-origin")
    if origin is None:
        return allow
    allowed = origin.encode("latin-1", errors="replace")[:_MAX_ORIGIN_BYTES]
    return (*allow, (b"webhook-allowed-origin", allowed), (b"webhook-allowed-rate", b"*"))
