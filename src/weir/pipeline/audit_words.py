"""Says what an audit found, in words for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weir.pipeline.drift_audit import AuditReport

_SHOWN = 10


def shown_audit(report: AuditReport) -> str:
    """An audit as text."""
    lines = [_headline(report)]
    lines += [
        f"  {_subject(row)}: {row['drift']} ({', '.join(_parts(row))})" for row in report.drifting[:_SHOWN]
    ]
    if len(report.drifting) > _SHOWN:
        lines.append(f"  and {len(report.drifting) - _SHOWN} more; `--json` lists them")
    losses = {name: count for name, count in report.lost.items() if count}
    lines.append(f"lost in {len(report.gaps)} recorded gaps: {losses or 'nothing'}")
    return "\n".join(lines)


def _headline(report: AuditReport) -> str:
    if report.drift is None:
        return f"the audit is incomplete, so the drift is not known: {report.reason}"
    return (
        f"drift {report.drift} over {report.queues} queues and {report.events} events; "
        f"the pipeline was held for {report.held_ms / 1_000:.2f} s"
    )


def _subject(row: Mapping[str, Any]) -> str:
    names = [row["organization"], row["project"], row["environment"], row["queue"]]
    return "/".join(name for name in names if name is not None)


def _parts(row: Mapping[str, Any]) -> list[str]:
    parts = [
        f"{abs(count)} {name} {'lost' if count > 0 else 'counted twice'}"
        for name, count in row["counters"].items()
    ]
    if row["tier_drift"]:
        parts.append(f"tiers differ by {row['tier_drift']}")
    if row["live_drift"]:
        parts.append(f"{row['live_drift']} never arrived")
    return parts
