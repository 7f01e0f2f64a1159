"""What the stack asks of a server that it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from weir.embedded.child import ChildCommand


class EmbeddedServer(Protocol):
    """One embedded server: how to prepare its folder, how to start it, how to ask if it is well."""

    @property
    def name(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def url(self) -> str: ...

    async def prepare(self) -> None:
        """Make its folder fit to start from; refuse what would lose data. Runs before every start."""
        ...

    def command(self) -> ChildCommand: ...

    async def healthy(self) -> bool:
        """Whether it answers now."""
        ...

    def explain(self, lines: list[str]) -> str | None:
        """What its last log lines mean to a human, if it is a known reason that a restart will not cure."""
        ...


def make_private(folder: Path) -> Path:
    """Make `folder` for our eyes only, also if it was there and open."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_mode & 0o077:
        folder.chmod(0o700)
    return folder
