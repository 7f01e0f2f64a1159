"""Kills, freezes and thaws processes, and finds the processes that are left."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil


def kill9(pid: int) -> None:
    """End a process as a crash would."""
    os.kill(pid, signal.SIGKILL)


def stop(pid: int) -> None:
    """Freeze a process: it keeps its sockets and answers nothing."""
    os.kill(pid, signal.SIGSTOP)


def cont(pid: int) -> None:
    """Let a frozen process go on."""
    os.kill(pid, signal.SIGCONT)


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Keep a process frozen inside the block."""
    stop(pid)
    try:
        yield
    finally:
        cont(pid)


@contextmanager
def frozen_tree(pid: int) -> Iterator[None]:
    """Keep a process and everything below it frozen inside the block, as a server that hangs."""
    stop(pid)
    # Only now: a frozen process starts no more children.
    below = [process.pid for process in descendants(pid)]
    _signal_all(below, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal_all(below, signal.SIGCONT)
        cont(pid)


def _signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def descendants(pid: int) -> list[psutil.Process]:
    """Every live process below `pid`."""
    try:
        return [child for child in psutil.Process(pid).children(recursive=True) if is_alive(child.pid)]
    except psutil.NoSuchProcess:
        return []


@contextmanager
def killed_whole(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kill the process and everything below it when the block is left."""
    try:
        yield
    finally:
        below = descendants(process.pid)
        process.kill()
        process.wait()
        for one in below:
            if one.is_running():
                one.kill()


def processes_using(text: str) -> list[psutil.Process]:
    """Every live process with `text` in its command line or its working directory."""
    found = []
    for process in psutil.process_iter():
        try:
            words = [*process.cmdline(), process.cwd()]
        except psutil.Error:
            continue
        if process.pid != os.getpid() and any(text in word for word in words):
            found.append(process)
    return found


def is_alive(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
