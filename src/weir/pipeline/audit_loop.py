"""Audits beside a running pipeline: at the start, every few minutes, and soon after a gap.

A round that fails is noted as incomplete and repeated; it never counts as a drift of 0.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from weir.errors import Conflict, WeirError
from weir.pipeline.drift_audit import AuditReport
from weir.pipeline.pipeline_metrics import PipelineMetrics

_log = structlog.get_logger(__name__)

RunAudit = Callable[[float], AuditReport]
"""Runs an audit, which waits at most so many seconds until everything has landed."""

WAIT_S = 30.0
# At the start the pipeline may have to catch up first.
FIRST_WAIT_S = 300.0
# An incomplete audit is repeated earlier, but a pipeline that is behind for hours is not asked all the time.
RETRY_S = 60.0
# Audits read whole tables. A pipeline that meets gap after gap must not do that all the time.
SHORTEST_S = 10.0


class AuditLoop:
    """Runs audits in a thread of its own; two pipelines take turns by the lease of the audit."""

    def __init__(self, run_audit: RunAudit, metrics: PipelineMetrics, *, period_s: float) -> None:
        self._run_audit = run_audit
        self._metrics = metrics
        self._period_s = period_s
        self._wanted = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._wanted.set()

    def audit_soon(self) -> None:
        """Ask for an audit at once. The longer a gap is not settled, the more other drift it can hide."""
        self._wanted.set()

    def _run(self) -> None:
        wait_s = FIRST_WAIT_S
        while not self._ended.is_set():
            began = time.monotonic()
            self._wanted.clear()
            pause_s = self._period_s if self._audit(wait_s) else min(RETRY_S, self._period_s)
            self._sleep_until(began + min(SHORTEST_S, self._period_s), woken=False)
            self._sleep_until(began + pause_s, woken=True)
            wait_s = WAIT_S

    def _sleep_until(self, moment: float, *, woken: bool) -> None:
        """Sleep; with `woken`, only until an audit is asked for."""
        event = self._wanted if woken else self._ended
        event.wait(max(moment - time.monotonic(), 0))

    def _audit(self, wait_s: float) -> bool:
        """Run one round; False if it should be repeated early."""
        try:
            report = self._run_audit(wait_s)
        except Conflict:
            # Another process is at work, and its result is in the history.
            return True
        except WeirError as error:
            self._metrics.note_incomplete_audit()
            _log.warning("the audit could not finish", error=str(error))
            return False
        if report.drift is None:
            self._metrics.note_incomplete_audit()
            _log.warning("the audit could not finish", error=report.reason)
            return False
        self._metrics.note_audit(drift=report.drift, started_ms=report.started_ms)
        if report.drift:
            _log.error("metrics drifted", drift=report.drift, worst=report.drifting[:3])
        return True
