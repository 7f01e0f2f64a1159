"""Every server gets a port of its own, also if one that was free is taken a moment later."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from weir.embedded import ports as ports_module
from weir.embedded import stack as stack_module
from weir.embedded.open import stack_from
from weir.embedded.ports import HOST, choose_ports, free_port, is_free
from weir.embedded.stack import Ports, Stack
from weir.embedded.supervised import PortTaken
from weir.errors import Misconfigured
from weir.settings import ApiSettings, EmbeddedSettings, Settings

SERVERS = ["redis", "postgres", "clickhouse"]


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server((HOST, 0)) as listener:
        yield listener.getsockname()[1]


def lose(monkeypatch: pytest.MonkeyPatch, name: str, taken: int, *, times: int) -> None:
    """Let another program take the chosen port of a server so many times."""
    left = times

    def choose(*arguments: Any, **options: Any) -> dict[str, int]:
        nonlocal left
        chosen = choose_ports(*arguments, **options)
        if left:
            left -= 1
            chosen[name] = taken
        return chosen

    monkeypatch.setattr(stack_module, "choose_ports", choose)


@pytest.mark.parametrize("name", SERVERS)
async def test_a_port_that_is_taken_before_its_server_listens_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int, name: str
) -> None:
    lose(monkeypatch, name, taken, times=1)
    async with Stack(tmp_path / "data") as stack:
        ports = {one.server.name: one.server.port for one in stack.servers}
        assert ports[name] != taken
        assert stack.data_dir.read_json("ports.json") == ports
        assert all([await one.server.healthy() for one in stack.servers])


async def test_it_gives_up_if_every_port_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    lose(monkeypatch, "redis", taken, times=10)
    with pytest.raises(PortTaken, match="Address already in use"):
        await Stack(tmp_path / "data").start()


async def test_a_port_that_was_set_is_not_replaced(tmp_path: Path, taken: int) -> None:
    with pytest.raises(Misconfigured, match=f"port {taken} for redis is in use"):
        await Stack(tmp_path / "data", ports=Ports(redis=taken)).start()


async def test_servers_that_kept_the_same_port_get_different_ones(tmp_path: Path) -> None:
    """An earlier version could draw a port twice; it wrote it down and never started again."""
    (tmp_path / "ports.json").write_text(json.dumps(dict.fromkeys(SERVERS, free_port())))
    async with Stack(tmp_path) as stack:
        assert len({one.server.port for one in stack.servers}) == len(SERVERS)


async def test_no_server_keeps_the_port_that_was_set_for_the_api(tmp_path: Path) -> None:
    port = free_port()
    settings = Settings(api=ApiSettings(port=port), embedded=EmbeddedSettings(data_dir=tmp_path))
    (tmp_path / "ports.json").write_text(json.dumps({"postgres": port}))
    async with stack_from(settings, report=lambda _: None) as stack:
        assert port not in {one.server.port for one in stack.servers}


def test_no_port_is_drawn_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports_module.random, "sample", lambda ports, count: list(ports)[:count])
    assert free_port() == free_port()
    ports = choose_ports(dict.fromkeys(SERVERS), before={})
    assert len(set(ports.values())) == len(SERVERS)


def test_a_port_that_was_set_is_taken_from_the_server_that_kept_it() -> None:
    port = free_port()
    ports = choose_ports({"redis": None, "postgres": port}, before={"redis": port})
    assert ports["postgres"] == port
    assert ports["redis"] != port


def test_a_port_that_was_set_twice_is_refused() -> None:
    port = free_port()
    with pytest.raises(Misconfigured, match=f"port {port} is set for redis and for clickhouse; set `WEIR_"):
        choose_ports({"redis": port, "clickhouse": port}, before={})


def test_a_free_port_is_none_that_an_outgoing_connection_gets() -> None:
    first, _ = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    ports = [free_port() for _ in range(20)]
    assert all(is_free(port) for port in ports)
    assert max(ports) < int(first)
