"""Fairness by key: who waited most, who took most, and how alike the keys of a queue waited."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.lives import land_lives
from support.warehouse import NOW_MS, WarehouseRig
from weir.errors import InvalidInput
from weir.model.durations import DAY_MS, HOUR_MS
from weir.model.ids import MessageId, new_id
from weir.model.inspection import WaitParts
from weir.model.lives import Life, LifeOutcome
from weir.model.names import EnvironmentRef, QueueRef

SPAN = {"from_ms": NOW_MS - HOUR_MS, "to_ms": NOW_MS}


@pytest.fixture
def queue(environment: EnvironmentRef) -> QueueRef:
    return environment.queue("it's \\ q")


def life(queue: QueueRef, key: str | None, *, ago_ms: int, leased_ms: int = 0, **parts: int) -> Life:
    return Life(
        queue=queue,
        message_id=MessageId(new_id()),
        key=key,
        outcome=LifeOutcome.ACKED,
        reason=None,
        enqueued_at_ms=NOW_MS - 2 * HOUR_MS,
        available_at_ms=NOW_MS - 2 * HOUR_MS,
        handed_out_at_ms=NOW_MS - ago_ms,
        ended_at_ms=NOW_MS - ago_ms,
        priority=4,
        attempts=1,
        last_attempts=(),
        handler_ms=None,
        leased_ms=leased_ms,
        parts=WaitParts(**parts),
        blocked_by_id=None,
        payload_bytes=1,
    )


async def test_the_keys_that_waited_and_took_most_are_named(rig: WarehouseRig, queue: QueueRef) -> None:
    land_lives(
        rig.connection,
        [
            life(queue, "waits", ago_ms=5_000, turn_ms=8_000, blocked_ms=1_000, leased_ms=10),
            life(queue, "waits", ago_ms=5_000, turn_ms=1_000, scheduled_ms=500_000, leased_ms=10),
            *(life(queue, "takes", ago_ms=5_000, turn_ms=100, leased_ms=90) for _ in range(2)),
            life(queue, "early", ago_ms=HOUR_MS + 60_000, turn_ms=90_000, leased_ms=90_000),
            life(queue, None, ago_ms=5_000, turn_ms=90_000, leased_ms=90_000),
            life(replace(queue, queue="other"), "far", ago_ms=5_000, turn_ms=90_000, leased_ms=90_000),
        ],
    )
    found = await rig.warehouse.fairness.of_queue(queue, **SPAN)
    assert (found.keys, found.leased_ms) == (2, 200)
    assert [(one.key, one.messages, one.mean_wait_ms) for one in found.waited_most] == [
        ("waits", 2, 5_000), ("takes", 2, 100),
    ]  # fmt: skip
    assert [(one.key, one.leased_ms) for one in found.took_most] == [("takes", 180), ("waits", 20)]
    first = await rig.warehouse.fairness.of_queue(queue, **SPAN, limit=1)
    assert ([one.key for one in first.waited_most], [one.key for one in first.took_most]) == (
        ["waits"],
        ["takes"],
    )
    assert first.keys == 2


async def test_the_index_is_one_if_all_waited_alike_and_low_if_one_waited_for_all(
    rig: WarehouseRig, queue: QueueRef
) -> None:
    alike, alone, none = 40 * 60_000, 20 * 60_000, 5 * 60_000
    land_lives(
        rig.connection,
        [
            *(life(queue, f"k{n}", ago_ms=alike, turn_ms=700) for n in range(4)),
            life(queue, "k0", ago_ms=alone, turn_ms=700),
            *(life(queue, f"k{n}", ago_ms=alone) for n in range(1, 4)),
            *(life(queue, f"k{n}", ago_ms=none) for n in range(2)),
        ],
    )
    found = await rig.warehouse.fairness.of_queue(queue, **SPAN)
    assert [(one.keys, one.fairness) for one in found.points] == [(4, pytest.approx(1)), (4, 0.25), (2, 1)]
    assert [NOW_MS - one.at_ms for one in found.points] == [alike, alone, none]


async def test_a_queue_without_lives_has_no_keys_and_too_long_a_span_is_refused(
    rig: WarehouseRig, queue: QueueRef
) -> None:
    found = await rig.warehouse.fairness.of_queue(queue, **SPAN)
    assert (found.keys, found.waited_most, found.points) == (0, (), ())
    with pytest.raises(InvalidInput, match="up to 7 d"):
        await rig.warehouse.fairness.of_queue(queue, from_ms=NOW_MS - 8 * DAY_MS, to_ms=NOW_MS)
    with pytest.raises(InvalidInput, match="1 to 100"):
        await rig.warehouse.fairness.of_queue(queue, **SPAN, limit=0)
