"""One outbound request: signed, guarded, bounded, and turned into an outcome that a queue can act on."""

from __future__ import annotations

import asyncio
import email.utils
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import httpx2

from weir.outbound.guard import AddressRefused
from weir.outbound.signing import signed_headers

RESPONSE_CAP_BYTES = 64 * 1024
EXCERPT_BYTES = 1_024
MAX_RETRY_AFTER_S = 24 * 3600
USER_AGENT = "Weir/0.1"


class DeliveryVerdict(StrEnum):
    """What to do after an attempt."""

    DELIVERED = "delivered"
    RETRY = "retry"
    GONE = "gone"
    """410: the endpoint asks to be disabled."""
    REFUSED = "refused"
    """The destination is not allowed; no attempt will ever succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundRequest:
    """What to send and where."""

    url: str
    body: bytes
    message_id: str
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    secrets: Sequence[str] = ()
    timeout_ms: int = 15_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryOutcome:
    """What came of one attempt."""

    verdict: DeliveryVerdict
    duration_ms: int
    status: int | None = None
    error: str | None = None
    retry_after_ms: int | None = None
    excerpt: str = ""
    """The first bytes of the response, for the delivery log alone."""


async def deliver(client: httpx2.AsyncClient, request: OutboundRequest, *, now_ms: int) -> DeliveryOutcome:
    """Send one request. Never raises for what the other side does; only 2xx is success."""
    started = time.monotonic()
    try:
        status, headers, body = await _exchange(client, request, now_ms=now_ms)
    except AddressRefused as error:
        return DeliveryOutcome(
            verdict=DeliveryVerdict.REFUSED, duration_ms=_since(started), error=error.message
        )
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, TimeoutError) as error:
        text = f"{type(error).__name__}: {error}".rstrip(": ")
        return DeliveryOutcome(verdict=DeliveryVerdict.RETRY, duration_ms=_since(started), error=text)
    verdict = _verdict(status)
    return DeliveryOutcome(
        verdict=verdict,
        duration_ms=_since(started),
        status=status,
        error=None if verdict is DeliveryVerdict.DELIVERED else f"the endpoint answered {status}",
        retry_after_ms=retry_after_ms(headers.get("retry-after"), now_ms=now_ms),
        excerpt=body[:EXCERPT_BYTES].decode("utf-8", "replace").replace("\x00", "\ufffd"),
    )


async def _exchange(
    client: httpx2.AsyncClient, request: OutboundRequest, *, now_ms: int
) -> tuple[int, httpx2.Headers, bytes]:
    headers = {
        **request.headers,
        "content-type": request.content_type,
        "user-agent": USER_AGENT,
        **signed_headers(
            request.secrets, message_id=request.message_id, timestamp_s=now_ms // 1000, body=request.body
        ),
    }
    timeout_s = request.timeout_ms / 1000
    # httpx2's timeout is per read; a slow drip must end as well, hence the outer one.
    async with asyncio.timeout(timeout_s):
        async with client.stream(
            "POST", request.url, content=request.body, headers=headers, timeout=timeout_s
        ) as response:
            return response.status_code, response.headers, await _read_capped(response)


async def _read_capped(response: httpx2.Response) -> bytes:
    """The response up to the cap; the rest is never read. Raw bytes, so nothing is decompressed."""
    parts = bytearray()
    async for part in response.aiter_raw():
        parts += part
        if len(parts) >= RESPONSE_CAP_BYTES:
            break
    return bytes(parts[:RESPONSE_CAP_BYTES])


def _verdict(status: int) -> DeliveryVerdict:
    if 200 <= status < 300:
        return DeliveryVerdict.DELIVERED
    return DeliveryVerdict.GONE if status == 410 else DeliveryVerdict.RETRY


def retry_after_ms(value: str | None, *, now_ms: int) -> int | None:
    """The delay that a Retry-After header asks for, in either of its forms, capped at a day."""
    if value is None:
        return None
    text = value.strip()
    if text.isdecimal() and len(text) <= 9:
        seconds = float(text)
    else:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - now_ms / 1000
        except (ValueError, TypeError, OverflowError):
            return None
    return int(min(max(seconds, 0.0), MAX_RETRY_AFTER_S) * 1000)


def _since(started: float) -> int:
    return int((time.monotonic() - started) * 1000)
