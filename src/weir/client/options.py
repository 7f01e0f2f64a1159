"""The options of a client as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from weir.model.durations import DAY_MS, MINUTE_MS

QueuedOperationBehavior: TypeAlias = Literal["return", "poll"]
"""What `push` does with a 202: the operation is stored and takes effect later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """The options of a client in seconds; `AsyncWeir` says what each one means."""

    base_urls: tuple[str, ...]
    token: str = ""
    organization: str | None = None
    project: str | None = None
    environment: str | None = None
    timeout_s: float = 10.0
    retry_attempts: int = 8
    retry_delay_s: float = 0.1
    max_retry_delay_s: float = 30.0
    retry_on_429: bool = True
    honor_retry_after: bool = True
    queued_operation_behavior: QueuedOperationBehavior = "return"
    poll_interval_s: float = 0.1
    poll_timeout_s: float = 30.0
    telemetry: bool = False

    def __post_init__(self) -> None:
        if not self.base_urls:
            raise ValueError("give at least one base URL")
        if self.token and any("@" in urlsplit(url).netloc for url in self.base_urls):
            raise ValueError(
                "a base URL has a user name, which would be sent in place of the token; take it out"
            )
        if self.retry_attempts < 1:
            raise ValueError("`retry_attempts` is at least 1")
        known = get_args(QueuedOperationBehavior)
        if self.queued_operation_behavior not in known:
            raise ValueError(f"`queued_operation_behavior` is one of {', '.join(known)}")

    @property
    def retry_window_ms(self) -> int:
        """How long the server must remember a key that only serves this client's retries."""
        tries_s = self.retry_attempts * self.timeout_s
        pauses_s = (self.retry_attempts - 1) * self.max_retry_delay_s
        return min(max(5 * MINUTE_MS, round((tries_s + pauses_s) * 1_000)), DAY_MS)


DEFAULTS = ClientOptions(base_urls=("http://127.0.0.1:8420",))
"""The defaults of the public keywords."""
