"""Decides when to try a request again. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping

from weir.client.options import ClientOptions
from weir.model.backoff import Backoff

_SERVER_TROUBLE = frozenset({500, 502, 503, 504})


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """The Retry-After header in seconds; None if there is none or it is not a number."""
    try:
        seconds = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def worth_retrying(status: int, options: ClientOptions) -> bool:
    if status == 429:
        return options.retry_on_429
    return status in _SERVER_TROUBLE


def pause_s(attempt: int, options: ClientOptions, *, asked_s: float | None) -> float:
    """How long to wait before try `attempt + 1`: what the server asked for, or back-off with jitter."""
    if options.honor_retry_after and asked_s is not None:
        return min(asked_s, options.max_retry_delay_s)
    longest_s = Backoff(first_s=options.retry_delay_s, longest_s=options.max_retry_delay_s).pause_s(attempt)
    # Between half of it and all of it: clients that failed together do not come back together.
    return longest_s * (0.5 + random.random() / 2)
