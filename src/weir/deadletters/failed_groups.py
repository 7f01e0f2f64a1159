"""Tells groups of tasks that a member died: pushes the call that a group names for that, once per group.

It runs before the deaths leave Redis. If the mover is killed, the next one pushes the same calls again, and
their idempotency keys make them duplicates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import structlog

from weir.broker.broker import Broker, GateRule
from weir.errors import Unavailable
from weir.model.message import DeadMessage, Enqueue, NewMessage
from weir.model.message_headers import TASK, WORKFLOW

log = structlog.get_logger("weir.deadletters")


async def tell_groups(broker: Broker, messages: Sequence[DeadMessage]) -> None:
    """Push the calls of the groups of tasks that have members among the dead."""
    for message in messages:
        if WORKFLOW in message.headers:
            await _tell(broker, message)


async def _tell(broker: Broker, message: DeadMessage) -> None:
    """Tell one group. A producer may have put anything into the payload; that must not stop the others."""
    try:
        group = orjson.loads(message.payload)["workflow"]["group"]
        if group is None or group["failed"] is None:
            return
        queue = message.queue.scope.queue(group["failed"]["queue"])
        call = _call(group["id"], group["failed"])
        (answer,) = await broker.enqueue(queue, [call], entry=GateRule.PASS)
    except Unavailable:
        raise
    except Exception as error:
        log.warning("a group cannot be told of a death", id=message.message_id, error=str(error))
        return
    if answer.outcome is Enqueue.FULL:
        log.error(
            "a group was not told of a death, its queue is full", id=message.message_id, queue=queue.queue
        )


def _call(group: str, step: dict[str, Any]) -> NewMessage:
    return NewMessage(
        payload=orjson.dumps(step["payload"]),
        key=step["key"],
        headers={**step["headers"], TASK: step["task"]},
        priority=step["priority"],
        delay_ms=step["delay_ms"],
        ttl_ms=step["ttl_ms"],
        idempotency_key=f"group:{group}:failed",
    )
