"""Gets the tools that the tests need beside Python: Chromium for pages, promtool for metrics, pgbouncer.

All come from Debian. Chromium must be installed, which needs root. The others are single programs, so any
user can unpack their packages into the environment, with the libraries that pgbouncer needs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

_UNPACKED = Path(sys.prefix) / "debian"
_APT = ("apt-get", "-q", "-o", "APT::Sandbox::User=root")
"""As root, apt would download as a user who cannot enter the folder; for other users this changes nothing."""


def ensure_tools(say: Callable[[str], None]) -> None:
    """Get missing tools where possible; a test whose tool is still missing fails and says so."""
    if not shutil.which("apt-get"):
        return
    if not shutil.which("chromium") and os.geteuid() == 0:
        say("installing chromium, for the tests of the dashboard")
        _install("chromium")
    if promtool() is None and shutil.which("dpkg-deb"):
        say("getting promtool, for the tests of the metrics")
        _unpack("prometheus", "./usr/bin/promtool")
    if not pgbouncer().exists() and shutil.which("dpkg-deb"):
        say("getting pgbouncer, for the tests behind a pooler")
        _unpack("pgbouncer", "./usr/sbin/pgbouncer")
        for package in ("libc-ares2", "libevent-2.1-7"):
            _unpack(package, "./usr/lib")


def promtool() -> str | None:
    """The path of Prometheus' checker, if this machine or this environment has it."""
    return shutil.which("promtool") or shutil.which("promtool", path=str(_UNPACKED / "usr" / "bin"))


def pgbouncer() -> Path:
    """Where pgbouncer is, if it was unpacked; it runs with `pgbouncer_libraries`."""
    return _UNPACKED / "usr" / "sbin" / "pgbouncer"


def pgbouncer_libraries() -> Path:
    return next((_UNPACKED / "usr" / "lib").glob("*-linux-gnu"), _UNPACKED)


def _install(package: str) -> None:
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", package]
    if not _ran(install):
        _ran(["apt-get", "update", "-q"])
        _ran(install)


def _unpack(package: str, member: str) -> None:
    """Take a file or a folder out of a package. Downloading a package needs no root."""
    _UNPACKED.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_UNPACKED) as folder:
        _download(package, folder)
        for archive in Path(folder).glob(f"{package}_*.deb"):
            extract = f'dpkg-deb --fsys-tarfile "$1" | tar -x -C "{folder}" {member}'
            _ran(["sh", "-c", extract, "sh", str(archive)])
        found = Path(folder) / member
        if found.is_dir():
            shutil.copytree(found, _UNPACKED / member, symlinks=True, dirs_exist_ok=True)
        elif found.exists():
            (_UNPACKED / member).parent.mkdir(parents=True, exist_ok=True)
            found.replace(_UNPACKED / member)


def _download(package: str, folder: str) -> None:
    """Download a package into the folder; if the machine's lists do not contain it, fetch own lists first."""
    if _ran([*_APT, "download", package], cwd=folder):
        return
    (Path(folder) / "lists" / "partial").mkdir(parents=True)
    private = [*_APT, "-o", f"Dir::State::Lists={folder}/lists", "-o", f"Dir::Cache={folder}"]
    _ran([*private, "update"], cwd=folder)
    _ran([*private, "download", package], cwd=folder)


def _ran(command: list[str], *, cwd: str | None = None) -> bool:
    return subprocess.run(command, cwd=cwd, stdout=subprocess.DEVNULL).returncode == 0
