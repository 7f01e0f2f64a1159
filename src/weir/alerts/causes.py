"""Finds why a queue is backed up: a pure function from a situation to a verdict.

Several causes may hold at once. The first one in the order of `_LOOKS` is the cause, and the others are named
as well. A cause comes before its consequences: a paused queue has no throughput, a queue without workers has
no errors, a refusing downstream makes every limit look reached, and slow handlers reach a limit that was wide
enough yesterday.

A finding rests on the state at this moment: the queue's state and odometers, the notes of live workers and
their newest attempts. Telemetry only tells what is usual. So a cause is found within 20 seconds of its
beginning, and forgotten within 20 seconds of its end.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace

from weir.alerts.evidence import RATES_NOT_KNOWN, errors_of, figures_of
from weir.alerts.situation import Flow, Situation
from weir.alerts.verdict import Cause, Finding, Verdict
from weir.model.durations import DAY_MS
from weir.model.wording import amount, duration, duration_beside, moment, rate, share
from weir.warehouse.reading.arithmetic import utilization_pct

# The longest span of "now". Telemetry that is further behind does not describe now; rules tolerate more.
STALE_AFTER_MS = 20_000
# A lag this long can only mean that nothing has ever landed.
NEVER_MS = 10 * 366 * DAY_MS
# Arrivals of this many times the usual are a spike.
SPIKE = 2.0
# Handlers that take this many times the usual are slow.
SLOWER = 2.0
# A handler that usually takes less is slow only beyond twice this: short times vary for many reasons.
BRIEF_MS = 100.0
# From this share of failed attempts on, the handlers fail and not single messages.
FAILING = 0.5
# A smaller share of failed attempts, or of lapsed leases, does not back a queue up.
POISONED = 0.05
# With fewer settled attempts just now, the share of failures is taken from a longer span.
ENOUGH = 5
# Standard deviations above the usual that chance does not reach.
CHANCE = 3.0


def explain(situation: Situation) -> Verdict:
    """The cause that holds now, its evidence, and the other causes that hold."""
    if not situation.reachable:
        text = "Redis does not answer, so the state of the queue is not known"
        return Verdict(cause=Cause.UNKNOWN, summary=text, evidence={})
    findings = [finding for look in _LOOKS for finding in look(situation)]
    if findings:
        first, *others = findings
        return Verdict(cause=first.cause, summary=first.summary, evidence=first.evidence, also=tuple(others))
    return _without_findings(situation)


def explain_window(situation: Situation) -> Verdict:
    """The cause that holds now, or else the one that held over the recent past.

    An alert about a window needs this: the cause may be over when the alert fires.
    """
    verdict = explain(situation)
    if verdict.cause not in (Cause.HEALTHY, Cause.UNKNOWN):
        return verdict
    wider = explain(replace(situation, now=situation.recent))
    return verdict if wider.cause in (Cause.HEALTHY, Cause.UNKNOWN) else wider


def _without_findings(situation: Situation) -> Verdict:
    ready, evidence = situation.ready, figures_of(situation)
    if situation.depth == 0:
        text = "nothing waits"
    elif ready == 0:
        text = f"{amount(situation.delayed, 'message')} wait for their time or for a retry; none is ready"
    elif situation.now.count("dequeued") > 0 or (situation.workforce and situation.workforce.handling):
        text = f"{amount(ready, 'message')} {_are(ready)} ready and being worked off; nothing holds them up"
    else:
        text = (
            f"{amount(ready, 'message')} {_are(ready)} ready and none was handed out;"
            " the figures do not say why"
        )
        return Verdict(cause=Cause.UNKNOWN, summary=text, evidence=evidence)
    return Verdict(cause=Cause.HEALTHY, summary=text, evidence=evidence)


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _paused(situation: Situation) -> Iterator[Finding]:
    if situation.paused:
        waiting = amount(situation.depth, "message") if situation.depth else "nothing"
        text = f"the queue is paused; {waiting} wait{'' if situation.depth > 1 else 's'} for `resume`"
        yield Finding(cause=Cause.PAUSED, summary=text, evidence=figures_of(situation))


def _disabled(situation: Situation) -> Iterator[Finding]:
    """Workers leave the messages of a disabled endpoint in their queue."""
    if situation.disabled_reason is not None and situation.ready > 0:
        text = (
            f"the endpoint `{situation.delivers_to}` is disabled ({situation.disabled_reason});"
            " its messages wait until it is enabled"
        )
        yield Finding(cause=Cause.DOWNSTREAM_REFUSING, summary=text, evidence=figures_of(situation))


def _no_workers(situation: Situation) -> Iterator[Finding]:
    if situation.ready == 0 or situation.paused or situation.by_workers or not _untouched(situation):
        return
    if situation.has_work and situation.workforce is not None:
        text = f"no worker is alive for this queue; {_waiting(situation)}{_leased(situation)}"
        yield Finding(cause=Cause.NO_WORKERS, summary=text, evidence=figures_of(situation))
    elif situation.running == 0 and _fresh(situation) and not situation.environment_is_full:
        text = f"{_waiting(situation)} and nobody asks for {'it' if situation.ready == 1 else 'them'}"
        yield Finding(cause=Cause.NO_WORKERS, summary=text, evidence=figures_of(situation))


def _untouched(situation: Situation) -> bool:
    """Whether nothing was handed out just now.

    While telemetry is stale, its newest deliveries may be old. Attempts that workers recorded are current.
    """
    known = situation.has_work and situation.workforce is not None and not _fresh(situation)
    return situation.now.count("dequeued") == 0 or (known and situation.handlers.ended == 0)


def _waiting(situation: Situation) -> str:
    return f"{amount(situation.ready, 'message')} wait{'s' if situation.ready == 1 else ''}"


def _leased(situation: Situation) -> str:
    """The end of a sentence about messages that are still leased by consumers that may be dead."""
    running = situation.running
    if not running:
        return ""
    return f", and {running:,} more {_are(running)} still leased until the leases lapse"


def _failing(situation: Situation) -> Iterator[Finding]:
    """Attempts fail: because of a service that handlers call, of the handlers, or of single messages."""
    flow = _attempts_to_judge(situation)
    share_failed = _share_failed(situation, flow)
    if share_failed is None or share_failed < POISONED:
        return
    evidence = figures_of(situation, flow, error_rate=share_failed, errors=errors_of(situation))
    part = f"{share(share_failed)} of the attempts fail"
    if _speaks_of_the_other_side(situation, share_failed):
        target = f" `{situation.delivers_to}`" if situation.delivers_to else ""
        text = f"{part} because the downstream{target} refuses or does not answer"
        yield Finding(cause=Cause.DOWNSTREAM_REFUSING, summary=text, evidence=evidence)
    elif share_failed >= FAILING:
        text = f"{part}, and not because the downstream refuses; {flow.count('dead'):,} died"
        yield Finding(cause=Cause.HANDLERS_FAILING, summary=text, evidence=evidence)
    else:
        through = amount(flow.count("acked"), "message")
        text = f"{part} while {through} went through; {flow.count('dead'):,} died"
        yield Finding(cause=Cause.POISON_MESSAGES, summary=text, evidence=evidence)


def _share_failed(situation: Situation, flow: Flow) -> float | None:
    """The share by the queue's counts or, while telemetry is stale, by the records of workers."""
    handlers = situation.handlers
    if handlers.ended and not _fresh(situation):
        return handlers.failed / handlers.ended
    return flow.error_rate


