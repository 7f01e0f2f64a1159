"""The gates see what they are there to see."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.gates import driver_problems, lua_problems, problems, query_problems

CONTRACT = "-- ack: done.\n-- KEYS  1 the queue\n-- ARGV  1 the id\n-- Reply {'ok'}\nreturn {'ok'}\n"


@pytest.fixture
def lua(tmp_path: Path) -> Path:
    folder = tmp_path / "broker" / "lua"
    (folder / "includes").mkdir(parents=True)
    return folder


def test_the_project_passes_its_own_gates() -> None:
    assert problems() == []


def test_a_script_without_a_contract_is_named(tmp_path: Path, lua: Path) -> None:
    (lua / "ack.lua").write_text("return 1\n")
    assert list(lua_problems(tmp_path)) == [
        "broker/lua/ack.lua: starts without a comment that says what it is for"
    ]


def test_a_contract_must_be_whole(tmp_path: Path, lua: Path) -> None:
    (lua / "ack.lua").write_text(CONTRACT.replace("KEYS", "keyz"))
    assert list(lua_problems(tmp_path)) == ["broker/lua/ack.lua: its contract does not mention KEYS"]
    (lua / "ack.lua").write_text(CONTRACT)
    assert list(lua_problems(tmp_path)) == []


def test_an_include_may_hold_part_of_the_contract(tmp_path: Path, lua: Path) -> None:
    (lua / "includes" / "call.lua").write_text("-- Every call.\n--   KEYS 1\n--   ARGV 1\nlocal a = 1\n")
    (lua / "now.lua").write_text('-- now: the time.\n-- Reply ms\n--- include "call"\nreturn 1\n')
    assert list(lua_problems(tmp_path)) == []


def test_a_query_without_a_sentence_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.sql").write_text("-- name: x\nSELECT 1;\n")
    assert "x.sql" in next(query_problems(tmp_path))


def test_a_driver_outside_of_its_room_is_named(tmp_path: Path) -> None:
    for room in ("broker", "api"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "x.py").write_text("from redis.asyncio import Redis\n")
    assert list(driver_problems(tmp_path)) == [
        "api/x.py: imports `redis`, which only broker, redis_client.py, telemetry may"
    ]
