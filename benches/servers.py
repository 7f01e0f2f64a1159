"""The servers of a bench: embedded, in the bench's folder, with the settings of this process."""

from __future__ import annotations

from pathlib import Path

from weir.embedded.open import stack_from
from weir.embedded.ports import free_port
from weir.embedded.redis import RedisServer
from weir.embedded.stack import Stack
from weir.settings import load_settings


def bench_stack(folder: Path) -> Stack:
    """A stack with all three stores."""
    return stack_from(load_settings(embedded={"data_dir": folder}), report=lambda _: None)


def bench_redis(folder: Path, *, password: str, durable: bool = False) -> RedisServer:
    """Only a Redis. A durable one has every write on disk before its reply."""
    program = load_settings().embedded.redis_server
    return RedisServer(folder, port=free_port(), password=password, durable=durable, program=program)
