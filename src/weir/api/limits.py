"""How much one request, and all of them together, may take."""

from __future__ import annotations

from dataclasses import dataclass

from weir.model.limits import MAX_PAYLOAD_DEPTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one process. The settings of the API have the same names and take their defaults here."""

    max_body_bytes: int = 1_048_576
    max_depth: int = MAX_PAYLOAD_DEPTH
    """Levels of nesting in a JSON payload."""
    max_concurrency: int = 1_000
    """Requests in progress, not counting long polls and streams."""
    max_polls: int = 10_000
    """Long polls in progress."""
    max_streams: int = 1_000
    """Streams of server-sent events that are open."""
    max_streams_per_token: int = 100
    """Open streams of the tokens of one scope."""
    max_header_bytes: int = 65_536
    """Request line and headers together. Trailers and chunk extensions together may take as much again."""
    max_headers: int = 128
    """Headers of one request, and trailers of one request."""
    max_target_bytes: int = 16_384
    """Path and query of the request line."""
    max_pipelined: int = 32
    """Requests that a connection may send before the first of them is answered."""
    header_timeout_s: float = 10.0
    """Request line and headers must have arrived by then."""
    body_timeout_s: float = 10.0
    """A body must have arrived by then, trailers included."""
    send_timeout_s: float = 30.0
    """A client that takes nothing of an answer for this long is cut off."""
    kept_readiness_s: float = 0.25
    """For this long all who ask share what the readiness probes found."""
    kept_scrape_s: float = 1.0
    """For this long all who may see the same metrics share their text."""
    max_unfinished: int = 2_000
    """Requests that are still arriving."""
    max_unfinished_per_client: int = 250
    """Requests that are still arriving from one address; once the token is verified, of its scope."""
    max_unfinished_bytes: int = 268_435_456
    """Bytes that have arrived of all unfinished requests together."""
