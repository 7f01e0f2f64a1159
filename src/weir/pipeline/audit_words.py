"""Says what an audit found, in words for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from weir.model.wording import amount
from weir.pipeline.drift_audit import AuditReport
from weir.warehouse.drift_words import drift_in_words
from weir.warehouse.reading.audits import PastAudit

_SHOWN = 10


def shown_audit(report: AuditReport) -> str:
    """An audit as text."""
    lines = [_headline(report)]
    lines += [f"  {_subject(row)}: {_words(row)}" for row in report.drifting[:_SHOWN]]
    if len(report.drifting) > _SHOWN:
        lines.append(f"  and {len(report.drifting) - _SHOWN} more; `--json` lists them")
    losses = {name: count for name, count in report.lost.items() if count}
    lines.append(f"lost in {len(report.gaps)} recorded gaps: {losses or 'nothing'}")
    return "\n".join(lines)


def shown_history(audits: Sequence[PastAudit]) -> str:
    """The history as text, a line per audit."""
    if not audits:
        return "there was no audit yet"
    return "\n".join(_past(audit) for audit in audits)


def _past(audit: PastAudit) -> str:
    moment = datetime.fromtimestamp(audit.started_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    if audit.drift is None:
        return f"{moment}  incomplete: {audit.reason}"
    return (
        f"{moment}  drift {audit.drift:,} over {amount(audit.queues or 0, 'queue')} and "
        f"{amount(audit.events or 0, 'event')}; "
        f"took {(audit.took_ms or 0) / 1_000:.1f} s, held {(audit.held_ms or 0) / 1_000:.2f} s"
    )


def _headline(report: AuditReport) -> str:
    if report.drift is None:
        return f"the audit is incomplete, so the drift is not known: {report.reason}"
    return (
        f"drift {report.drift} over {amount(report.queues or 0, 'queue')}, "
        f"{amount(report.events or 0, 'event')} and {report.lives} lives; "
        f"the pipeline was held for {report.held_ms / 1_000:.2f} s"
    )


def _subject(row: Mapping[str, Any]) -> str:
    names = [row["organization"], row["project"], row["environment"], row["queue"]]
    return "/".join(name for name in names if name is not None)


def _words(row: Mapping[str, Any]) -> str:
    return drift_in_words(row["counters"], tier_drift=row["tier_drift"], live_drift=row["live_drift"])
