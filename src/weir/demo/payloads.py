"""Makes the payloads and webhooks that the demo's producers send."""

from __future__ import annotations

import hashlib
import hmac
import json
import random
from typing import Any

_CUSTOMERS = ("ada", "grace", "edsger", "barbara", "tony", "leslie", "radia", "ken")
_TEMPLATES = ("welcome", "receipt", "reset", "newsletter")


def payload_of(queue: str, number: int, dice: random.Random) -> dict[str, Any]:
    """The payload of the `number`-th message of a queue."""
    customer = dice.choice(_CUSTOMERS)
    payloads: dict[str, dict[str, Any]] = {
        "emails": {"to": f"{customer}@example.com", "template": dice.choice(_TEMPLATES)},
        "orders": {"order": number, "customer": customer},
        "ledger": {"entry": number},
        "payments": {"payment": number, "cents": dice.randrange(99, 99_999)},
        "imports": {"row": number, "source": f"catalog-{number % 5}.csv"},
        "exports": {"report": number},
        "invoices": {"invoice": number, "customer": customer},
        "dunning": {"invoice": number},
    }
    return payloads.get(queue, {"image": number})


def key_of(payload: dict[str, Any]) -> str | None:
    """The ordering key: messages of one customer keep their order."""
    return payload.get("customer")


def pagerduty_request(number: int, dice: random.Random, secret: str) -> tuple[bytes, dict[str, str]]:
    """A webhook as PagerDuty sends it: the body, and the headers with its signature."""
    event = {
        "id": f"demo-{number}-{dice.randrange(1 << 30)}",
        "event_type": "incident.triggered",
        "data": {"title": f"disk {number % 7} is full", "urgency": dice.choice(("high", "low"))},
    }
    body = json.dumps({"event": event}).encode()
    signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return body, {"content-type": "application/json", "x-pagerduty-signature": f"v1={signature}"}
