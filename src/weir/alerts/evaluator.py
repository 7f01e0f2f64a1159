"""The evaluator: checks every rule every 30 s in one process of the cluster, outside the pipeline."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import structlog

from weir.alerts.alert_metrics import Metric, value_words
from weir.alerts.causes import explain_window
from weir.alerts.evaluation import AlertChange, Key, LiveLevels, StoredMemory, evaluate
from weir.alerts.evaluation_writer import EvaluationOutcome, EvaluationWriter, load_memories
from weir.alerts.lease import INTERVAL_MS, LASTING_INTERVALS, Deposed, EvaluatorLease, Term
from weir.alerts.machine import Transition
from weir.alerts.measure import Lifetimes, Measured, MeasurementSource, measure, measure_nothing, source_of
from weir.alerts.operation_figures import operation_figures
from weir.alerts.rule import AlertRule
from weir.alerts.rules import AlertRules
from weir.alerts.situations import Situations
from weir.alerts.verdict import Cause, Verdict
from weir.broker.broker import Broker
from weir.control.database import Database
from weir.errors import NotFound, Unavailable, WarehouseUnavailable, WeirError
from weir.model.clock import Clock, SystemClock
from weir.model.names import QueueRef
from weir.model.shards import shard_of
from weir.model.wording import amount
from weir.telemetry.live_workers import WorkerRegister
from weir.warehouse.reading.warehouse import Warehouse

log = structlog.get_logger("weir.alerts")


class Evaluator:
    """Evaluates every rule, raises and resolves alerts, and stores their notifications."""

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
        lasting_ms = LASTING_INTERVALS * interval_ms
        self._lease = lease or EvaluatorLease(database, ttl_ms=lasting_ms)
        # An evaluation may take longer than a short interval; that alone must not end a calm span.
        self._continuity_ms = max(lasting_ms, LASTING_INTERVALS * INTERVAL_MS)
        self._rules = AlertRules(database, clock=self._clock)
        self._situations = Situations(warehouse, broker, database, clock=self._clock, workers=workers)
        self._writer = EvaluationWriter(database)
        self._answered_ms = self._clock.now_ms()

    async def run(self) -> None:
        """Evaluate until cancelled, while this process holds the lease."""
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
        """Evaluate once if this process gets the lease; None while another process has it."""
        term = await self._lease.take(now_ms=self._clock.now_ms())
        return None if term is None else await self.evaluate_under(term)

    async def evaluate_under(self, term: Term) -> EvaluationOutcome:
        """Evaluate once under a term; if the term has ended by then, write nothing and raise Deposed."""
        started, now_ms = time.monotonic(), self._clock.now_ms()
        rules = await self._rules.list_enabled()
        memories = await load_memories(self._database)
        measured = await self._measure(rules, now_ms=now_ms)
        live = {} if measured.blind else await self._read_live(_silent(rules, memories, measured))
        changes = list(evaluate(rules, memories, measured, live=live, continuity_ms=self._continuity_ms))
        verdicts = await self._explain([one for one in changes if Transition.FIRED in one.transitions])
        took_ms = round((time.monotonic() - started) * 1_000)
        await self._write(changes, verdicts, term=term, now_ms=now_ms, took_ms=took_ms)
        return _outcome(rules, changes)

    async def _write(
        self,
        changes: Sequence[AlertChange],
        verdicts: Mapping[Key, Verdict],
        *,
        term: Term,
        now_ms: int,
        took_ms: int,
    ) -> None:
        """Write the evaluation at once; if that fails as nobody foresaw, each rule's part of it alone."""
        try:
            await self._writer.write(changes, verdicts, term=term, now_ms=now_ms, took_ms=took_ms)
        except (Unavailable, Deposed):
            raise
        except Exception:
            log.exception("an evaluation could not be written at once")
        else:
            return
        by_rule: dict[str, list[AlertChange]] = defaultdict(list)
        for change in changes:
            by_rule[change.rule.id].append(change)
        for rule_id, own in by_rule.items():
            try:
                await self._writer.write(own, verdicts, term=term, now_ms=now_ms, took_ms=took_ms)
            except (Unavailable, Deposed):
                raise
            except Exception:
                log.exception("the alerts of a rule could not be written", rule=rule_id)

    async def _measure(self, rules: Sequence[AlertRule], *, now_ms: int) -> Measured:
        """Read the figures that the rules need. While the warehouse is away, only operations are read."""
        operations = await operation_figures(self._database, rules)
        return replace(await self._read_telemetry(rules, now_ms=now_ms), operations=operations)

    async def _read_telemetry(self, rules: Sequence[AlertRule], *, now_ms: int) -> Measured:
        try:
            measured = await measure(self._warehouse, self._lifetimes, rules, now_ms=now_ms)
        except WarehouseUnavailable as error:
            log.warning("the warehouse is away", error=str(error))
            return measure_nothing(now_ms=now_ms, since_ms=self._answered_ms, shards=self._warehouse.shards)
        self._answered_ms = now_ms
        return measured

    async def _attempt(self) -> Term | None:
        """Evaluate once; while a store is away, log it and leave the rules to the next evaluation."""
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

    async def _read_live(self, queues: Sequence[QueueRef]) -> LiveLevels:
        """The live backlog and oldest age of queues with a rule or an open alert but no recent telemetry."""
        found: dict[QueueRef, Mapping[Metric, float] | None] = {}
        away: set[int] = set()
        for queue in queues:
            shard = shard_of(queue.scope, shards=self._broker.shards)
            # A shard that is away is asked once, so that rules about others are not late.
            found[queue] = None if shard in away else await self._live_levels(queue)
            if found[queue] is None:
                away.add(shard)
        return found

    async def _live_levels(self, queue: QueueRef) -> Mapping[Metric, float] | None:
        """The levels of a queue now; None while Redis is away."""
        try:
            state = await self._broker.state(queue)
        except NotFound:
            return {Metric.BACKLOG: 0.0, Metric.OLDEST_AGE: 0.0}
        except Unavailable as error:
            log.warning("the level of a queue is not known", queue=queue.queue, error=str(error))
            return None
        return {Metric.BACKLOG: float(state.depth), Metric.OLDEST_AGE: float(state.oldest_age_ms)}

    async def _explain(self, fired: Sequence[AlertChange]) -> dict[Key, Verdict]:
        """The verdict on each fired alert. An alert must not wait for a cause that cannot be found now."""
        verdicts = {change.key: _without_situation(change) for change in fired}
        # Drift is about the figures of a queue, so the state of the queue does not explain it.
        fired = [change for change in fired if change.rule.draft.metric is not Metric.METRICS_DRIFT]
        queues = [change.queue for change in fired if change.queue is not None]
        if not queues:
            return verdicts
        recent_ms = max(change.rule.draft.window_ms for change in fired)
        try:
            situations = await self._situations.of_all(sorted(set(queues)), recent_ms=recent_ms)
        except Exception as error:
            if isinstance(error, WeirError):
                log.warning("no evidence", code=error.code, error=str(error))
            else:
                log.exception("no evidence")
            return verdicts
        for change in fired:
            if change.queue is not None:
                verdicts[change.key] = explain_window(situations[change.queue])
        return verdicts


