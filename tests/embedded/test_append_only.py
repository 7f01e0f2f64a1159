"""Redis' append-only files: old ones are taken over, foreign ones refused, damaged ones cut."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import Redis

from support.debian import fetched_server
from support.servers import last_append_only, redis_server, start_server
from support.waiting import wait_until
from weir.embedded.aof_entries import CutLoss, Hole, loss_after, survey
from weir.embedded.append_only import (
    SINGLE,
    SPLIT,
    check_append_only,
    explain_log,
    mend_holes,
    read_snapshot,
    repair_append_only,
)
from weir.embedded.ports import free_port
from weir.embedded.redis import RedisServer
from weir.embedded.redis_binary import SETTING, RedisBinary, redis_binary
from weir.embedded.supervised import Supervised
from weir.errors import Misconfigured

WEIR = (sys.executable, "-m", "weir.cli")
ENTRY = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n"
DAMAGED = ENTRY * 10 + b"\x00junk\x00" + ENTRY * 10


@contextmanager
def running(folder: Path, program: Path | None = None) -> Iterator[Redis]:
    """A server over `folder`: the wheel's, or `program`."""
    server = start_server(
        lambda port: RedisServer(folder, port=port, password="p", program=program), log_folder=folder.parent
    )
    try:
        with Redis.from_url(server.url, decode_responses=True) as client:
            yield client
    finally:
        server.stop()


@contextmanager
def start_reported(folder: Path) -> Iterator[tuple[Redis, list[str]]]:
    """The same under the supervisor of `weir up`, with what it says."""
    said: list[str] = []
    log = folder.parent / "supervised.log"
    server = RedisServer(folder, port=free_port(), password="p")
    supervised = Supervised(server, log=log, report=said.append)
    asyncio.run(supervised.start())
    try:
        with Redis.from_url(server.url, decode_responses=True) as client:
            yield client, said
    finally:
        asyncio.run(supervised.stop())


@pytest.fixture
def oldest(tmp_path: Path) -> Path:
    return fetched_server("redis-6", cache=tmp_path)


def binary(name: str, *version: int) -> RedisBinary:
    major, minor, patch = (*version, 0, 0, 0)[:3]
    return RedisBinary(path=Path("/nowhere"), name=name, version=(major, minor, patch))


@pytest.mark.parametrize("rewritten", [False, True])
def test_the_one_file_of_an_old_server_is_taken_over_whole(
    tmp_path: Path, oldest: Path, rewritten: bool
) -> None:
    folder = tmp_path / "redis"
    with running(folder, oldest) as client:
        client.rpush("kept", *range(100))
        if rewritten:
            client.bgrewriteaof()
        client.rpush("kept", 100)
    with running(folder) as client:
        assert client.lrange("kept", 0, -1) == [str(number) for number in range(101)]
        client.rpush("kept", 101)
    assert not (folder / SINGLE).exists()
    with running(folder) as client:
        assert client.llen("kept") == 102


def test_an_old_server_does_not_open_what_a_newer_one_wrote(tmp_path: Path, oldest: Path) -> None:
    folder = tmp_path / "redis"
    with running(folder) as client:
        client.set("a", "b")
    with pytest.raises(Misconfigured, match=f"Redis 6.2.14 cannot read it; set `{SETTING}`"):
        check_append_only(folder, redis_binary(oldest))


@pytest.mark.parametrize(
    ("head", "readers", "strangers"),
    [
        (b"REDIS0009", [("Redis", 6, 2), ("Redis", 8, 0), ("Valkey", 9, 1)], []),
        (b"REDIS0011", [("Redis", 7, 2), ("Valkey", 8, 1), ("Valkey", 9, 1)], [("Redis", 7, 0)]),
        (b"REDIS0012", [("Redis", 7, 4), ("Redis", 8, 0)], [("Redis", 7, 2), ("Valkey", 9, 1)]),
        (b"VALKEY080", [("Valkey", 9, 0)], [("Valkey", 8, 1), ("Redis", 8, 0)]),
    ],
)
def test_a_snapshot_is_opened_by_those_servers_alone_that_read_its_format(
    tmp_path: Path,
    head: bytes,
    readers: list[tuple[str, int, int]],
    strangers: list[tuple[str, int, int]],
) -> None:
    (tmp_path / SINGLE).write_bytes(head + b"\xfa\nvalkey-ver\x059.1.2")
    for name, *version in readers:
        check_append_only(tmp_path, binary(name, *version))
    for name, *version in strangers:
        with pytest.raises(Misconfigured, match=r"was written by Valkey 9.1.2, and"):
            check_append_only(tmp_path, binary(name, *version))


