"""Audits in tests, on a machine that may be busy."""

from __future__ import annotations

from weir.pipeline.drift_audit import AuditReport, Live, PipelineAuditor

_TRIES = 20


def audited(auditor: PipelineAuditor, live: Live | None = None) -> AuditReport:
    """An audit that was not given up.

    An audit holds the pipeline for less than a second. If a busy machine needs longer to copy the tables, the
    audit is given up, and here it is tried again.
    """
    for _ in range(_TRIES):
        report = auditor.audit(live or {}, wait_s=1)
        if "copying the tables" not in report.reason:
            break
    return report
