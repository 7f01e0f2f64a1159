"""Two API processes on one broker and one PostgreSQL, in one event loop, with links that can be cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from weir.admission.admission import Admission
from weir.broker.broker import Entry, GateRule
from weir.control.database import Database, execute
from weir.control.sql import NamedQuery
from weir.errors import BrokerUnavailable
from weir.exchange.seam import Pushed, PushItem, Queued
from weir.exchange.service import OperationService
from weir.model.ids import NamedCall
from weir.model.message import Enqueued, NewMessage
from weir.model.names import EnvironmentRef, QueueRef
from weir.spec.ir import Ordering, QueueSpec
from weir.testing.memory import MemoryBroker

ALLOWANCE_MS = 40
_EXPIRE = NamedQuery(
    name="expire", sentence="Let every claim time out.", text="UPDATE weir.operation_lanes SET until_ms = 0"
)


class Link(StrEnum):
    """How calls from one process to the broker fare."""

    UP = "up"
    CUT = "cut"
    """They fail and never arrive."""
    DEAF = "deaf"
    """They arrive, but the answer is lost."""
    LATE = "late"
    """They fail now and arrive when the network feels like it."""


class Crash(Exception):
    """The process died here."""


class Linked:
    """A broker as one process sees it through its link; everything else is passed on."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self.link = Link.UP
        self.crash_after: str | None = None
        self.late: list[tuple[QueueRef, list[NewMessage], NamedCall]] = []

    @property
    def shards(self) -> int:
        return self._broker.shards

    async def enqueue(
        self,
        queue: QueueRef,
        messages: Sequence[NewMessage],
        *,
        entry: Entry = GateRule.OBEY,
    ) -> list[Enqueued]:
        if self.link is Link.LATE and isinstance(entry, NamedCall):
            self.late.append((queue, list(messages), entry))
        self._may_fail()
        answers = await self._broker.enqueue(queue, messages, entry=entry)
        self._arrived("enqueue")
        return answers

    def _may_fail(self) -> None:
        if self.link in (Link.CUT, Link.LATE):
            raise BrokerUnavailable("cut")

    def _arrived(self, verb: str) -> None:
        if self.crash_after == verb:
            self.crash_after = None
            raise Crash
        if self.link is Link.DEAF:
            raise BrokerUnavailable("the answer was lost")

    async def deliver_late(self) -> None:
        late, self.late = self.late, []
        for queue, messages, call in late:
            await self._broker.enqueue(queue, messages, entry=call)

    def __getattr__(self, verb: str) -> object:
        method = getattr(self._broker, verb)

        async def through(*args: object, **kwargs: object) -> object:
            self._may_fail()
            answer = await method(*args, **kwargs)
            self._arrived(verb)
            return answer

        return through


@dataclass
class Cluster:
    """What the tests drive, and the history that they check."""

    database: Database
    queue: QueueRef
    broker: MemoryBroker
    links: list[Linked]
    processes: list[OperationService]
    accepted: dict[str, list[str]] = field(default_factory=dict)
    sent: int = 0
    consumed: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    async def start(cls, database: Database, environment: EnvironmentRef) -> Cluster:
        broker = MemoryBroker(shards=2)
        queue = environment.queue("orders")
        await broker.define(queue, QueueSpec(name="orders", ordering=Ordering.PER_KEY))
        links = [Linked(broker), Linked(broker)]
        processes = [
            OperationService(database=database, broker=link, admission=Admission(), allowance_ms=ALLOWANCE_MS)  # type: ignore[arg-type]
            for link in links
        ]
        return cls(database=database, queue=queue, broker=broker, links=links, processes=processes)

    async def push(self, at: int, keys: Sequence[str]) -> list[str]:
        """One request with a message for each key; the producer waits for the answer."""
        items = []
        for key in keys:
            self.sent += 1
            message = NewMessage(payload=f"{key}{self.sent}".encode(), key=key)
            items.append(PushItem(queue=self.queue, message=message))
        answers = await self.processes[at].front().push(items)
        for item, answer in zip(items, answers, strict=True):
            if isinstance(answer, Pushed | Queued):
                self.accepted.setdefault(item.message.key or "", []).append(item.message.payload.decode())
        return [type(answer).__name__ for answer in answers]

    async def run_round(self, at: int, *, crash_after: str | None = None) -> None:
        """The processor of one process works once; it may die in the middle."""
        self.links[at].crash_after = crash_after
        try:
            await self.processes[at].processor.run_round()
        except (Crash, BrokerUnavailable):
            pass
        finally:
            self.links[at].crash_after = None

    async def keep(self, at: int) -> None:
        await self.processes[at].keeper.run_round()

    async def time_out_claims(self) -> None:
        async with self.database.connection() as connection:
            await execute(connection, _EXPIRE)

    async def consume(self) -> None:
        """Take and ack what is there, so that nothing but the broker's memory tells what was pushed."""
        while deliveries := await self.broker.dequeue(self.queue, consumer="c", limit=100):
            for delivery in deliveries:
                self.consumed.setdefault(delivery.key or "", []).append(delivery.payload.decode())
            await self.broker.ack([delivery.lease for delivery in deliveries])

    async def settle(self) -> None:
        """Everything works again; drain to the end."""
        for link in self.links:
            link.link = Link.UP
            await link.deliver_late()
        for process in self.processes:
            process.admission.in_flight = 0
        await self.time_out_claims()
        for _ in range(200):
            for at in range(len(self.processes)):
                await self.keep(at)
                await self.run_round(at)
            if await self.processes[0].queue.depth() == 0:
                break
        else:
            raise AssertionError("the operation queue does not drain")
        for link in self.links:
            await link.deliver_late()
        await self.consume()
