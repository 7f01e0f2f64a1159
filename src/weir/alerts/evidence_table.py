"""The evidence of a verdict as a small table: each figure, its value now and its usual value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from weir.model.durations import MINUTE_MS, SECOND_MS
from weir.model.wording import amount, duration, duration_beside, rate, share
from weir.warehouse.reading.arithmetic import per_second


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRow:
    what: str
    now: str
    usual: str | None = None
    """None if it is not known, or if the figure has no usual value."""


Figures = Mapping[str, Any]
"""The figures of a finding, by name; alerts of earlier releases have fewer."""


def evidence_table(figures: Figures) -> list[EvidenceRow]:
    """The rows of all figures."""
    return [row for rows in _ROWS for row in rows(figures)]


def _waiting(figures: Figures) -> Iterator[EvidenceRow]:
    if "depth" in figures:
        delayed = figures.get("delayed")
        later = f", {delayed:,} of them not due yet" if delayed else ""
        yield EvidenceRow(what="waiting", now=f"{amount(figures['depth'], 'message')}{later}")
    if figures.get("oldest_age_ms"):
        yield EvidenceRow(what="the oldest has waited", now=duration(figures["oldest_age_ms"]))


def _limits(figures: Figures) -> Iterator[EvidenceRow]:
    running, limit = figures.get("running"), figures.get("limit")
    handling = figures.get("handling")
    inside = f", {handling:,} of them in a handler" if running and handling is not None else ""
    if running:
        yield EvidenceRow(what="with consumers", now=f"{running:,}{inside}")
    if limit is not None:
        share_used = figures.get("utilization_pct")
        used = "" if share_used is None else f", {share_used:.0f} % of it in use"
        owner = figures.get("limit_of", "queue")
        yield EvidenceRow(what=f"concurrency limit of the {owner}", now=f"{limit:,}{used}")


def _workers(figures: Figures) -> Iterator[EvidenceRow]:
    if "workers" in figures:
        free = f"{figures.get('free_slots', 0):,} of {amount(figures.get('slots', 0), 'slot')} free"
        alive = f"{amount(figures['workers'], 'worker')} alive"
        yield EvidenceRow(what="workers", now=f"{alive}, {free}" if figures["workers"] else "none alive")


def _flow(name: str, what: str) -> Callable[[Figures], Iterator[EvidenceRow]]:
    """A count over the span of now beside the same count over the usual span, both as rates.

    There is no row if the count is 0 now and usually. A count of None is not known.
    """

    def rows(figures: Figures) -> Iterator[EvidenceRow]:
        is_unknown = name in figures and figures[name] is None
        now_per_s = _rate_of(figures.get(name), figures.get("span_ms"))
        usual_per_s = _rate_of(figures.get(f"usual_{name}"), figures.get("usual_span_ms"))
        if is_unknown or now_per_s or (now_per_s == 0 and usual_per_s):
            # One unit for both, so that they can be compared at a glance.
            by_minute = max(now_per_s or 0, usual_per_s or 0) < 1
            yield EvidenceRow(
                what=what,
                now="not known" if now_per_s is None else _pace(now_per_s, by_minute=by_minute),
                usual=None if usual_per_s is None else _pace(usual_per_s, by_minute=by_minute),
            )

    return rows


def _rate_of(count: int | None, span_ms: int | None) -> float | None:
    return per_second(count, span_ms) if count is not None and span_ms else None


def _pace(per_s: float, *, by_minute: bool) -> str:
    """A rate per second, or per minute if it is low."""
    if per_s == 0:
        return "none"
    return f"{rate(per_s * MINUTE_MS / SECOND_MS).removesuffix('/s')}/min" if by_minute else rate(per_s)


def _failures(figures: Figures) -> Iterator[EvidenceRow]:
    if figures.get("error_rate") is not None:
        usual = figures.get("usual_error_rate")
        yield EvidenceRow(
            what="attempts that fail",
            now=share(figures["error_rate"]),
            usual=None if usual is None else share(usual),
        )
    elif figures.get("failed"):
        yield from _flow("failed", "attempts that fail")(figures)
    if figures.get("lapsed"):
        yield from _flow("lapsed", "leases that lapse")(figures)


def _time(name: str, what: str) -> Callable[[Figures], Iterator[EvidenceRow]]:
    def rows(figures: Figures) -> Iterator[EvidenceRow]:
        now_ms, usual_ms = figures.get(f"{name}_ms"), figures.get(f"usual_{name}_ms")
        if now_ms is not None:
            usual = None if usual_ms is None else duration_beside(usual_ms, now_ms)
            yield EvidenceRow(what=what, now=duration(now_ms), usual=usual)

    return rows


def _telemetry(figures: Figures) -> Iterator[EvidenceRow]:
    if figures.get("telemetry_lag_ms") is not None:
        yield EvidenceRow(what="telemetry is behind", now=duration(figures["telemetry_lag_ms"]))


def _errors(figures: Figures) -> Iterator[EvidenceRow]:
    for one in figures.get("errors", ()):
        # Alerts of earlier releases counted deaths.
        times = amount(one["deaths"], "death") if "deaths" in one else amount(one["count"], "attempt")
        yield EvidenceRow(what=one["error"], now=times)


_ROWS = (
    _waiting,
    _time("handler", "a handler takes"),
    _time("held", "a consumer holds a message for"),
    _failures,
    _flow("enqueued", "arrive"),
    _flow("acked", "are done"),
    _limits,
    _workers,
    _telemetry,
    _errors,
)
