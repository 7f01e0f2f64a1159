"""Small disks for tests that fill one up: a mount that only one command and its children see."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


def on_a_small_disk(folder: Path, *, size: str) -> list[str]:
    """The words before a command that let it see a small disk at `folder`; empty if that is impossible."""
    mount = f'mount -t tmpfs -o size={size},mode=755 tmpfs "$1" && shift && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", mount, "sh", str(folder)]
    if os.geteuid() != 0:
        # Root of a new namespace may mount. Inside it the command becomes an ordinary user again.
        command[1:1] = ["--user", "--map-root-user"]
        command += ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
    possible = (
        shutil.which("unshare") and not subprocess.run([*command, "true"], capture_output=True).returncode
    )
    return command if possible else []


def as_seen_by(pid: int, folder: Path) -> Path:
    """The path of `folder` as a process sees it, also if only that process sees the disk there."""
    return Path(f"/proc/{pid}/root") / folder.relative_to("/")