def _silent(
    rules: Sequence[AlertRule], memories: Mapping[Key, StoredMemory], measured: Measured
) -> list[QueueRef]:
    """The queues without recent telemetry that a rule about a level names or has an open alert for."""
    levels = {rule.id: rule for rule in rules if source_of(rule.draft.metric) is MeasurementSource.LEVELS}
    watched = [(rule, rule.draft.queue) for rule in levels.values() if rule.draft.queue is not None]
    watched += [
        (levels[rule_id], name)
        for (rule_id, name), one in memories.items()
        if one.memory.open and rule_id in levels
    ]
    found = {
        rule.environment.queue(name)
        for rule, name in watched
        if rule.environment.queue(name) not in measured.levels.get(rule.draft.window_ms, {})
    }
    return sorted(found)


def _without_situation(change: AlertChange) -> Verdict:
    """The verdict for a rule that is not about the state of a queue, and for one without evidence."""
    draft = change.rule.draft
    text = f"{value_words(draft.metric, change.observation.value)}; the rule says {draft.condition}"
    if draft.metric is Metric.METRICS_DRIFT:
        wrong = amount(round(change.observation.value or 0), "count")
        text = (
            f"the charts of this queue are wrong by {wrong}, which no gap explains;"
            " its messages are not affected, see the audit on the Pipeline page"
        )
    return Verdict(cause=Cause.UNKNOWN, summary=text, evidence={})


def _outcome(rules: Sequence[AlertRule], changes: Sequence[AlertChange]) -> EvaluationOutcome:
    def count(transitions: Transition) -> int:
        return sum(transitions in change.transitions for change in changes)

    return EvaluationOutcome(
        rules=len(rules),
        changes=len(changes),
        fired=count(Transition.FIRED),
        resolved=count(Transition.RESOLVED),
        unknown=count(Transition.WENT_UNKNOWN),
    )
