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
SELECT gen_random_uuid(), l.consumer_key, l.group_key, l.enqueued_at_ms + n, l.died_at_ms + n, 1, 1,
       l.reason, l.error,
       convert_to(format('{"n": %%s, "pad": "%%s"}', n, repeat('x', %(bytes)s)), 'UTF8'), l.envelope
FROM generate_series(%(first)s::int, %(last)s::int) AS n
CROSS JOIN (SELECT * FROM weir.dead_letters WHERE id = %(id)s) AS l
"""
_AT_ONCE = 250
"""Letters per statement; compressing a thousand payloads takes three seconds."""
_COUNTED = """
UPDATE weir.dlq_summary SET dead_count = dead_count + %(last)s - %(first)s + 1
WHERE consumer_key = (SELECT consumer_key FROM weir.dead_letters WHERE id = %(id)s)
"""
_GROUPED = """
UPDATE weir.dead_letter_groups SET dead_count = dead_count + %(last)s - %(first)s + 1
WHERE group_key = (SELECT group_key FROM weir.dead_letters WHERE id = %(id)s)
"""


async def add_letters(world: World, queue: QueueRef, *, count: int, payload_bytes: int = 1_000_000) -> None:
    """Put letters of a size beside one that died, which has the number 0."""
    (letter_id,) = await world.kill(queue, {"n": 0})
    for first in range(1, count + 1, _AT_ONCE):
        last = min(first + _AT_ONCE - 1, count)
        values = {"id": letter_id, "first": first, "last": last, "bytes": payload_bytes}
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
