"""How much one request, and all of them together, may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    max_body_bytes: int = 1_048_576
    max_depth: int = 64
    """Levels of nesting in a JSON payload."""
    max_concurrency: int = 1_000
    """Requests in progress, long polls aside."""
    max_polls: int = 10_000
    """Long polls in progress."""
    """The longest long poll."""
    body_timeout_s: float = 10.0
    """A body must have arrived by then."""
