"""The demo from start to end: servers, stores, traffic, and a summary of what went through."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from weir.embedded.migrations import migrate_stores
from weir.embedded.open import stack_from
from weir.settings import Settings

Say = Callable[[str], None]


async def run_demo(settings: Settings, *, for_s: float | None, say: Say) -> dict[str, Any]:
    """Run until `for_s` has passed, or until cancelled."""
    started = time.monotonic()
    say("starting Redis, PostgreSQL and ClickHouse …")
    async with stack_from(settings, report=say) as stack:
        await migrate_stores(stack.urls)
        ready_s = time.monotonic() - started
        say(f"ready after {ready_s:.1f} s; data in {stack.data_dir.path}. Ctrl-C ends the demo.")
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(stack.failed(), for_s)
        restarts = {child.server.name: child.restarts for child in stack.servers}
    return {
        "ok": True,
        "ready_s": round(ready_s, 2),
        "ran_s": time.monotonic() - started,
        "restarts": restarts,
    }
