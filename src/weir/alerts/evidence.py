"""The figures behind a verdict, and the lines for people. Notifications, commands and pages share them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from weir.alerts.situation import Flow, Situation
from weir.model.wording import amount, duration, number, rate, share

SAMPLE_CHARACTERS = 500
MAX_ERRORS = 3
RATES_NOT_KNOWN = "how fast messages arrive and leave is not known"
"""The words of every text that has no rates, because telemetry has not landed."""


def figures_of(situation: Situation, flow: Flow | None = None, **besides: Any) -> dict[str, Any]:
    """The figures of every finding: the queue now, its counts over a span, and its workers."""
    return {
        "depth": situation.depth,
        "delayed": situation.delayed,
        "running": situation.running,
        **_workforce(situation),
        "oldest_age_ms": situation.oldest_age_ms,
        **_counts(situation.now if flow is None else flow, known=situation.counted),
        **_usual(situation),
        **besides,
    }


def _counts(flow: Flow, *, known: bool) -> dict[str, Any]:
    """The counts over a span; None stands for a count that is not known."""
    counts = {
        "span_ms": flow.span_ms,
        "enqueued": flow.count("enqueued"),
        "dequeued": flow.count("dequeued"),
        "acked": flow.count("acked"),
        "failed": flow.failed,
        "lapsed": flow.count("lapsed"),
    }
    return counts if known else dict.fromkeys(counts)


def _usual(situation: Situation) -> dict[str, Any]:
    """The same counts over the span before the recent past; empty if there is no telemetry of it."""
    before = situation.before
    if before is None or not before.span_ms:
        return {}
    counts = {f"usual_{name}": before.count(name) for name in ("enqueued", "dequeued", "acked", "lapsed")}
    return {
        "usual_span_ms": before.span_ms,
        **counts,
        "usual_failed": before.failed,
        "usual_error_rate": before.error_rate,
    }


def _workforce(situation: Situation) -> dict[str, Any]:
    """The figures of the queue's workers; empty for a queue that workers do not serve."""
    force = situation.workforce
    if force is None or not (situation.has_work or force.held):
        return {}
    return {
        "handling": force.handling,
        "workers": force.workers,
        "slots": force.slots,
        "free_slots": force.free_slots,
    }


def errors_of(situation: Situation) -> list[dict[str, Any]]:
    return [
        {"error": one.sample[:SAMPLE_CHARACTERS], "count": one.count} for one in situation.errors[:MAX_ERRORS]
    ]


_Line = Callable[[Any, str], str]
_LINES: Mapping[str, _Line] = {
    "depth": lambda value, _: f"{amount(value, 'message')} wait" + ("s" if value == 1 else ""),
    "delayed": lambda value, _: f"{value:,} of them wait for their time or a retry",
    "running": lambda value, _: f"{value:,} with consumers",
    "handling": lambda value, _: f"{value:,} in a handler",
    "workers": lambda value, _: f"{amount(value, 'worker')} alive for this queue",
    "slots": lambda value, _: f"{amount(value, 'slot')} in all",
    "free_slots": lambda value, _: f"{amount(value, 'slot')} free",
    "oldest_age_ms": lambda value, _: f"the oldest has waited {duration(value)}",
    "enqueued": lambda value, span: f"{value:,} arrived{span}",
    "dequeued": lambda value, span: f"{value:,} handed out{span}",
    "acked": lambda value, span: f"{value:,} done{span}",
    "failed": lambda value, span: f"{amount(value, 'attempt')} failed{span}",
    "lapsed": lambda value, span: f"{amount(value, 'lease')} lapsed{span}",
    "error_rate": lambda value, _: f"{share(value)} of the attempts failed",
    "handler_ms": lambda value, _: f"a handler takes {duration(value)}",
    "usual_handler_ms": lambda value, _: f"a handler usually takes {duration(value)}",
    "held_ms": lambda value, _: f"a consumer holds a message for {duration(value)}",
    "usual_held_ms": lambda value, _: f"a consumer usually holds a message for {duration(value)}",
    "arriving_per_s": lambda value, _: f"{rate(value, 'message')} arrive",
    "leaving_per_s": lambda value, _: f"{rate(value, 'message')} leave",
    "usual_per_s": lambda value, _: f"{rate(value, 'message')} usually arrive",
    "telemetry_lag_ms": lambda value, _: f"telemetry is {duration(value)} behind",
    "utilization_pct": lambda value, _: f"{value:.0f} % of the limit in use",
    "limit": lambda value, _: f"the concurrency limit is {value:,}",
    "limit_of": lambda value, _: f"it is the limit of the {value}",
}
# These get no line: they belong beside the figure of now, and only the evidence table shows both.
_LEFT_OUT = frozenset(
    {
        "span_ms",
        "usual_span_ms",
        "usual_enqueued",
        "usual_dequeued",
        "usual_acked",
        "usual_lapsed",
        "usual_failed",
        "usual_error_rate",
    }
)


def evidence_lines(evidence: Mapping[str, Any]) -> list[str]:
    """The evidence for people: one short line per figure."""
    span = f" in the last {duration(evidence['span_ms'])}" if evidence.get("span_ms") else ""
    lines = []
    for name, value in evidence.items():
        if name == "errors":
            lines += [_error_line(one) for one in value]
        elif name == "enqueued" and value is None:
            lines.append(RATES_NOT_KNOWN)
        elif value is not None and name not in _LEFT_OUT:
            lines.append(_LINES[name](value, span) if name in _LINES else _plain_line(name, value))
    return lines


def _error_line(one: Mapping[str, Any]) -> str:
    """One kind of error and how often it came. Stored alerts of earlier versions counted deaths instead."""
    if "deaths" in one:
        return f"{one['deaths']:,} died of: {one['error']}"
    return f"{amount(one['count'], 'attempt')} failed with: {one['error']}"


def _plain_line(name: str, value: Any) -> str:
    text = number(value) if isinstance(value, float) else str(value)
    return f"{name.replace('_', ' ')}: {text}"
