"""Worker processes for live tests: `weir worker` without its command line, forked from a server.

Ten processes that import Weir on their own take a minute on a busy machine with two cores.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path

from weir.cli.running import run_until_done
from weir.cli.worker import work
from weir.model.names import QueueRef
from weir.settings import Settings, WorkerSettings
from weir.stores.urls import resolve_urls
from weir.workers.worker import WorkerOptions

_CONTEXT = multiprocessing.get_context("forkserver")
# Not this module: the server does not know where tests are.
_CONTEXT.set_forkserver_preload(["weir.cli.worker"])


def start_worker(queue: QueueRef, *, slots: int, environ: Mapping[str, str], log: Path) -> BaseProcess:
    """A worker of one queue in a process of its own."""
    process = _CONTEXT.Process(target=_run, args=(queue, slots, dict(environ), log), daemon=True)
    process.start()
    return process


def _run(queue: QueueRef, slots: int, environ: dict[str, str], log: Path) -> None:
    os.environ.update(environ)
    with log.open("wb", buffering=0) as output:
        os.dup2(output.fileno(), sys.stdout.fileno())
        os.dup2(output.fileno(), sys.stderr.fileno())
    settings = Settings(worker=WorkerSettings(app="alerts.live_app:app"))
    options = WorkerOptions(
        name=f"{queue.queue}:{os.getpid()}",
        concurrency=slots,
        prefetch=2,
        environment=queue.scope,
        queues=frozenset({queue.queue}),
    )
    run_until_done(work(settings, resolve_urls(settings), options), fast=True)
