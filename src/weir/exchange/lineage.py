"""Records the children of messages as they are accepted. A message without a parent costs one look."""

from __future__ import annotations

from collections.abc import Sequence

from weir.exchange.seam import PushAnswer, Pusher, PushItem, Refused
from weir.lineage.children import ChildMessage, ChildRecorder, Kinship
from weir.model.clock import Clock
from weir.model.parents import chained_from


class LineagePusher:
    """A `Pusher` that records which accepted messages are chained from others."""

    def __init__(self, inner: Pusher, children: ChildRecorder, *, clock: Clock) -> None:
        self._inner = inner
        self._children = children
        self._clock = clock

    async def push(self, items: Sequence[PushItem]) -> list[PushAnswer]:
        answers = await self._inner.push(items)
        for item, answer in zip(items, answers, strict=True):
            if item.message.headers:
                self._record(item, answer)
        return answers

    def _record(self, item: PushItem, answer: PushAnswer) -> None:
        parent_id = chained_from(item.message.headers)
        if parent_id is None or isinstance(answer, Refused):
            return
        child = ChildMessage(
            queue=item.queue,
            message_id=answer.message_id or item.message.id,
            parent_id=parent_id,
            kind=Kinship.CHAINED,
            at_ms=self._clock.now_ms(),
        )
        self._children.record(child)