def _attempts_to_judge(situation: Situation) -> Flow:
    """The newest attempts, or those of a longer span while there are too few of them.

    While attempts run and none has ended, nothing fails now, even if attempts failed before. While all
    messages wait for a retry, the earlier failures are the reason.
    """
    now = situation.now
    if now.settled >= ENOUGH or not _fresh(situation):
        return now
    if now.settled > 0:
        return situation.recent if now.failed else now
    return situation.recent if situation.depth > 0 and situation.running == 0 else now


def _speaks_of_the_other_side(situation: Situation, share_failed: float) -> bool:
    errors = sum(error.count for error in situation.errors)
    if errors == 0:
        return situation.delivers_to is not None and share_failed >= FAILING
    # At least half of the errors.
    return 2 * sum(error.count for error in situation.errors if looks_refused(error.sample)) >= errors


def _lapsing(situation: Situation) -> Iterator[Finding]:
    now, lapsed = situation.now, situation.now.count("lapsed")
    if _fresh(situation) and lapsed > 0 and lapsed >= POISONED * (now.settled + lapsed):
        text = (
            f"{amount(lapsed, 'lease')} lapsed in the last {duration(now.span_ms)}:"
            " consumers died, or held messages longer than their lease"
        )
        yield Finding(cause=Cause.LEASES_LAPSED, summary=text, evidence=figures_of(situation))


