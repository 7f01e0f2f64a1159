"""A port that was free may be taken a moment later; the servers start nevertheless."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from weir.embedded import stack as stack_module
from weir.embedded.ports import HOST, choose_port, free_port, is_free
from weir.embedded.stack import Ports, Stack
from weir.embedded.supervised import PortTaken
from weir.errors import Misconfigured

SERVERS = ["redis", "postgres", "clickhouse"]


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server((HOST, 0)) as listener:
        yield listener.getsockname()[1]


def lose(monkeypatch: pytest.MonkeyPatch, name: str, taken: int, *, times: int) -> None:
    """Let another program take the chosen port of a server so many times."""
    left = times

    def choose(wanted: int | None, *, server: str, before: int | None = None) -> int:
        nonlocal left
        if server == name and left:
            left -= 1
            return taken
        return choose_port(wanted, server=server, before=before)

    monkeypatch.setattr(stack_module, "choose_port", choose)


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


def test_a_free_port_is_none_that_an_outgoing_connection_gets() -> None:
    first, _ = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    ports = [free_port() for _ in range(20)]
    assert all(is_free(port) for port in ports)
    assert max(ports) < int(first)
