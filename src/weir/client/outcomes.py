"""How a message ended, as the client tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from weir.client.values import Payload

MessageStatus: TypeAlias = Literal["queued", "waiting", "running", "done", "dead", "cancelled", "gone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageOutcome:
    """How a message ended, or where it is.

    - `queued`: the push itself waits in an operation.
    - `waiting`, `running`: it has not ended. `progress` is the value that its handler told last.
    - `done`: `result` is the value that was given with the ack, or None.
    - `dead`: `error` says why. `cancelled`: somebody cancelled it.
    - `gone`: it ended, and nothing is recorded. A message that is acked without a result ends like this,
      unless a worker recorded its attempt.

    ```python
    outcome = weir.outcome(message_id, wait=10)
    print(outcome.status, outcome.result)
    ```
    """

    status: MessageStatus
    result: Payload = None
    progress: Payload = None
    error: str | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing will happen to the message any more, unless it is dead and somebody redrives it."""
        return self.status in ("done", "dead", "cancelled", "gone")

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> MessageOutcome:
        """The outcome that an answer describes."""
        return cls(
            status=document["status"],
            result=document["result"],
            progress=document["progress"],
            error=document["error"],
        )
