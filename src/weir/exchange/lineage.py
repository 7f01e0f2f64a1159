"""Records the children of messages as they are accepted."""

from __future__ import annotations

from collections.abc import Sequence

from weir.exchange.seam import PushAnswer, Pushed, PushItem
from weir.lineage.children import ChildMessage, ChildRecorder, Kinship
from weir.model.clock import Clock
from weir.model.names import QueueRef
from weir.model.parents import chained_from


class ChainedMessages:
    """Records which accepted messages are chained from others.

    A queued message is recorded when its operation is done. If its idempotency key is known already, it never
    comes into the queue, and the first message with that key is the child.
    """

    def __init__(self, children: ChildRecorder, *, clock: Clock) -> None:
        self._children = children
        self._clock = clock

    def record(self, items: Sequence[PushItem], answers: Sequence[PushAnswer]) -> None:
        for item, answer in zip(items, answers, strict=True):
            parent_id = chained_from(item.message.headers)
            if parent_id is not None and isinstance(answer, Pushed):
                self.record_child(item.queue, parent_id, answer.message_id)

    def record_child(self, queue: QueueRef, parent_id: str, message_id: str) -> None:
        """Record one message that is in its queue, or was."""
        child = ChildMessage(
            queue=queue,
            message_id=message_id,
            parent_id=parent_id,
            kind=Kinship.CHAINED,
            at_ms=self._clock.now_ms(),
        )
        self._children.record(child)