def _slow(situation: Situation) -> Iterator[Finding]:
    if situation.ready == 0:
        return
    what, now_ms, usual_ms = _handler_times(situation)
    if usual_ms is None or now_ms is None or now_ms < SLOWER * max(usual_ms, BRIEF_MS):
        return
    verb = "handlers take" if what == "handler" else "consumers hold a message for"
    text = f"{verb} {duration(now_ms)}, usually {duration_beside(usual_ms, now_ms)}"
    besides = {f"{what}_ms": now_ms, f"usual_{what}_ms": usual_ms}
    yield Finding(cause=Cause.SLOW_HANDLERS, summary=text, evidence=figures_of(situation, None, **besides))


def _handler_times(situation: Situation) -> tuple[str, float | None, float | None]:
    """The name of the figure, its value now, and its usual value."""
    handlers, force = situation.handlers, situation.workforce
    if handlers.usual_ms is not None:
        if force is not None and force.handling > handlers.ended:
            # More handlers run than ended, so the running ones count. They will take longer than so far.
            return "handler", max(force.handling_ms / force.handling, handlers.ended_ms), handlers.usual_ms
        return "handler", handlers.ended_ms if handlers.ended else None, handlers.usual_ms
    if situation.by_workers or not _fresh(situation) or situation.before is None:
        return "handler", None, None
    now_ms = situation.now.held_ms
    if now_ms is None and situation.running > 0:
        # Nothing ended at all, so every leased message has been leased for the whole span.
        now_ms = float(situation.now.span_ms)
    return "held", now_ms, situation.before.held_ms


def _spike(situation: Situation) -> Iterator[Finding]:
    now, before = situation.now, situation.before
    if before is None or situation.ready == 0 or not _fresh(situation):
        return
    usual, arriving = before.rate("enqueued"), now.rate("enqueued")
    expected = usual * now.span_ms / 1_000
    beyond_chance = now.count("enqueued") > expected + CHANCE * math.sqrt(expected)
    if usual > 0 and arriving >= SPIKE * usual and beyond_chance and now.count("enqueued") > now.left:
        text = f"{rate(arriving, 'message')} arrive, {arriving / usual:.1f} times the usual {rate(usual)}"
        besides = {"arriving_per_s": arriving, "usual_per_s": usual}
        yield Finding(
            cause=Cause.ARRIVAL_SPIKE, summary=text, evidence=figures_of(situation, None, **besides)
        )


def _limited(situation: Situation) -> Iterator[Finding]:
    if situation.ready == 0:
        return
    now, limit = situation.now, situation.limit
    if limit and situation.running >= limit:
        text = f"all {amount(limit, 'slot')} of the queue's concurrency limit are in use"
        yield _limit(situation, "queue", limit, situation.running, text)
    elif limit and now.count("dequeued") > 0 and now.running_max >= limit:
        text = f"up to {amount(limit, 'message')} ran at once, which is the queue's concurrency limit"
        yield _limit(situation, "queue", limit, now.running_max, text)
    if situation.environment_is_full:
        limit = situation.environment_limit or 0
        text = f"all {amount(limit, 'slot')} of the environment's concurrency limit are in use"
        yield _limit(situation, "environment", limit, situation.environment_running, text)


