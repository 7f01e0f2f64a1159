"""The logs of queues for code without an event loop: `AsyncLogs` over connections that block."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Generator
from datetime import datetime
from typing import Any, TypeVar

from weir.client.logs import AsyncLogs, LogMessage, LogReplay
from weir.model.durations import Duration

T = TypeVar("T")


class BlockingLogs:
    """The part of `Weir` that is about the logs of queues."""

    _client: AsyncLogs

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        raise NotImplementedError

    def read_log(
        self,
        queue: str,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        key: str | None = None,
        where: str | None = None,
    ) -> Generator[LogMessage, None, None]:
        """The messages in the log of a queue; see `AsyncWeir.read_log`.

        ```python
        for message in weir.read_log("orders", where="outcome == 'dead'"):
            print(message.number, message.payload)
        ```
        """
        messages = self._client.read_log(queue, start=start, end=end, key=key, where=where)
        try:
            while (message := self._run(next_or_none(messages))) is not None:
                yield message
        finally:
            self._run(messages.aclose())

    def replay_log(
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
        """Begin to send messages of a log into a queue; see `AsyncWeir.replay_log`.

        ```python
        replay = weir.replay_log("orders", into="orders-again", key="customer-7", canary=10)
        replay = weir.log_replay(replay.id, wait=60)
        ```
        """
        return self._run(
            self._client.replay_log(
                queue,
                into=into,
                start=start,
                end=end,
                key=key,
                where=where,
                everything=everything,
                dry_run=dry_run,
                rate_per_s=rate_per_s,
                canary=canary,
                canary_tolerance=canary_tolerance,
                canary_patience=canary_patience,
            )
        )

    def log_replay(self, replay_id: str, *, wait: Duration = 0) -> LogReplay:
        """How far a replay from a log is; see `AsyncWeir.log_replay`.

        ```python
        replay = weir.log_replay(replay_id, wait=60)
        ```
        """
        return self._run(self._client.log_replay(replay_id, wait=wait))


async def next_or_none(values: AsyncGenerator[T, None]) -> T | None:
    return await anext(values, None)
