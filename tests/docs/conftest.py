"""A reader with a folder, a free port and the commands of this checkout."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from dev import ROOT
from support.pages import CodeBlock
from support.processes import processes_using
from support.reader import PORTS, Reader, command_folder
from support.servers import quick_folder

DATA = ".weir"
UP = CodeBlock(page=ROOT, line=0, language="sh", title="Terminal 1", text="weir up --without pipeline\n")
READY = CodeBlock(page=ROOT, line=0, language="text", title="", text="ready\n")
_KEPT = ("HOME", "JAVA_HOME", "LANG", "USER", "TMPDIR")


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    """Follows several pages in one folder; leaves no process behind."""
    with quick_folder() as folder, opened_reader(folder) as found:
        yield found


@pytest.fixture
def fresh_reader(quick_path: Path) -> Iterator[Reader]:
    """Follows one page."""
    with opened_reader(quick_path) as found:
        yield found


@pytest.fixture(scope="session")
def used_folder() -> Iterator[Path]:
    """A data folder that `weir up` made and left: making it anew takes most of the time of a short page."""
    with quick_folder() as folder:
        with opened_reader(folder) as found:
            found.follow_blocks([UP, READY])
        yield found.folder / DATA


@pytest.fixture
def returning_reader(quick_path: Path, used_folder: Path) -> Iterator[Reader]:
    """Follows one page where `weir up` ran before."""
    with opened_reader(quick_path) as found:
        # It keeps the owner of each file, which for PostgreSQL is another account.
        subprocess.run(["cp", "-a", str(used_folder), str(found.folder / DATA)], check=True)
        yield found


@contextmanager
def opened_reader(home: Path) -> Iterator[Reader]:
    folder = home / "reader"
    folder.mkdir()
    ports = free_ports(len(PORTS))
    path = os.pathsep.join((str(command_folder(home / "bin")), os.environ["PATH"]))
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    found = Reader(
        folder=folder, ports=ports, environment={**kept, "PATH": path, "WEIR_API__PORT": str(ports[0])}
    )
    try:
        yield found
    finally:
        found.close()
        assert processes_using(str(folder)) == []


def free_ports(count: int) -> tuple[int, ...]:
    """Ports that nobody uses; all different, because each is held until the last one is found."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return tuple(one.getsockname()[1] for one in sockets)


def pages_of(folder: Path) -> list[Path]:
    return sorted(page for page in folder.glob("*.md") if page.name != "index.md")
