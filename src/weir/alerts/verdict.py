"""Why a queue is backed up: a pure function from the figures around a moment to a cause with evidence.

Several causes may hold at once. The first in the order below is the cause, the others are named as well:
what explains the rest comes before what follows from it. A paused queue has no throughput, a refusing
downstream makes every limit look reached, and slow handlers reach a limit that was wide enough yesterday.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from weir.warehouse.reading.arithmetic import error_rate, mean, per_second, utilization_pct
from weir.warehouse.reading.freshness import STALE_AFTER_MS

NEVER_MS = 10 * 366 * 24 * 3_600_000
SPIKE = 2.0
"""Arrivals this many times the usual are a spike."""
SLOWER = 2.0
"""Handlers this many times slower than usual are slow."""
BRIEF_MS = 100.0
"""Attempts that usually take less than this are called slow only beyond twice this."""
REFUSING = 0.5
"""Above this share of failed attempts it is not single messages any more."""
POISONED = 0.05


class Cause(StrEnum):
    PAUSED = "paused"
    TELEMETRY_STALE = "telemetry_stale"
    DOWNSTREAM_REFUSING = "downstream_refusing"
    POISON_MESSAGES = "poison_messages"
    NO_WORKERS = "no_workers"
    SLOW_HANDLERS = "slow_handlers"
    ARRIVAL_SPIKE = "arrival_spike"
    LIMIT_REACHED = "limit_reached"
    HEALTHY = "healthy"
    """Nothing waits, or what waits is being worked off."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """What a queue did over a span."""

    span_ms: int
    counts: Mapping[str, int] = field(default_factory=dict)
    running_mean: float = 0.0
    running_max: int = 0
    wait_mean_ms: float | None = None

    def count(self, name: str) -> int:
        return self.counts.get(name, 0)

    def rate(self, name: str) -> float:
        return per_second(self.count(name), self.span_ms)

    @property
    def finished(self) -> int:
        """Attempts that came to an end."""
        return sum(self.count(name) for name in ("acked", "nacked", "dead", "lapsed"))

    @property
    def error_rate(self) -> float | None:
        return error_rate(
            acked=self.count("acked"),
            nacked=self.count("nacked"),
            dead=self.count("dead"),
            lapsed=self.count("lapsed"),
        )

    @property
    def handler_ms(self) -> float | None:
        """How long an attempt runs, by Little's law: those running, over those finishing a second."""
        return mean(self.running_mean * self.span_ms, self.finished)


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """A kind of error that messages of the queue died of, lately."""

    sample: str
    deaths: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Everything that is known about one queue at one moment."""

    depth: int
    delayed: int = 0
    running: int = 0
    limit: int | None = None
    environment_running: int = 0
    environment_limit: int | None = None
    paused: bool = False
    oldest_age_ms: int = 0
    recent: Flow = field(default_factory=lambda: Flow(span_ms=0))
    before: Flow | None = None
    """The usual: a longer span right before `recent`; None if nothing is known of it."""
    errors: tuple[Errors, ...] = ()
    delivers_to: str | None = None
    """The endpoint that the queue's messages are pushed to, if they are."""
    telemetry_lag_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    cause: Cause
    summary: str
    evidence: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    cause: Cause
    summary: str
    evidence: Mapping[str, Any]
    also: tuple[Finding, ...] = ()

    def document(self) -> dict[str, Any]:
        return {
            "cause": self.cause.value,
            "summary": self.summary,
            "evidence": dict(self.evidence),
            "also": [
                {"cause": one.cause.value, "summary": one.summary, "evidence": dict(one.evidence)}
                for one in self.also
            ],
        }


def explain(situation: Situation) -> Verdict:
    """The cause, with what shows it, and what else holds."""
    findings = [finding for look in _LOOKS for finding in look(situation)]
    if findings:
        first, *others = findings
        return Verdict(cause=first.cause, summary=first.summary, evidence=first.evidence, also=tuple(others))
    return _without_findings(situation)


def _without_findings(situation: Situation) -> Verdict:
    evidence = _figures(situation)
    ready = situation.depth - situation.delayed
    if ready <= 0 or situation.recent.count("dequeued") > 0:
        text = f"{ready} messages are ready and {situation.running} run; nothing holds them up"
        return Verdict(cause=Cause.HEALTHY, summary=text, evidence=evidence)
    text = f"{ready} messages are ready and none was handed out; the figures do not say why"
    return Verdict(cause=Cause.UNKNOWN, summary=text, evidence=evidence)


def _paused(situation: Situation) -> Iterator[Finding]:
    if situation.paused:
        text = f"the queue is paused; {situation.depth} messages wait for `resume`"
        yield Finding(cause=Cause.PAUSED, summary=text, evidence=_figures(situation))


def _stale(situation: Situation) -> Iterator[Finding]:
    lag_ms = situation.telemetry_lag_ms
    if lag_ms > STALE_AFTER_MS:
        if lag_ms > NEVER_MS:
            text = "no telemetry has arrived yet; what the queue does is not known"
            yield Finding(cause=Cause.TELEMETRY_STALE, summary=text, evidence={})
            return
        text = f"telemetry is {lag_ms // 1000:,} s behind; what the queue did since then is not known"
        yield Finding(cause=Cause.TELEMETRY_STALE, summary=text, evidence={"telemetry_lag_ms": lag_ms})


