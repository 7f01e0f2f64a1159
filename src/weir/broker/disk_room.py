"""Lets every shard refuse messages while the disk of Redis has too little room, for all ways in alike."""

from __future__ import annotations

import asyncio

from weir.broker import replies
from weir.broker.runner import RedisConnection, ScriptRunner, connect
from weir.model.clock import Clock

HOLD_MS = 10_000
"""How long a refusal holds after it was said last: who saw the disk may be gone."""


class DiskRoom:
    """Says in every shard that there is no room, or that there is some again."""

    def __init__(self, connection: RedisConnection, *, shards: int, clock: Clock | None = None) -> None:
        self._runner = ScriptRunner(connect(connection), patience_s=connection.patience_s, clock=clock)
        self._shards = range(shards)

    async def refuse(self, text: str) -> None:
        """Refuse messages for `HOLD_MS`, and tell who pushes this text."""
        await self._say(text)

    async def allow(self) -> None:
        await self._say("")

    async def _say(self, text: str) -> None:
        async def say(shard: int) -> None:
            replies.check(await self._runner.run("refuse_growth", shard, text.encode(), HOLD_MS))

        await asyncio.gather(*(say(shard) for shard in self._shards))

    async def aclose(self) -> None:
        await self._runner.aclose()
