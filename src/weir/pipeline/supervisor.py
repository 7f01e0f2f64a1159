"""Keeps the query running: restarts it with back-off, pauses after repeated failures, resumes by itself.

Nothing here touches the queues. While no query runs, the streams buffer the events.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import structlog

from weir.errors import WeirError
from weir.model.backoff import Backoff
from weir.pipeline.pipeline_metrics import PipelineMetrics

_log = structlog.get_logger(__name__)

POLL_S = 0.5


class StreamingQuery(Protocol):
    """The part of a streaming query that the supervisor uses."""

    def awaitTermination(self, timeout: float) -> bool | None:  # noqa: N802
        """Wait for the end of the query, and raise the error that ended it."""

    def stop(self) -> None: ...


_BACKOFF = Backoff(first_s=1.0, longest_s=30.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait between attempts, and after how many failures in a row to pause."""

    backoff: Backoff = _BACKOFF
    failures_to_pause: int = 3


class QuerySupervisor:
    """Runs queries until it is asked to stop, or until a query ends by itself.

    Failures count until a batch has landed: a query that runs for long and lands nothing is not well. Until
    then the status goes on to name the last error.
    """

    def __init__(
        self,
        start: Callable[[], StreamingQuery],
        *,
        stores_answer: Callable[[], bool],
        metrics: PipelineMetrics,
        publish: Callable[[], None],
        patience: Patience | None = None,
    ) -> None:
        self._start = start
        self._stores_answer = stores_answer
        self._metrics = metrics
        self._publish = publish
        self._patience = patience or Patience()
        self._stopping = threading.Event()
        self._failures = 0
        self._error = ""

    def stop(self) -> None:
        """Ask `run` to return; safe from a signal handler or another thread."""
        self._stopping.set()

    def note_landed(self) -> None:
        """Note that a batch has landed: failures before it no longer count."""
        self._failures, self._error = 0, ""
        self._metrics.clear_error()

    def run(self) -> bool:
        """Keep a query running; True if one ended by itself, so that its last batch is durable."""
        while not self._stopping.is_set():
            self._enter("starting", error=self._error)
            try:
                if self._run_query():
                    break
            except Exception as error:
                # Whatever ended the query, the reaction is the same: log it, wait, try again.
                self._failures += 1
                self._metrics.count_failure()
                self._wait_after(error)
        self._enter("stopped")
        return not self._stopping.is_set()

    def _run_query(self) -> bool:
        """Run one query to its end; True if it ended without an error."""
        query = self._start()
        self._enter("running", error=self._error)
        try:
            while not self._stopping.is_set():
                if query.awaitTermination(POLL_S):
                    return True
                self._tell()
            return True
        finally:
            with suppress(Exception):
                query.stop()

    def _wait_after(self, error: Exception) -> None:
        self._error = reason = _reason(error)
        paused = self._failures >= self._patience.failures_to_pause
        _log.error("the pipeline's query ended", failures=self._failures, paused=paused, error=reason)
        self._enter("paused" if paused else "retrying", error=reason)
        delay_s = self._patience.backoff.pause_s(self._failures)
        self._sleep(delay_s)
        # After repeated failures, only start again once both stores answer.
        while paused and not self._stopping.is_set() and not self._stores_answer():
            self._sleep(min(delay_s, 5))

    def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._stopping.wait(min(POLL_S, seconds)):
            self._tell()

    def _enter(self, state: str, *, error: str = "") -> None:
        self._metrics.enter(state, error=error)
        _log.info("pipeline", state=state)
        self._tell()

    def _tell(self) -> None:
        with suppress(WeirError):
            self._publish()


def _reason(error: Exception) -> str:
    """The first line of an error that comes from Weir, or else its first line, without Spark's stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("weir.errors.")]
    return (ours or lines or [type(error).__name__])[0][:500]
