"""The processor time of a bench's servers and pipelines."""

from __future__ import annotations

import psutil


def processor_s() -> float:
    """The processor time so far of all processes that this one started: the pipeline and the servers."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            spent = process.cpu_times()
        except psutil.Error:
            continue
        total += spent.user + spent.system
    return total