def _failing(situation: Situation) -> Iterator[Finding]:
    """Refused by what is behind the handlers, or by some messages themselves."""
    recent, rate = situation.recent, situation.recent.error_rate
    if rate is None or rate < POISONED:
        return
    refusals = [error for error in situation.errors if looks_refused(error.sample)]
    deaths = sum(error.deaths for error in situation.errors)
    mostly = deaths > 0 and 2 * sum(error.deaths for error in refusals) >= deaths
    unnamed = deaths == 0 and situation.delivers_to is not None
    evidence = {
        **_figures(situation),
        "error_rate": rate,
        "errors": [{"error": error.sample[:500], "deaths": error.deaths} for error in situation.errors[:3]],
    }
    if rate >= REFUSING and (mostly or unnamed):
        target = f" `{situation.delivers_to}`" if situation.delivers_to else ""
        text = f"{rate:.0%} of attempts fail because the downstream{target} refuses or does not answer"
        yield Finding(cause=Cause.DOWNSTREAM_REFUSING, summary=text, evidence=evidence)
        return
    lapsed = f", {recent.count('lapsed')} leases lapsed" if recent.count("lapsed") else ""
    text = (
        f"{rate:.0%} of attempts fail while {recent.count('acked')} messages went through"
        f"{lapsed}; {recent.count('dead')} died"
    )
    yield Finding(cause=Cause.POISON_MESSAGES, summary=text, evidence=evidence)


def _no_workers(situation: Situation) -> Iterator[Finding]:
    idle = situation.running == 0 and situation.recent.count("dequeued") == 0
    full = bool(situation.environment_limit) and (
        situation.environment_running >= (situation.environment_limit or 0)
    )
    if situation.depth > situation.delayed and idle and not situation.paused and not full:
        text = f"{situation.depth} messages wait and nobody asks for them; no worker takes from this queue"
        yield Finding(cause=Cause.NO_WORKERS, summary=text, evidence=_figures(situation))


def _slow(situation: Situation) -> Iterator[Finding]:
    usual_ms = None if situation.before is None else situation.before.handler_ms
    now_ms = situation.recent.handler_ms
    if now_ms is None and situation.running > 0 and usual_ms is not None:
        # Nothing finished at all: whatever runs has run for the whole span.
        now_ms = float(situation.recent.span_ms)
    if usual_ms is None or now_ms is None or now_ms < SLOWER * max(usual_ms, BRIEF_MS):
        return
    text = f"an attempt takes {now_ms:,.0f} ms and usually {usual_ms:,.0f} ms"
    evidence = {**_figures(situation), "handler_ms": now_ms, "usual_handler_ms": usual_ms}
    yield Finding(cause=Cause.SLOW_HANDLERS, summary=text, evidence=evidence)


def _spike(situation: Situation) -> Iterator[Finding]:
    usual = 0.0 if situation.before is None else situation.before.rate("enqueued")
    arriving = situation.recent.rate("enqueued")
    outrun = situation.recent.count("enqueued") > situation.recent.count("acked")
    if usual > 0 and arriving >= SPIKE * usual and outrun:
        text = f"{arriving:,.1f} messages/s arrive, {arriving / usual:.1f} times the usual {usual:,.1f}"
        evidence = {**_figures(situation), "arriving_per_s": arriving, "usual_per_s": usual}
        yield Finding(cause=Cause.ARRIVAL_SPIKE, summary=text, evidence=evidence)


def _limited(situation: Situation) -> Iterator[Finding]:
    waiting = situation.depth > situation.delayed
    for limit, running, what in (
        (situation.limit, max(situation.running, situation.recent.running_max), "queue"),
        (situation.environment_limit, situation.environment_running, "environment"),
    ):
        if waiting and limit and running >= limit:
            text = f"all {limit} slots of the {what}'s concurrency limit are in use"
            evidence = {
                **_figures(situation),
                "limit_of": what,
                "limit": limit,
                "utilization_pct": utilization_pct(running, limit),
            }
            yield Finding(cause=Cause.LIMIT_REACHED, summary=text, evidence=evidence)


_LOOKS = (_paused, _stale, _failing, _no_workers, _slow, _spike, _limited)

_REFUSED = re.compile(
    r"connect|refus|timed? ?out|timeout|unreachable|reset by peer|broken pipe|resolv|dns|ssl|tls"
    r"|unavailable|bad gateway|too many requests|(?:answered|status|http)\D{0,12}(?:429|5\d\d)",
    re.IGNORECASE,
)


def _short(value: float) -> str:
    """Three digits that matter, and never an exponent for what is merely large."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def looks_refused(error: str) -> bool:
    """Whether an error speaks of the other side rather than of the message."""
    return _REFUSED.search(error) is not None


def _figures(situation: Situation) -> dict[str, Any]:
    """What every finding shows."""
    recent = situation.recent
    return {
        "depth": situation.depth,
        "delayed": situation.delayed,
        "running": situation.running,
        "oldest_age_ms": situation.oldest_age_ms,
        "span_ms": recent.span_ms,
        "enqueued": recent.count("enqueued"),
        "dequeued": recent.count("dequeued"),
        "acked": recent.count("acked"),
        "failed": recent.finished - recent.count("acked"),
    }


_LABELS = {
    "depth": "{:,} messages wait",
    "delayed": "{:,} of them are delayed",
    "running": "{:,} run",
    "oldest_age_ms": "the oldest has waited {:,} ms",
    "enqueued": "{:,} arrived lately",
    "dequeued": "{:,} were handed out lately",
    "acked": "{:,} were done lately",
    "failed": "{:,} attempts failed lately",
}


def evidence_lines(evidence: Mapping[str, Any]) -> list[str]:
    """The evidence for people, one short line a figure."""
    lines = []
    for name, value in evidence.items():
        if name == "errors":
            lines += [f"{one['deaths']} died of: {one['error']}" for one in value]
        elif name in _LABELS:
            lines.append(_LABELS[name].format(value))
        elif name != "span_ms" and value is not None:
            text = _short(value) if isinstance(value, float) else str(value)
            lines.append(f"{name.replace('_', ' ')}: {text}")
    return lines
