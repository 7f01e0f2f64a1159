"""How many files and sockets this process may have open."""

from __future__ import annotations

import resource

MAX_FILES = 65_536
"""Enough for all long polls, streams and requests that the settings allow; more would only cost memory."""


def raise_file_limit() -> int:
    """Allow as many file descriptors as the system permits, up to `MAX_FILES`; returns how many these are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return MAX_FILES if soft == resource.RLIM_INFINITY else soft
