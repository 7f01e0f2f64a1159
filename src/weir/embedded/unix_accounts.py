"""Chooses the account of a server: PostgreSQL refuses to run as root, so it gets another account then."""

from __future__ import annotations

import os
import pwd
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from weir.errors import Misconfigured

_CANDIDATES = ("postgres", "nobody")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnixAccount:
    """A user that a child process becomes; with `search` it may enter folders that are closed to it."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    search: bool = False

    def plan(self) -> dict[str, Any]:
        return asdict(self)


def unprivileged_account(*paths: Path) -> UnixAccount | None:
    """An account for a server that refuses root and must reach `paths`; None if this process is not root."""
    if os.geteuid() != 0:
        return None
    for name in _CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        groups = (entry.pw_gid,)
        search = not all(_reachable(path, uid=entry.pw_uid, groups=groups) for path in paths)
        return UnixAccount(uid=entry.pw_uid, gid=entry.pw_gid, groups=groups, search=search)
    raise Misconfigured(
        "PostgreSQL refuses to run as root and this machine has neither a `postgres` nor a `nobody` user; "
        "add one or run Weir as an ordinary user"
    )


def _reachable(path: Path, *, uid: int, groups: tuple[int, ...]) -> bool:
    return all(_may_enter(folder, uid=uid, groups=groups) for folder in path.resolve().parents)


def _may_enter(folder: Path, *, uid: int, groups: tuple[int, ...]) -> bool:
    state = folder.stat()
    if state.st_uid == uid:
        return bool(state.st_mode & 0o100)
    if state.st_gid in groups:
        return bool(state.st_mode & 0o010)
    return bool(state.st_mode & 0o001)
