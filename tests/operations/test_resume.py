"""Calls of clients in direct mode that got no answer are finished: what they did is not done again."""

from __future__ import annotations

from uuid import uuid4

from weir.broker.broker import CallAnswer, Gated
from weir.control.database import Database
from weir.errors import BrokerUnavailable
from weir.exchange.attempt import DirectPusher
from weir.exchange.resume import ResumingPusher
from weir.exchange.seam import Pushed, PushItem, Queued, ResumedCall
from weir.exchange.service import OperationService
from weir.model.ids import NamedCall
from weir.model.message import NewMessage
from weir.model.names import QueueRef
from weir.spec.ir import Ordering, QueueSpec
from weir.testing.memory import MemoryBroker

from .conftest import drained

CALL = NamedCall(slot="a client/1", id="1")


class ShakyBroker(MemoryBroker):
    """Cannot be asked about calls while it is `away`."""

    away = False

    async def settle_call(self, queue: QueueRef, call: NamedCall) -> list[CallAnswer]:
        if self.away:
            raise BrokerUnavailable("it is away")
        return await super().settle_call(queue, call)


def resumed(queue: QueueRef, messages: list[NewMessage]) -> list[PushItem]:
    return [
        PushItem(queue=queue, message=message, resumes=ResumedCall(call=CALL, place=place))
        for place, message in enumerate(messages)
    ]


async def test_what_a_call_did_stays_and_what_it_could_not_do_is_pushed(
    broker: MemoryBroker, queue: QueueRef
) -> None:
    gate = Gated(key="a", operation=str(uuid4()), messages=1)
    await broker.close_gates(queue, [gate])
    messages = [NewMessage(payload=b"held", key="a"), NewMessage(payload=b"free", key="b")]
    await broker.enqueue(queue, messages, entry=CALL)
    await broker.open_gates(queue, [gate])
    pusher = ResumingPusher(DirectPusher(broker), broker=broker, intake=None)
    answers = await pusher.push(resumed(queue, messages))
    assert [answer.message_id for answer in answers if isinstance(answer, Pushed)] == [
        message.id for message in messages
    ]
    assert sorted(await drained(broker, queue)) == ["free", "held"]


async def test_while_the_broker_is_away_a_call_is_kept_and_asked_about_later(
    database: Database, queue: QueueRef
) -> None:
    broker = ShakyBroker(shards=2)
    await broker.define(queue, QueueSpec(name=queue.queue, ordering=Ordering.PER_KEY))
    service = OperationService(database=database, broker=broker)
    messages = [NewMessage(payload=b"done"), NewMessage(payload=b"lost")]
    # The second is said to have stood in the call too, and did not.
    await broker.enqueue(queue, messages[:1], entry=CALL)
    pusher = ResumingPusher(DirectPusher(broker), broker=broker, intake=service.intake)
    broker.away = True
    answers = await pusher.push(resumed(queue, messages))
    assert [type(answer) for answer in answers] == [Queued, Queued]
    broker.away = False
    await service.processor.run_round()
    assert await drained(broker, queue) == ["done", "lost"]
