"""The servers of a bench: embedded, in a folder that goes with it, as the settings of this process say."""

from __future__ import annotations

from pathlib import Path

from weir.embedded.open import stack_from
from weir.embedded.ports import free_port
from weir.embedded.redis import RedisServer
from weir.embedded.stack import Stack
from weir.settings import load_settings


def bench_stack(folder: Path) -> Stack:
    """All three stores."""
    return stack_from(load_settings(embedded={"data_dir": folder}), report=lambda _: None)


def bench_redis(folder: Path, *, password: str) -> RedisServer:
    """Redis alone."""
    program = load_settings().embedded.redis_server
    return RedisServer(folder, port=free_port(), password=password, program=program)
