"""Runs first in every child process: changes its account, ties it to its parent, and becomes the server.

Started as `python -I -S child_guard.py JSON`. It imports nothing of Weir, so it costs about 15 ms. Code
between fork and exec would do the same, but is not safe in a parent with threads (0001).
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
from typing import Any

# Numbers from Linux' prctl.h, securebits.h and capability.h: Python does not name them.
_PR_SET_PDEATHSIG = 1
_PR_SET_SECUREBITS = 28
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_NO_SETUID_FIXUP = 1 << 2
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_DAC_OVERRIDE = 1
_CAP_DAC_READ_SEARCH = 2


def become(account: dict[str, Any], libc: ctypes.CDLL) -> None:
    """Give up root for good; with `search`, keep only the right to pass through closed folders."""
    os.setgroups(account["groups"])
    os.setgid(account["gid"])
    if not account["search"]:
        os.setuid(account["uid"])
        return
    # Otherwise access(2), which PostgreSQL calls first, ignores the capability that this process keeps.
    libc.prctl(_PR_SET_SECUREBITS, _NO_SETUID_FIXUP, 0, 0, 0)
    os.setuid(account["uid"])
    for capability in (_CAP_DAC_READ_SEARCH, _CAP_DAC_OVERRIDE):
        if _keep(capability, libc):
            return
    sys.exit(
        f"cannot reach the data directory as uid {account['uid']}; choose a folder that others may enter"
    )


def _keep(capability: int, libc: ctypes.CDLL) -> bool:
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    bit = 1 << capability
    data = struct.pack("6I", bit, bit, bit, 0, 0, 0)
    if libc.capset(header, data) != 0:
        return False
    return bool(libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, capability, 0, 0) == 0)


def main() -> None:
    plan = json.loads(sys.argv[1])
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if plan["account"]:
            become(plan["account"], libc)
        # A change of account clears the death signal, so it is set after it.
        libc.prctl(_PR_SET_PDEATHSIG, plan["death_signal"], 0, 0, 0)
        # The parent may have died before the signal was set; then nobody would ever send it.
        if os.getppid() != plan["parent"]:
            sys.exit("the parent process is gone")
    if plan["umask"] is not None:
        os.umask(plan["umask"])
    os.execv(plan["argv"][0], plan["argv"])


if __name__ == "__main__":
    main()
