"""Many large dead letters, made in PostgreSQL, and a watch over what they cost the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from tests.deadletters.world import World

from weir.model.names import QueueRef

_MANY = """
INSERT INTO weir.dead_letters (
    id, consumer_key, group_key, enqueued_at_ms, died_at_ms, attempts, max_attempts,
    reason, error, payload, envelope
)
SELECT gen_random_uuid(), consumer_key, group_key, enqueued_at_ms + n, died_at_ms + n, 1, 1,
       reason, error, payload, envelope
FROM weir.dead_letters CROSS JOIN generate_series(1, %(count)s::int) AS n
WHERE id = %(id)s
"""
_COUNTED = """
UPDATE weir.dlq_summary SET dead_count = dead_count + %(count)s
WHERE consumer_key = (SELECT consumer_key FROM weir.dead_letters WHERE id = %(id)s)
"""
_GROUPED = """
UPDATE weir.dead_letter_groups SET dead_count = dead_count + %(count)s
WHERE group_key = (SELECT group_key FROM weir.dead_letters WHERE id = %(id)s)
"""


async def add_letters(world: World, queue: QueueRef, *, count: int, payload_bytes: int = 1_000_000) -> None:
    """Let a message of a size die, and put copies of it beside it. PostgreSQL compresses the payload once."""
    (letter_id,) = await world.kill(queue, {"n": 1, "pad": "x" * payload_bytes})
    values = {"id": letter_id, "count": count}
    async with world.database.transaction() as connection:
        for statement in (_MANY, _COUNTED, _GROUPED):
            await connection.execute(statement, values)


@dataclass
class Held:
    """The longest time that one callback held the event loop, in seconds of its thread's processor time."""

    longest_s: float = 0.0


@contextmanager
def watched_loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """Measure every callback of the event loop."""
    held = Held()
    run = asyncio.Handle._run

    def measured(self: asyncio.Handle) -> None:
        begun_s = time.thread_time()
        run(self)
        held.longest_s = max(held.longest_s, time.thread_time() - begun_s)

    with monkeypatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", measured)
        yield held
