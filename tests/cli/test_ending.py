"""A process ends soon after the signal to stop, whatever it was doing."""

from __future__ import annotations

import asyncio
import signal
import sys

import pytest

HANGING_THREAD = "await asyncio.to_thread(time.sleep, 3_600)"
DEAF_TASK = """
    while True:
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            pass
"""
SCRIPT = """
import asyncio, sys, time
from weir.cli import running

async def work():
    print("begun", flush=True)
    {work}

running.AFTER_DRAIN_S = 0.3
running.run_until_done(work(), drain_s=0.1)
"""


@pytest.mark.parametrize("work", [HANGING_THREAD, DEAF_TASK], ids=["thread", "task"])
async def test_what_cannot_end_is_left_behind(work: str) -> None:
    process, error = await run_and_stop(work)
    assert process == 1
    assert "not ended 0.4 s after the signal to stop; left behind: MainThread" in error


async def test_what_ends_in_time_ends_well() -> None:
    assert await run_and_stop("await asyncio.sleep(3_600)") == (0, "")


async def run_and_stop(work: str) -> tuple[int | None, str]:
    """The exit status and the last words of a process that is told to stop while it does this."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SCRIPT.format(work=work),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"begun\n"
            process.send_signal(signal.SIGTERM)
            _, error = await process.communicate()
    except TimeoutError:
        process.kill()
        raise
    return process.returncode, error.decode()
