"""Errors of the tree as RFC 9457 problems: what the API answers, and what its clients raise."""

from __future__ import annotations

import math
from typing import Any

from weir.errors import WeirError

TYPE_PREFIX = "urn:weir:problem:"


def problem(error: WeirError, *, instance: str | None = None) -> dict[str, Any]:
    """The members of a problem; extensions are flat, as the RFC asks."""
    members: dict[str, Any] = {
        "type": TYPE_PREFIX + error.code,
        "title": error.title,
        "status": error.status,
        "detail": error.message,
        "code": error.code,
        "retryable": error.retryable,
    }
    if instance is not None:
        members["instance"] = f"urn:uuid:{instance}"
    if error.retry_after_s is not None:
        members["retry_after"] = retry_after_s(error)
    return {**error.extra, **members}


def retry_after_s(error: WeirError) -> int:
    """Whole seconds for Retry-After: at least 1."""
    return max(1, math.ceil(error.retry_after_s or 1))
