"""One batch of a cancellation: lists a page of messages of one state, and cancels the ones that are meant."""

from __future__ import annotations

from collections.abc import Sequence

from weir.broker.broker import Broker
from weir.deadletters.bulk_action_batch import Batch, Finish, Work, finished, pace, pause_ms
from weir.deadletters.bulk_actions import MAX_SAMPLES, BulkAction
from weir.deadletters.message_selection import WALK, MessageSelection
from weir.model.ids import MessageId
from weir.model.inspection import MAX_PAGE, Touched
from weir.model.names import QueueRef


async def cancel_batch(work: Work, action: BulkAction, selection: MessageSelection) -> Finish:
    """Do the next batch. If a batch was done but not saved, the next one finds its messages gone."""
    key = action.walk_keys[action.walked]
    # A state that is walked a second time was counted the first time.
    again = WALK[key] in [WALK[before] for before in action.walk_keys[: action.walked]]
    if again and action.dry_run:
        return finished(Batch(key_done=True))
    queue = action.environment.queue(selection.queue)
    page = await work.broker.list_messages(
        queue,
        WALK[key],
        match=selection.filter,
        cursor=action.cursor,
        limit=MAX_PAGE if action.dry_run else pace(action, MAX_PAGE),
    )
    meant = [one.message_id for one in page.messages if one.enqueued_at_ms <= selection.enqueued_to_ms]
    done = 0 if action.dry_run else await _cancel(work.broker, queue, meant)
    skipped = 0 if action.dry_run else len(meant) - done
    batch = Batch(
        scanned=0 if again else page.scanned,
        matched=len(meant),
        done=done,
        skipped=skipped,
        samples=tuple(meant[:MAX_SAMPLES]),
        key_done=page.cursor is None,
        cursor=page.cursor,
        delay_ms=pause_ms(action, done),
        problem="they ended before they could be cancelled" if skipped else None,
    )
    return finished(batch)


async def _cancel(broker: Broker, queue: QueueRef, message_ids: Sequence[MessageId]) -> int:
    if not message_ids:
        return 0
    return sum(one is not Touched.GONE for one in await broker.cancel(queue, message_ids))
