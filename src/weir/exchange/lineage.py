"""Records the children of messages as they are accepted."""

from __future__ import annotations

from collections.abc import Sequence

from weir.exchange.seam import PushAnswer, PushItem, Refused
from weir.lineage.children import ChildMessage, ChildRecorder, Kinship
from weir.model.clock import Clock
from weir.model.parents import chained_from


class ChainedMessages:
    """Records which accepted messages are chained from others."""

    def __init__(self, children: ChildRecorder, *, clock: Clock) -> None:
        self._children = children
        self._clock = clock

    def record(self, items: Sequence[PushItem], answers: Sequence[PushAnswer]) -> None:
        for item, answer in zip(items, answers, strict=True):
            parent_id = chained_from(item.message.headers)
            if parent_id is None or isinstance(answer, Refused):
                continue
            child = ChildMessage(
                queue=item.queue,
                message_id=answer.message_id or item.message.id,
                parent_id=parent_id,
                kind=Kinship.CHAINED,
                at_ms=self._clock.now_ms(),
            )
            self._children.record(child)