def test_a_snapshot_names_the_server_that_wrote_it(tmp_path: Path) -> None:
    folder = tmp_path / "redis"
    with running(folder) as client:
        client.set("a", "b")
    snapshot = read_snapshot(folder)
    assert snapshot is not None
    assert (snapshot.family, snapshot.writer) == ("VALKEY", str(redis_binary()))


def test_what_only_another_server_reads_is_not_called_damaged_nor_repaired(tmp_path: Path) -> None:
    folder = tmp_path / "redis"
    with running(folder) as client:
        client.set("a", "b")
    before = {path: path.read_bytes() for path in (folder / SPLIT).iterdir()}
    with pytest.raises(Misconfigured, match="was written by Valkey"):
        repair_append_only(folder, binary("Redis", 8, 0))
    assert {path: path.read_bytes() for path in (folder / SPLIT).iterdir()} == before


def test_a_snapshot_alone_is_never_cut(tmp_path: Path) -> None:
    (tmp_path / SPLIT).mkdir()
    (tmp_path / SPLIT / f"{SINGLE}.manifest").write_text("file base.rdb seq 1 type b\n")
    base = tmp_path / SPLIT / "base.rdb"
    base.write_bytes(b"VALKEY080 and then something that is damaged")
    with pytest.raises(Misconfigured, match="restore a copy"):
        repair_append_only(tmp_path, redis_binary())
    assert base.stat().st_size > 0


def test_a_format_that_is_too_new_is_explained(tmp_path: Path) -> None:
    said = ["# Can't handle RDB format version 99", "# Bad file format reading the append only file x"]
    reason = explain_log(tmp_path, binary("Valkey", 9, 1), said)
    assert reason is not None
    assert "cannot read it" in reason
    assert "repair" not in reason


def test_a_damaged_file_of_an_old_server_is_refused_then_cut_and_opened(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    folder = tmp_path / "data" / "redis"
    folder.mkdir(parents=True)
    (folder / SINGLE).write_bytes(DAMAGED)
    refused = weir("up", "--only", "servers", "--data-dir", str(tmp_path / "data"))
    assert (refused.returncode, "--repair-redis" in refused.stderr) == (2, True)
    asked = weir("doctor", "--repair-redis", "--data-dir", str(tmp_path / "data"))
    assert asked.returncode == 2
    assert "cannot be mended exactly" in asked.stderr
    assert "at least 10 commands" in asked.stderr
    repaired = weir("doctor", "--repair-redis", "--cut", "--data-dir", str(tmp_path / "data"))
    assert "cut `" in repaired.stderr
    (kept,) = folder.glob("*.damaged-*")
    assert kept.read_bytes() == DAMAGED
    with running(folder) as client:
        assert client.get("a") == "b"


def weir(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*WEIR, *words], capture_output=True, text=True, timeout=120, env=os.environ)


def test_a_server_of_this_run_keeps_what_stands_before_the_damage(tmp_path: Path) -> None:
    folder = tmp_path / "redis"
    server = start_server(lambda port: redis_server(folder, port=port), log_folder=tmp_path)
    with Redis.from_url(server.url) as client:
        client.rpush("kept", *range(10))
        end = last_append_only(folder).stat().st_size
        client.rpush("lost", *range(100))
    server.stop()
    aof = last_append_only(folder)
    content = bytearray(aof.read_bytes())
    content[end + 8 : end + 16] = bytes(8)
    aof.write_bytes(content)
    with pytest.raises(Misconfigured, match="damaged in the middle"):
        server.start()
    with pytest.raises(Misconfigured, match="cannot be mended exactly"):
        repair_append_only(folder, server.server.binary)
    repair_append_only(folder, server.server.binary, cut=True)
    server.start()
    with Redis.from_url(server.url) as client:
        assert (client.llen("kept"), client.llen("lost")) == (10, 0)
    server.stop()


def test_a_folder_without_append_only_files_is_not_repaired(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="nothing was repaired"):
        repair_append_only(tmp_path, redis_binary())


def test_the_tail_of_an_old_file_with_a_snapshot_is_cut_too(tmp_path: Path, oldest: Path) -> None:
    folder = tmp_path / "redis"
    with running(folder, oldest) as client:
        client.rpush("kept", *range(10))
        client.bgrewriteaof()
        wait_until(lambda: (folder / SINGLE).read_bytes().startswith(b"REDIS"), what="the snapshot")
    with (folder / SINGLE).open("ab") as file:
        file.write(DAMAGED)
    with pytest.raises(Misconfigured, match="damaged in the middle"), running(folder):
        pass
    with pytest.raises(Misconfigured, match="holds a snapshot and commands"):
        repair_append_only(folder, redis_binary())
    repair_append_only(folder, redis_binary(), cut=True)
    with running(folder) as client:
        assert (client.llen("kept"), client.get("a")) == (10, "b")


