"""The evaluator: every thirty seconds, one in the whole cluster, apart from the pipeline that it watches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import structlog

from weir.alerts.lease import Deposed, EvaluatorLease, Term
from weir.alerts.machine import Happened
from weir.alerts.measure import Lifetimes, Measured, MeasurementSource, measure, measure_nothing, source_of
from weir.alerts.metrics import Metric, spoken
from weir.alerts.operations import operation_figures
from weir.alerts.round import AlertChange, Kept, Key, evaluate
from weir.alerts.rule import Rule
from weir.alerts.rules import Rules
from weir.alerts.situations import Situations
from weir.alerts.verdict import Cause, Verdict, explain_window
from weir.alerts.writing import AlertJournal, EvaluationOutcome, load_memories
from weir.broker.broker import Broker
from weir.control.database import Database
from weir.errors import NotFound, Unavailable, WarehouseUnavailable
from weir.model.clock import Clock, SystemClock
from weir.model.names import QueueRef
from weir.telemetry.live_workers import WorkerRegister
from weir.warehouse.reading.warehouse import Warehouse

log = structlog.get_logger("weir.alerts")
INTERVAL_MS = 30_000


class Evaluator:
    """Looks at every rule, raises and resolves alerts, and writes down what is to be said."""

    def __init__(
        self,
        *,
        database: Database,
        warehouse: Warehouse,
        broker: Broker,
        lifetimes: Lifetimes,
        lease: EvaluatorLease | None = None,
        clock: Clock | None = None,
        interval_ms: int = INTERVAL_MS,
        workers: WorkerRegister | None = None,
    ) -> None:
        self._database = database
        self._warehouse = warehouse
        self._broker = broker
        self._lifetimes = lifetimes
        self._clock = clock or SystemClock()
        self._interval_ms = interval_ms
        self._lease = lease or EvaluatorLease(database, ttl_ms=3 * interval_ms)
        self._rules = Rules(database, clock=self._clock)
        self._situations = Situations(warehouse, broker, database, clock=self._clock, workers=workers)
        self._journal = AlertJournal(database)
        self._answered_ms = self._clock.now_ms()

    async def run(self) -> None:
        """Evaluate until cancelled; whoever holds the lease does it, the others wait for it."""
        term: Term | None = None
        try:
            while True:
                started = time.monotonic()
                term = await self._attempt()
                spent_s = time.monotonic() - started
                await asyncio.sleep(max(self._interval_ms / 1_000 - spent_s, 0.1))
        finally:
            if term is not None:
                await asyncio.shield(self._lease.release(term))

    async def evaluate_once(self) -> EvaluationOutcome | None:
        """One evaluation, if this process may; None while another one does it."""
        term = await self._lease.take(now_ms=self._clock.now_ms())
        return None if term is None else await self.evaluate_under(term)

    async def evaluate_under(self, term: Term) -> EvaluationOutcome:
        """One evaluation under a term; Deposed, with nothing written, if it ended meanwhile."""
        started, now_ms = time.monotonic(), self._clock.now_ms()
        rules = await self._rules.enabled()
        kept = await load_memories(self._database)
        measured = await self._measured(rules, now_ms=now_ms)
        live = {} if measured.blind else await self._live(_silent(rules, kept, measured))
        changes = list(evaluate(rules, kept, measured, live=live))
        verdicts = await self._verdicts([one for one in changes if Happened.FIRED in one.happened])
        took_ms = round((time.monotonic() - started) * 1_000)
        await self._journal.write(changes, verdicts, term=term, now_ms=now_ms, took_ms=took_ms)
        return _outcome(rules, changes)

    async def _measured(self, rules: Sequence[Rule], *, now_ms: int) -> Measured:
        """What the rules want to see; without a warehouse telemetry is unknown, except that it is away."""
        operations = await operation_figures(self._database, rules)
        return replace(await self._telemetry(rules, now_ms=now_ms), operations=operations)

    async def _telemetry(self, rules: Sequence[Rule], *, now_ms: int) -> Measured:
        try:
            measured = await measure(self._warehouse, self._lifetimes, rules, now_ms=now_ms)
        except WarehouseUnavailable as error:
            log.warning("the warehouse is away", error=str(error))
            return measure_nothing(now_ms=now_ms, since_ms=self._answered_ms, shards=self._warehouse.shards)
        self._answered_ms = now_ms
        return measured

    async def _attempt(self) -> Term | None:
        """One evaluation that survives stores being away; the rules wait for the next one."""
        term: Term | None = None
        try:
            term = await self._lease.take(now_ms=self._clock.now_ms())
            if term is not None:
                outcome = await self.evaluate_under(term)
                if outcome.fired or outcome.resolved:
                    log.info("alerts changed", fired=outcome.fired, resolved=outcome.resolved)
        except (Unavailable, Deposed) as error:
            log.warning("evaluation failed", code=error.code, error=str(error))
        return term

    async def _live(self, queues: Sequence[QueueRef]) -> dict[QueueRef, Mapping[Metric, float]]:
        """The levels right now of queues of which telemetry says nothing, though they are watched by name."""
        found: dict[QueueRef, Mapping[Metric, float]] = {}
        for queue in queues:
            try:
                state = await self._broker.state(queue)
                levels = {Metric.BACKLOG: state.depth, Metric.OLDEST_AGE: state.oldest_age_ms}
            except NotFound:
                levels = {Metric.BACKLOG: 0, Metric.OLDEST_AGE: 0}
            found[queue] = {metric: float(value) for metric, value in levels.items()}
        return found

    async def _verdicts(self, fired: Sequence[AlertChange]) -> dict[Key, Verdict]:
        """Why each of these fired; a cause that cannot be had must not keep the alert back."""
        queues = [change.queue for change in fired if change.queue is not None]
        verdicts = {change.key: _beyond_queues(change) for change in fired}
        if not queues:
            return verdicts
        recent_ms = max(change.rule.draft.window_ms for change in fired)
        try:
            situations = await self._situations.of_all(sorted(set(queues)), recent_ms=recent_ms)
        except Unavailable as error:
            log.warning("no evidence", code=error.code, error=str(error))
            return verdicts
        for change in fired:
            if change.queue is not None:
                verdicts[change.key] = explain_window(situations[change.queue])
        return verdicts


def _silent(rules: Sequence[Rule], kept: Mapping[Key, Kept], measured: Measured) -> list[QueueRef]:
    """Queues that a rule about a level names, or has an open alert for, and that have not been heard of."""
    levels = {rule.id: rule for rule in rules if source_of(rule.draft.metric) is MeasurementSource.LEVELS}
    watched = [(rule, rule.draft.queue) for rule in levels.values() if rule.draft.queue is not None]
    watched += [
        (levels[rule_id], name)
        for (rule_id, name), one in kept.items()
        if one.memory.open and rule_id in levels
    ]
    found = {
        rule.environment.queue(name)
        for rule, name in watched
        if rule.environment.queue(name) not in measured.levels.get(rule.draft.window_ms, {})
    }
    return sorted(found)


def _beyond_queues(change: AlertChange) -> Verdict:
    """The verdict of rules that speak about no queue, and of those without evidence."""
    draft = change.rule.draft
    now, threshold = spoken(draft.metric, change.sight.value), spoken(draft.metric, draft.threshold)
    text = f"`{draft.metric}` is {now}; the rule says {draft.operator} {threshold}"
    return Verdict(cause=Cause.UNKNOWN, summary=text, evidence={})


def _outcome(rules: Sequence[Rule], changes: Sequence[AlertChange]) -> EvaluationOutcome:
    def count(happened: Happened) -> int:
        return sum(happened in change.happened for change in changes)

    return EvaluationOutcome(
        rules=len(rules),
        changes=len(changes),
        fired=count(Happened.FIRED),
        resolved=count(Happened.RESOLVED),
        unknown=count(Happened.WENT_UNKNOWN),
    )
