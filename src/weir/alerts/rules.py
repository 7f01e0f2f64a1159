"""Alert rules in PostgreSQL: from the API, from commands and from `alert` blocks of applied specs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from weir.alerts.alert_metrics import Metric
from weir.alerts.alert_records import close_alerts
from weir.alerts.lease import INTERVAL_MS
from weir.alerts.rule import AlertRule, Operator, Origin, RuleDraft, check_seen, draft_from_spec
from weir.control.changes import begin_change
from weir.control.database import Connection, Database, Row, execute, fetch, fetch_one
from weir.control.scopes import scope_names, scope_of
from weir.control.sql import load_queries
from weir.errors import Conflict, NotFound
from weir.model.clock import Clock, SystemClock
from weir.model.ids import check_id, new_id
from weir.model.names import EnvironmentRef
from weir.spec.ir import AlertSpec, AppSpec

SQL = load_queries("weir.alerts", "rules.sql")


class AlertRules:
    """The register of alert rules."""

    def __init__(self, database: Database, *, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    async def create(self, environment: EnvironmentRef, draft: RuleDraft) -> AlertRule:
        now_ms = self._clock.now_ms()
        rule = AlertRule(
            id=new_id(), environment=environment, draft=draft, created_at_ms=now_ms, updated_at_ms=now_ms
        )
        async with self._database.transaction() as connection:
            await begin_change(connection, environment, now_ms=now_ms)
            await self._put(connection, rule, now_ms=now_ms)
        return rule

    async def change(self, environment: EnvironmentRef, rule_id: str, draft: RuleDraft) -> AlertRule:
        """Replace a rule. Its open alerts are closed if it watches something else now."""
        now_ms = self._clock.now_ms()
        async with self._database.transaction() as connection:
            await begin_change(connection, environment, now_ms=now_ms)
            before = await _find(connection, environment, rule_id)
            rule = replace(before, draft=draft, updated_at_ms=now_ms)
            await self._put(connection, rule, now_ms=now_ms)
            if not draft.enabled or _subject(draft) != _subject(before.draft):
                await close_alerts(connection, rule_id, now_ms=now_ms, reason="the rule was changed")
        return rule

    async def delete(self, environment: EnvironmentRef, rule_id: str) -> None:
        """Delete a rule; its open alerts are closed, and their channels are notified."""
        now_ms = self._clock.now_ms()
        async with self._database.transaction() as connection:
            await _find(connection, environment, rule_id)
            await _delete(connection, environment, rule_id, now_ms=now_ms)

    async def find(self, environment: EnvironmentRef, rule_id: str) -> AlertRule:
        async with self._database.connection() as connection:
            return await _find(connection, environment, rule_id)

    async def of(self, environment: EnvironmentRef) -> list[AlertRule]:
        rows = await self._database.fetch(SQL["list_rules"], **scope_names(environment))
        return [rule_of(row) for row in rows]

    async def list_enabled(self) -> list[AlertRule]:
        """Every enabled rule of every tenant: for the evaluator, not for a request."""
        return [rule_of(row) for row in await self._database.fetch(SQL["enabled_rules"])]

    async def _put(self, connection: Connection, rule: AlertRule, *, now_ms: int) -> None:
        named = await fetch_one(
            connection, SQL["named_rule"], name=rule.draft.name, **scope_names(rule.environment)
        )
        if named is not None and str(named["id"]) != rule.id:
            raise Conflict(f"there is already an alert rule `{rule.draft.name}`; choose another name")
        await _write(connection, rule, now_ms=now_ms)


async def sync_from_spec(
    connection: Connection,
    environment: EnvironmentRef,
    alerts: Iterable[AlertSpec],
    *,
    now_ms: int,
    interval_ms: int = INTERVAL_MS,
) -> None:
    """Make these alerts the rules of the environment's spec, inside the caller's transaction.

    A rule keeps its id, and with it its alerts, as long as a spec names it. A rule of the API is left alone,
    unless the spec has an alert of the same name: then it becomes a rule of the spec.
    """
    drafts = {alert.name: draft_from_spec(alert) for alert in alerts}
    known = {rule.draft.name: rule for rule in await _lock_all(connection, environment)}
    for name, draft in drafts.items():
        # A rule that stays as it is may be older than this check.
        if name not in known or known[name].draft.window_ms != draft.window_ms:
            check_seen(draft, interval_ms=interval_ms)
    for name, rule in known.items():
        if rule.origin is Origin.SPEC and name not in drafts:
            await _delete(connection, environment, rule.id, now_ms=now_ms)
    for name, draft in drafts.items():
        before = known.get(name)
        rule = AlertRule(
            id=new_id() if before is None else before.id,
            environment=environment,
            draft=draft,
            origin=Origin.SPEC,
        )
        await _write(connection, rule, now_ms=now_ms)
        if before is not None and _subject(draft) != _subject(before.draft):
            await close_alerts(connection, rule.id, now_ms=now_ms, reason="the rule was changed")


async def follow_spec(
    connection: Connection,
    environment: EnvironmentRef,
    _: AppSpec | None,
    app: AppSpec,
    *,
    interval_ms: int = INTERVAL_MS,
) -> None:
    """Update the rules from an applied spec, inside its transaction."""
    now_ms = SystemClock().now_ms()
    await sync_from_spec(connection, environment, app.alerts, now_ms=now_ms, interval_ms=interval_ms)


def rule_of(row: Row) -> AlertRule:
    return AlertRule(
        id=str(row["id"]),
        environment=scope_of(row),
        draft=RuleDraft(
            name=row["name"],
            metric=Metric(row["metric"]),
            operator=Operator(row["operator"]),
            threshold=row["threshold"],
            queue=row["queue"],
            clear_threshold=row["clear_threshold"],
            window_ms=row["window_ms"],
            cooldown_ms=row["cooldown_ms"],
            auto_resolve=row["auto_resolve"],
            channels=tuple(row["channels"]),
            enabled=row["enabled"],
        ),
        origin=Origin(row["origin"]),
        created_at_ms=row["created_at_ms"],
        updated_at_ms=row["updated_at_ms"],
    )


def _subject(draft: RuleDraft) -> tuple[Metric, Operator, str | None]:
    """The subject of a rule. A new threshold does not change it, so open alerts stay."""
    return draft.metric, draft.operator, draft.queue


async def _lock_all(connection: Connection, environment: EnvironmentRef) -> list[AlertRule]:
    rows = await fetch(connection, SQL["lock_rules_of_environment"], **scope_names(environment))
    return [rule_of(row) for row in rows]


async def _find(connection: Connection, environment: EnvironmentRef, rule_id: str) -> AlertRule:
    rule_id = check_id(rule_id, what="alert rule")
    row = await fetch_one(connection, SQL["find_rule"], id=rule_id, **scope_names(environment))
    if row is None:
        raise NotFound(f"there is no alert rule `{rule_id}` in this environment")
    return rule_of(row)


async def _delete(connection: Connection, environment: EnvironmentRef, rule_id: str, *, now_ms: int) -> None:
    await close_alerts(connection, rule_id, now_ms=now_ms, reason="the rule was removed")
    await execute(connection, SQL["delete_rule"], id=rule_id, **scope_names(environment))


async def _write(connection: Connection, rule: AlertRule, *, now_ms: int) -> None:
    draft = rule.draft
    await execute(
        connection,
        SQL["put_rule"],
        id=rule.id,
        name=draft.name,
        metric=draft.metric.value,
        operator=draft.operator.value,
        threshold=draft.threshold,
        clear_threshold=draft.clear_threshold,
        queue=draft.queue,
        window_ms=draft.window_ms,
        cooldown_ms=draft.cooldown_ms,
        auto_resolve=draft.auto_resolve,
        channels=list(draft.channels),
        enabled=draft.enabled,
        origin=rule.origin.value,
        now_ms=now_ms,
        **scope_names(rule.environment),
    )
