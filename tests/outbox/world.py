"""What tests of the outbox drive: messages in the user's database, relays that die, and what arrived."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import psycopg

from weir.client.core import AsyncWeir
from weir.client.values import OutgoingMessage, PushResult
from weir.control.principals import Principal, Role
from weir.model.asyncio_tasks import cancel_and_wait
from weir.model.message import Delivery
from weir.model.names import EnvironmentRef, QueueRef
from weir.outbox import relay
from weir.testing.memory import MemoryBroker


class Tokens:
    """Every token is one of the environment."""

    def __init__(self, environment: EnvironmentRef) -> None:
        self._scope = environment

    async def authenticate(self, text: str) -> Principal:
        return Principal(
            token_id=text,
            role=Role.WRITE,
            organization=self._scope.organization,
            project=self._scope.project,
            environment=self._scope.environment,
        )

    def forget(self, token_id: str) -> None: ...


class Dying(AsyncWeir):
    """A client whose process dies before or after every few pushes: what was asked may have happened."""

    def __init__(self, inner: AsyncWeir, *, lives: int) -> None:
        self._inner = inner
        self.pushes_left = lives
        self.died = asyncio.Event()

    async def push_many(self, messages: Sequence[OutgoingMessage]) -> list[PushResult]:
        self.pushes_left -= 1
        if self.pushes_left == 0:
            self.died.set()
            await asyncio.Event().wait()
        results = await self._inner.push_many(messages)
        if self.pushes_left == 1:
            self.died.set()
            await asyncio.Event().wait()
        return results


@dataclass
class World:
    url: str
    broker: MemoryBroker
    queue: QueueRef
    weir: AsyncWeir
    http: httpx2.AsyncClient
    """The HTTP client of `weir`, which carries requests straight to the API."""

    @asynccontextmanager
    async def relaying(self, weir: AsyncWeir | None = None) -> AsyncIterator[None]:
        task = asyncio.create_task(relay(self.url, weir or self.weir))
        try:
            yield
        finally:
            await cancel_and_wait([task])

    async def take(self, queue: QueueRef | None = None) -> list[Delivery]:
        """Everything that waits in the queue, in the order in which it is handed out."""
        found: list[Delivery] = []
        while batch := await self.broker.dequeue(queue or self.queue, consumer="test", limit=1_000):
            found += batch
            await self.broker.ack([one.lease for one in batch])
        return found

    async def rows(self, columns: str = "*") -> list[dict[str, Any]]:
        async with await psycopg.AsyncConnection.connect(
            self.url, row_factory=psycopg.rows.dict_row
        ) as connection:
            cursor = await connection.execute(f"SELECT {columns} FROM weir_outbox.messages ORDER BY position")
            return list(await cursor.fetchall())

    async def empty(self) -> bool:
        return not await self.rows("id")
