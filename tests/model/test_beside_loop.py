"""Large values are worked on in a thread, small ones in place."""

from __future__ import annotations

import asyncio
import threading

import pytest

from weir.model.beside_loop import LARGE_BYTES, beside_loop


async def test_only_work_on_a_large_value_leaves_the_thread_of_the_loop() -> None:
    here = threading.get_ident()
    assert await beside_loop(threading.get_ident, LARGE_BYTES - 1) == here
    assert await beside_loop(threading.get_ident, LARGE_BYTES) != here


async def test_all_large_values_share_one_thread() -> None:
    threads = await asyncio.gather(*(beside_loop(threading.get_ident, LARGE_BYTES) for _ in range(9)))
    assert len(set(threads)) == 1


async def test_an_error_reaches_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        await beside_loop(lambda: 1 // 0, LARGE_BYTES)
