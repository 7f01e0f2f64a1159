"""A reader with a folder, a free port and the commands of this checkout."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.processes import processes_using
from support.reader import PORTS, Reader, command_folder

_KEPT = ("HOME", "JAVA_HOME", "LANG", "USER", "TMPDIR")


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """Follows several pages in one folder; leaves no process behind."""
    yield from open_reader(tmp_path_factory)


@pytest.fixture
def fresh_reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """Follows one page."""
    yield from open_reader(tmp_path_factory)


def open_reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    folder = tmp_path_factory.mktemp("reader")
    # PostgreSQL runs as another account and has to pass through.
    for one in (folder, folder.parent):
        one.chmod(0o755)
    ports = free_ports(len(PORTS))
    path = os.pathsep.join((str(command_folder(folder.with_name(f"{folder.name}-bin"))), os.environ["PATH"]))
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    found = Reader(
        folder=folder, ports=ports, environment={**kept, "PATH": path, "WEIR_API__PORT": str(ports[0])}
    )
    try:
        yield found
    finally:
        found.close()
        left = processes_using(str(folder))
        assert left == []


def free_ports(count: int) -> tuple[int, ...]:
    """Ports that nobody uses; all different, because each is held until the last one is found."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return tuple(one.getsockname()[1] for one in sockets)


def pages_of(folder: Path) -> list[Path]:
    return sorted(page for page in folder.glob("*.md") if page.name != "index.md")
