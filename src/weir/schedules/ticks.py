"""The message of a tick: its id and its idempotency key follow from the schedule and the time of the tick.

If a process dies after it pushed a tick and before it recorded the run, the tick is pushed again. The queue
drops this second push as a duplicate.
"""

from __future__ import annotations

from weir.exchange.seam import PushItem
from weir.model.clock import iso_time
from weir.model.ids import MessageId, derived_id
from weir.model.message import NewMessage
from weir.model.message_headers import SCHEDULE
from weir.schedules.schedule import Schedule
from weir.spec.payloads import payload_bytes

TICK_HEADER = "weir-tick"
_PURPOSE = b"weir tick"


def tick_item(schedule: Schedule, tick_ms: int) -> PushItem:
    """The push of one tick."""
    message = NewMessage(
        id=MessageId(derived_id(schedule.id, time_ms=tick_ms, purpose=_PURPOSE + tick_ms.to_bytes(7))),
        payload=payload_bytes(schedule.spec.payload),
        headers={SCHEDULE: schedule.spec.name, TICK_HEADER: iso_time(tick_ms)},
        idempotency_key=f"schedule:{schedule.id}:{tick_ms}",
    )
    return PushItem(queue=schedule.queue, message=message)