def _limit(situation: Situation, what: str, limit: int, running: int, text: str) -> Finding:
    besides = {"limit_of": what, "limit": limit, "utilization_pct": utilization_pct(running, limit)}
    return Finding(cause=Cause.LIMIT_REACHED, summary=text, evidence=figures_of(situation, None, **besides))


def _too_few(situation: Situation) -> Iterator[Finding]:
    now, force = situation.now, situation.workforce
    flow = now if now.left else situation.recent
    if situation.ready == 0 or not situation.counted or flow.count("enqueued") < flow.left:
        return
    if situation.by_workers and force is not None:
        if force.free_slots == 0:
            slots = f"all {amount(force.slots, 'slot')} of {amount(force.workers, 'worker')}"
            where = "" if force.held else " with other queues"
            text = f"{slots} are busy{where}, and the backlog does not shrink"
            yield Finding(cause=Cause.TOO_FEW_WORKERS, summary=text, evidence=figures_of(situation))
    elif situation.pace is not None and now.count("dequeued") > 0 and _outgrows(situation):
        arriving, leaving = situation.pace.arriving, situation.pace.leaving
        text = f"{rate(arriving, 'message')} arrive, and consumers finish {rate(leaving)}"
        besides = {"arriving_per_s": arriving, "leaving_per_s": leaving}
        yield Finding(
            cause=Cause.TOO_FEW_WORKERS, summary=text, evidence=figures_of(situation, None, **besides)
        )


def _outgrows(situation: Situation) -> bool:
    """Whether more arrives than ends, by more than chance and also over the recent past."""
    now, recent = situation.now, situation.recent
    growth = now.count("enqueued") - now.left
    beyond_chance = growth > CHANCE * math.sqrt(now.count("enqueued") + now.left)
    return _fresh(situation) and beyond_chance and recent.count("enqueued") > recent.left


def _stale(situation: Situation) -> Iterator[Finding]:
    lag_ms = situation.telemetry_lag_ms
    if situation.telemetry_off_since_ms is not None:
        since = moment(situation.telemetry_off_since_ms)
        text = f"metrics are switched off since {since}, so the usual figures of the queue are not known"
        yield Finding(cause=Cause.TELEMETRY_STALE, summary=text, evidence={})
    elif lag_ms > NEVER_MS:
        text = "no telemetry has arrived yet, so the figures of the queue are not known"
        yield Finding(cause=Cause.TELEMETRY_STALE, summary=text, evidence={})
    elif lag_ms > STALE_AFTER_MS:
        text = f"telemetry is {duration(lag_ms)} behind, so the newest figures of the queue are not known"
        yield Finding(cause=Cause.TELEMETRY_STALE, summary=text, evidence={"telemetry_lag_ms": lag_ms})
    elif not situation.counted and situation.ready > 0:
        text = f"no telemetry of the queue has arrived yet, so {RATES_NOT_KNOWN}"
        yield Finding(cause=Cause.TELEMETRY_STALE, summary=text, evidence=figures_of(situation))


def _fresh(situation: Situation) -> bool:
    """Whether telemetry is recent enough to be trusted."""
    is_off = situation.telemetry_off_since_ms is not None
    return situation.telemetry_lag_ms <= STALE_AFTER_MS and not is_off and situation.counted


# A cause stands before its consequences: the first finding is the cause (see the top of this module).
_LOOKS = (
    _paused,
    _disabled,
    _no_workers,
    _failing,
    _lapsing,
    _slow,
    _spike,
    _limited,
    _too_few,
    _stale,
)

_REFUSED = re.compile(
    r"connection|connect ?error|connect(?:ing)? to|refused|timed ?out|time ?out|unreachable|reset by peer"
    r"|broken ?pipe|server disconnected|name resolution|cannot resolve|name or service not known|gaierror"
    r"|\b(?:dns|ssl|tls)"
    r"|unavailable|bad gateway|too many requests|(?:answered|status|http)\D{0,12}(?:429|5\d\d)",
    re.IGNORECASE,
)


def looks_refused(error: str) -> bool:
    """Whether an error comes from a service that did not answer or refused, not from the message."""
    return _REFUSED.search(error) is not None
