"""The interface of a server that the stack runs."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from weir.embedded.child import ChildCommand


class EmbeddedServer(Protocol):
    """One embedded server: prepares its folder, gives its command, and tells whether it answers."""

    @property
    def name(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def url(self) -> str: ...

    async def prepare(self) -> None:
        """Prepare the folder, or fail if a start with it would lose data. Called before every start."""
        ...

    def command(self) -> ChildCommand: ...

    async def healthy(self) -> bool:
        """Whether it answers now."""
        ...

    def explain(self, lines: list[str]) -> str | None:
        """Why the server ended, if its last log lines name a reason that a restart cannot cure; else None."""
        ...

    def mend(self) -> str | None:
        """Mend data that the server refuses, if that loses nothing; says what was done, else None."""
        ...


def make_private(folder: Path) -> Path:
    """Make `folder`, and close it to other users even if it existed."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_mode & 0o077:
        folder.chmod(0o700)
    return folder
