"""Sends one outbound request: signed, guarded and limited. Its outcome tells a queue what to do next."""

from __future__ import annotations

import asyncio
import email.utils
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import httpx2

from weir import __version__
from weir.model.item_loops import storable_text
from weir.outbound.address_guard import AddressRefused
from weir.outbound.signing import signed_headers

# The rest of a longer answer is never read: a receiver must not fill the memory.
RESPONSE_CAP_BYTES = 64 * 1024
# For the delivery log, where a person reads it.
EXCERPT_BYTES = 1_024
# A receiver must not stop its queue for longer.
MAX_RETRY_AFTER_S = 24 * 3600
USER_AGENT = f"Weir/{__version__}"


class DeliveryVerdict(StrEnum):
    """What a queue does after an attempt."""

    DELIVERED = "delivered"
    RETRY = "retry"
    GONE = "gone"
    """410: the endpoint asks to be disabled."""
    REFUSED = "refused"
    """The destination is not allowed; no retry can succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundRequest:
    """One request to send."""

    url: str
    body: bytes
    message_id: str
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    secrets: Sequence[str] = ()
    timeout_ms: int = 15_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryOutcome:
    """The result of one attempt."""

    verdict: DeliveryVerdict
    duration_ms: int
    status: int | None = None
    error: str | None = None
    retry_after_ms: int | None = None
    excerpt: str = ""
    """The first bytes of the response; only the delivery log shows them."""

    def __post_init__(self) -> None:
        # What a receiver says is bytes of any kind, and the log of one must not end the loop of all.
        object.__setattr__(self, "error", None if self.error is None else storable_text(self.error))
        object.__setattr__(self, "excerpt", storable_text(self.excerpt))


async def deliver(client: httpx2.AsyncClient, request: OutboundRequest, *, now_ms: int) -> DeliveryOutcome:
    """Send one request. A failure of the receiver becomes an outcome; only 2xx is success."""
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
        excerpt=body[:EXCERPT_BYTES].decode("utf-8", "replace"),
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
    # httpx2's timeout is per read. The outer one also ends an answer that comes byte by byte.
    async with asyncio.timeout(timeout_s):
        async with client.stream(
            "POST", request.url, content=request.body, headers=headers, timeout=timeout_s
        ) as response:
            return response.status_code, response.headers, await _read_capped(response)


async def _read_capped(response: httpx2.Response) -> bytes:
    """Read the response up to the cap. The bytes stay raw: decompressing them could fill the memory."""
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
    """The delay of a Retry-After header, in seconds or as a date, at most a day; None if it has none."""
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
