"""How a client behaves: one frozen value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class QueuedOperationBehavior(StrEnum):
    """What to do when the server answers 202: the operation is stored and takes effect later."""

    RETURN = "return"
    POLL = "poll"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    base_urls: tuple[str, ...]
    token: str = ""
    retry_on_429: bool = True
    honor_retry_after: bool = True
    max_retry_delay_s: float = 30.0
    retry_attempts: int = 8
    """Tries of one request, over all base URLs, the first one included."""
    retry_delay_s: float = 0.1
    """The first pause; it doubles each time, with jitter, unless the server says when to come back."""
    queued_operation_behavior: QueuedOperationBehavior = QueuedOperationBehavior.RETURN
    poll_interval_s: float = 0.1
    poll_timeout_s: float = 30.0
    timeout_s: float = 10.0
    organization: str | None = None
    project: str | None = None
    environment: str | None = None
    """For tokens that reach further than one environment."""
    telemetry: bool = False
    """Spans and metrics by the OpenTelemetry conventions, if `opentelemetry-api` is installed."""

    def __post_init__(self) -> None:
        if not self.base_urls:
            raise ValueError("give at least one base URL")
        if self.retry_attempts < 1:
            raise ValueError("`retry_attempts` is at least 1")


def options(
    base_urls: str | Sequence[str], *, queued_operation_behavior: str = "return", **given: object
) -> ClientOptions:
    """Options from what a caller writes: one URL or several, behaviours by name."""
    urls = (base_urls,) if isinstance(base_urls, str) else tuple(base_urls)
    return ClientOptions(
        base_urls=tuple(url.rstrip("/") for url in urls),
        queued_operation_behavior=QueuedOperationBehavior(queued_operation_behavior),
        **given,  # type: ignore[arg-type]
    )
