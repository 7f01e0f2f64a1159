"""Each call may come from an event loop of its own, as in Django, Flask or Celery."""

from __future__ import annotations

import asyncio
from pathlib import Path

from client.place import as_operator
from tasks import shop
from tasks.world import World


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_loops_that_ended_leave_no_connection_open(world: World) -> None:
    as_operator(world.api, "PUT", f"queues/{shop.forget.queue}", {}, world.environment)
    asyncio.run(shop.forget.apush("me"))
    before = open_files()
    for _ in range(10):
        asyncio.run(shop.forget.apush("me"))
    assert open_files() <= before
    assert not shop.app._by_loop