@pytest.mark.parametrize(
    ("content", "sound"),
    [
        (ENTRY * 3, ENTRY * 3),
        (b"", b""),
        (b"#TS:1700000000\r\n" + ENTRY, b"#TS:1700000000\r\n" + ENTRY),
        (ENTRY + b"*1\r\n$5\r\nMULTI\r\n" + ENTRY, ENTRY),
        (ENTRY + b"*1\r\n$4\r\nEXEC\r\n", ENTRY),
        (b"*1\r\n$5\r\nmulti\r\n" + ENTRY + b"*1\r\n$4\r\nexec\r\n" + b"*1", None),
        (ENTRY + ENTRY[:-1], ENTRY),
        (ENTRY + b"*3\r\n$3\r\nSET\r\n$9999999999\r\na", ENTRY),
        (ENTRY + b"*99999999999\r\n", ENTRY),
        (ENTRY + b"*0\r\n", ENTRY),
        (ENTRY + b"*-1\r\n$-1\r\n", ENTRY),
        (ENTRY + b"*1\r\n$2\r\nabc\r\n", ENTRY),
    ],
)
def test_the_first_bad_entry_is_found(tmp_path: Path, content: bytes, sound: bytes | None) -> None:
    (tmp_path / SINGLE).write_bytes(content)
    found = survey(tmp_path / SINGLE)
    assert (found.sound, found.holes) == (len(content[:-2] if sound is None else sound), ())


TRANSACTION = b"*1\r\n$5\r\nMULTI\r\n" + ENTRY * 2 + b"*1\r\n$4\r\nEXEC\r\n"
NULS_INSIDE = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$9\r\n" + bytes(9) + b"\r\n"


@pytest.mark.parametrize(
    "parts",
    [
        (ENTRY, 110, ENTRY),
        (ENTRY, 1, ENTRY, 70_000, TRANSACTION),
        (ENTRY, 3 << 20, NULS_INSIDE),
        (NULS_INSIDE, 5, b"#TS:1700000000\r\n" + ENTRY),
        (ENTRY, 40),
        (30, ENTRY),
        (ENTRY, 7, ENTRY + ENTRY[:-1]),
        (ENTRY, 7, ENTRY + b"*1\r\n$5\r\nMULTI\r\n" + ENTRY),
    ],
)
def test_exactly_the_holes_are_taken_out_and_the_file_as_it_was_is_kept(
    tmp_path: Path, parts: tuple[bytes | int, ...]
) -> None:
    whole = b"".join(part for part in parts if isinstance(part, bytes))
    holed = b"".join(bytes(part) if isinstance(part, int) else part for part in parts)
    (tmp_path / SINGLE).write_bytes(holed)
    holes = [hole.size for hole in survey(tmp_path / SINGLE).holes]
    assert holes == [part for part in parts if isinstance(part, int)]
    told = mend_holes(tmp_path)
    assert told is not None
    assert "nothing else was changed" in told
    assert (tmp_path / SINGLE).read_bytes() == whole
    (kept,) = tmp_path.glob("*.damaged-*")
    assert kept.read_bytes() == holed
    assert mend_holes(tmp_path) is None


def test_damage_that_is_more_than_holes_is_left_alone(tmp_path: Path) -> None:
    holed = ENTRY + bytes(10) + DAMAGED
    (tmp_path / SINGLE).write_bytes(holed)
    assert survey(tmp_path / SINGLE).holes == (Hole(start=len(ENTRY), size=10),)
    assert mend_holes(tmp_path) is None
    assert (tmp_path / SINGLE).read_bytes() == holed


def test_what_a_cut_would_lose_is_counted_in_messages(tmp_path: Path) -> None:
    def command(*words: bytes) -> bytes:
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)

    put_in = command(b"HSET", b"weir:{000}:q:x:bodies", b"1", b"one", b"2", b"a *2 in it")
    ended = command(b"HDEL", b"weir:{000}:q:x:bodies", b"1")
    (tmp_path / SINGLE).write_bytes(ENTRY + b"junk" + put_in + b"*9 junk" + ended)
    sound = survey(tmp_path / SINGLE).sound
    assert loss_after(tmp_path / SINGLE, sound) == CutLoss(commands=2, messages=2, ended=1)


def test_a_start_takes_a_hole_out_by_itself_and_says_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    folder = tmp_path / "data" / "redis"
    with running(folder) as client:
        client.rpush("kept", *range(10))
        end = last_append_only(folder).stat().st_size
        client.rpush("kept", *range(90))
    aof = last_append_only(folder)
    content = aof.read_bytes()
    aof.write_bytes(content[:end] + bytes(110) + content[end:])
    with start_reported(folder) as (client, said):
        assert client.llen("kept") == 100
    assert any("took 110 NUL bytes out of" in text for text in said)
