"""Tests that end connections run on the event loop of `weir serve`: how connections end is its business."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

ON_UVLOOP = (
    "test_socket.py",
    "test_request_limits.py",
    "test_unfinished.py",
    "test_tls.py",
    "test_forwarded.py",
)


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"loop": uvloop.new_event_loop if item.path.name in ON_UVLOOP else asyncio.new_event_loop}
