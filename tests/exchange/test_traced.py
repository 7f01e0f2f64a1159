"""Spans of pushes change nothing but the headers of messages."""

from __future__ import annotations

from collections.abc import Sequence

from tracing.exported import Exported
from weir.exchange.seam import PushAnswer, Pushed, PushItem, ResumedCall
from weir.exchange.traced import TracedPusher
from weir.model.ids import NamedCall
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef

CALL = NamedCall(slot="s/1", id="7")


class NotingPusher:
    def __init__(self) -> None:
        self.items: list[PushItem] = []

    async def push(self, items: Sequence[PushItem]) -> list[PushAnswer]:
        self.items += items
        return [Pushed(message_id=item.message.id) for item in items]


async def test_a_traced_push_keeps_the_names_of_its_calls(environment: EnvironmentRef) -> None:
    queue = environment.queue("orders")
    named = PushItem(queue=queue, message=NewMessage(payload=b"1"), named=CALL)
    resumed = PushItem(queue=queue, message=NewMessage(payload=b"2"), resumes=ResumedCall(call=CALL, place=3))
    inner = NotingPusher()
    traced = TracedPusher(inner, Exported().tracer())
    await traced.push([named])
    await traced.push([resumed])
    assert [(item.named, item.resumes) for item in inner.items] == [
        (CALL, None),
        (None, ResumedCall(call=CALL, place=3)),
    ]
    assert all("traceparent" in item.message.headers for item in inner.items)
