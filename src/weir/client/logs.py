"""The log of a queue, as the client reads and replays it."""

from __future__ import annotations

import time
from base64 import b64decode
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias
from urllib.parse import quote, urlencode

from weir.client.lookups import AsyncLookups, queue_path
from weir.client.values import Payload, time_of, unix_ms
from weir.deadletters.bulk_action_states import BulkActionState
from weir.model.durations import Duration, to_optional_ms, to_seconds

LogOutcome: TypeAlias = Literal["acked", "dead", "expired", "cancelled"]
LogReplayState: TypeAlias = Literal[
    "pending", "running", "paused", "cancelled", "stopped_by_canary", "completed", "failed"
]
_PAGE = 200
_MOST_BYTES = 64 << 20
"""The most bytes of a page. It has about 8 MiB of payloads and a larger last one; base64 adds a third."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMessage:
    """A message in the log of a queue.

    ```python
    for message in weir.read_log("orders", key="customer-7"):
        print(message.number, message.outcome, message.payload)
    ```
    """

    id: str
    queue: str
    number: int
    """Its place among all messages that ended in the queue."""
    payload: Payload
    """The value of a JSON payload, the bytes of any other; None if it is `left_out`."""
    headers: Mapping[str, str]
    key: str | None
    idempotency_key: str | None
    priority: int
    attempts: int
    outcome: LogOutcome
    reason: str | None
    """Why it died."""
    enqueued_at: datetime
    ended_at: datetime
    kept_until: datetime
    left_out: bool
    """Payload and headers are not in the log: the call that ended this message ended too much at once."""

    @classmethod
    def of(cls, document: Mapping[str, Any], *, queue: str) -> LogMessage:
        """The message that an item of an answer describes."""
        life, encoded = document["life"], document["payload_base64"]
        return cls(
            id=document["id"],
            queue=queue,
            number=document["number"],
            payload=document["payload"] if encoded is None else b64decode(encoded),
            headers=document["headers"],
            key=life["key"],
            idempotency_key=document["idempotency_key"],
            priority=life["priority"],
            attempts=life["attempts"],
            outcome=life["outcome"],
            reason=life["reason"],
            enqueued_at=time_of(life["enqueued_at_ms"]),
            ended_at=time_of(life["ended_at_ms"]),
            kept_until=time_of(document["kept_until_ms"]),
            left_out=document["left_out"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReplay:
    """A replay from a log at the moment of the answer. The servers do the work.

    ```python
    replay = weir.replay_log("orders", into="orders-again", key="customer-7", dry_run=True)
    print(replay.state, replay.matched, replay.done)
    ```
    """

    id: str
    state: LogReplayState
    dry_run: bool
    expected: int
    """The most messages that the replay will look at."""
    scanned: int
    matched: int
    done: int
    """How many were sent."""
    skipped: int
    died_again: int
    note: str | None
    """Why it waits or ended."""
    problem: str | None
    """The latest reason why a message was skipped."""

    @property
    def ended(self) -> bool:
        """Whether the replay has ended. Somebody may resume it nevertheless."""
        return BulkActionState(self.state).over

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> LogReplay:
        """The replay that an answer describes."""
        return cls(**{name: document[name] for name in cls.__slots__})


class AsyncLogs(AsyncLookups):
    """The part of `AsyncWeir` that is about the logs of queues."""

    async def read_log(
        self,
        queue: str,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        key: str | None = None,
        where: str | None = None,
    ) -> AsyncGenerator[LogMessage, None]:
        """The messages in the log of a queue, in the order of their ends. Pages are fetched as needed.

        ```python
        async for message in weir.read_log("orders", where="outcome == 'dead'"):
            print(message.number, message.payload)
        ```

        - `start`, `end`: only messages that ended at or after `start` and before `end`, times with a zone.
        - `key`: only messages with this key.
        - `where`: only messages that this CEL expression is true for. If it fails for a message, that message
          does not match.
        """
        asked = {"from": _moment(start, "start"), "to": _moment(end, "end"), "key": key, "where": where}
        cursor: str | None = None
        while True:
            query = urlencode(_given({**asked, "cursor": cursor, "limit": _PAGE}), quote_via=quote)
            path = f"{queue_path(queue)}/log?{query}"
            page = await self._transport.send("GET", path, most_bytes=_MOST_BYTES, member="items")
            for item in page["items"]:
                yield LogMessage.of(item, queue=queue)
            cursor = page["next_cursor"]
            if cursor is None:
                return

    async def replay_log(
        self,
        queue: str,
        *,
        into: str,
        start: datetime | None = None,
        end: datetime | None = None,
        key: str | None = None,
        where: str | None = None,
        everything: bool = False,
        dry_run: bool = False,
        rate_per_s: float | None = None,
        canary: int | None = None,
        canary_tolerance: float | None = None,
        canary_patience: Duration | None = None,
    ) -> LogReplay:
        """Begin to send messages of a log into a queue; `log_replay` says how far it is.

        ```python
        replay = await weir.replay_log("orders", into="orders-again", key="customer-7", canary=10)
        replay = await weir.log_replay(replay.id, wait=60)
        ```

        - `into`: the queue that the messages are sent into; it may be their own.
        - `start`, `end`, `key`, `where`: which messages, as for `read_log`.
        - `everything`: must be true to replay the whole log.
        - `dry_run`: only count, and change nothing.
        - `rate_per_s`: the most messages to send per second; None for no limit.
        - `canary`: how many to send first. The rest waits until each of them is acked or dead. The replay
          stops if a larger share than `canary_tolerance` (0 by default) dies, or if some are undecided after
          `canary_patience` (5 minutes by default).

        Each request begins a replay, so it is not retried. After `Unreachable` a replay may have begun or
        not; `weir dlq task list` shows it.
        """
        span = {"from_ms": _moment(start, "start"), "to_ms": _moment(end, "end")}
        options = {
            "rate_per_s": rate_per_s,
            "canary": canary,
            "canary_tolerance": canary_tolerance,
            "canary_patience_ms": to_optional_ms(canary_patience),
        }
        chosen = _given({**span, "key": key, "expression": where})
        body = {"into": into, "filter": chosen, "all": everything, "dry_run": dry_run, **_given(options)}
        # A connection that the server closed while it was idle fails here, where a retry does no harm.
        await self.ping()
        path = f"{queue_path(queue)}/log/replays"
        return LogReplay.of(await self._transport.send("POST", path, body=body, attempts=1, member="state"))

    async def log_replay(self, replay_id: str, *, wait: Duration = 0) -> LogReplay:
        """How far a replay from a log is. `wait` is how long to wait for its end.

        ```python
        replay = await weir.log_replay(replay_id, wait=60)
        ```
        """
        give_up = time.monotonic() + to_seconds(wait)
        while True:
            path = f"/api/v1/dlq/tasks/{quote(replay_id, safe='')}"
            replay = LogReplay.of(await self._transport.send("GET", path, member="state"))
            left_s = give_up - time.monotonic()
            if replay.ended or left_s <= 0:
                return replay
            await self._transport.sleep(min(self.options.poll_interval_s, left_s))


def _moment(moment: datetime | None, what: str) -> int | None:
    return None if moment is None else unix_ms(moment, what=what)


def _given(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
