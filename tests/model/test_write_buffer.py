from __future__ import annotations

import asyncio

import pytest

from weir.model.asyncio_tasks import cancel_and_wait
from weir.model.write_buffer import WriteBuffer


class Store:
    """A list that can be away, and that can be held up in the middle of a write."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.away = False
        self.odd: int | None = None
        self.open = asyncio.Event()
        self.open.set()

    async def write(self, batch: list[int]) -> None:
        await self.open.wait()
        if self.away:
            raise ConnectionError
        if self.odd in batch:
            raise UnicodeEncodeError("utf-8", "\ud83d", 0, 1, "half an emoji")
        self.batches.append(batch)


async def test_records_are_written_in_batches_and_once() -> None:
    store = Store()
    buffer = WriteBuffer(store.write, capacity=10, batch=2, away=(ConnectionError,))
    assert not any(buffer.add(number) for number in range(3))
    await buffer.flush()
    await buffer.flush()
    assert store.batches == [[0, 1], [2]]


async def test_the_oldest_records_make_room_also_while_their_store_is_away() -> None:
    store = Store()
    buffer = WriteBuffer(store.write, capacity=2, away=(ConnectionError,))
    store.away = True
    assert [buffer.add(number) for number in (300, 301)] == [False, False]
    with pytest.raises(ConnectionError):
        await buffer.flush()
    assert buffer.add(302)
    store.away = False
    await buffer.flush()
    assert store.batches == [[301, 302]]


async def test_a_flush_that_is_cancelled_ends_first_and_nothing_is_written_twice() -> None:
    store = Store()
    buffer = WriteBuffer(store.write, capacity=10, away=(ConnectionError,))
    store.open.clear()
    buffer.add(1)
    running = asyncio.create_task(buffer.run(every_s=60))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    ending = asyncio.create_task(cancel_and_wait([running]))
    await asyncio.sleep(0)
    buffer.add(2)
    store.open.set()
    await ending
    assert store.batches == [[1], [2]]


async def test_a_record_that_cannot_be_written_is_left_out_and_the_others_are_written() -> None:
    store = Store()
    store.odd = 5
    buffer = WriteBuffer(store.write, capacity=10, away=(ConnectionError,))
    for number in range(8):
        buffer.add(number)
    await buffer.flush()
    assert sorted(number for batch in store.batches for number in batch) == [0, 1, 2, 3, 4, 6, 7]
    assert len(buffer) == 0
