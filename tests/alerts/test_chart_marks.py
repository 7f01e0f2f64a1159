"""What is marked on charts: alerts, annotations, applied specs, pauses and gaps, each in its own time."""

from __future__ import annotations

from typing import Any, cast

from weir.alerts.chart_marks import ChartMark, MarkKind, read_marks
from weir.control.annotations import Annotations
from weir.control.audit_log import AuditedChange, AuditLog
from weir.control.database import Database
from weir.control.scopes import scope_names
from weir.errors import Unavailable
from weir.model.ids import new_id
from weir.model.names import EnvironmentRef
from weir.testing.clocks import ManualClock
from weir.warehouse.reading.freshness import LandedGap
from weir.warehouse.reading.periods import Resolution, Window
from weir.warehouse.reading.series import TimeSpan
from weir.warehouse.tables import GapKind

T0 = 1_790_000_000_000 // 60_000 * 60_000
WINDOW = Window(start_ms=T0, end_ms=T0 + 3_600_000, resolution=Resolution.MINUTE, step_ms=60_000)


class Gaps:
    """A warehouse that knows gaps alone."""

    shards = 1

    def __init__(self, *spans: tuple[int, int], away: bool = False) -> None:
        self._spans, self._away = spans, away
        self.gaps = self

    async def of(self, metric: str, shard: int) -> list[LandedGap]:
        if self._away:
            raise Unavailable("ClickHouse is away")
        return [
            LandedGap(
                metric=metric,
                shard=shard,
                span=TimeSpan(start_ms=T0 + start, end_ms=T0 + end),
                kind=GapKind.DROPPED,
            )
            for start, end in self._spans
        ]


async def marks(
    database: Database, environment: EnvironmentRef, warehouse: Gaps | None = None, queue: str | None = None
) -> list[ChartMark]:
    house = cast(Any, warehouse or Gaps())
    return await read_marks(database, house, environment, WINDOW, queue=queue)


async def change(
    database: Database, environment: EnvironmentRef, action: str, at_ms: int, queue: str
) -> None:
    log = AuditLog(database, clock=ManualClock(T0 + at_ms))
    await log.record(AuditedChange.inside(environment, actor="token:1", action=action, target=queue))


async def add_alert(
    database: Database, environment: EnvironmentRef, *, fired: int, resolved: int | None, queue: str
) -> None:
    async with database.connection() as connection:
        await connection.execute(
            "INSERT INTO weir.alerts (id, rule_id, organization, project, environment, rule, queue, state,"
            " fired_at_ms, resolved_at_ms, cause, verdict) VALUES (%(id)s, %(id)s, %(organization)s,"
            ' %(project)s, %(environment)s, \'{"name": "deep"}\', %(queue)s, %(state)s, %(fired)s,'
            " %(resolved)s, 'unknown', '{}')",
            {
                **scope_names(environment),
                "id": new_id(),
                "queue": queue,
                "state": "firing" if resolved is None else "resolved",
                "fired": T0 + fired,
                "resolved": None if resolved is None else T0 + resolved,
            },
        )


async def test_everything_that_touches_the_window_is_told_newest_first(
    database: Database, environment: EnvironmentRef
) -> None:
    await Annotations(database).add(environment, text="v42 out", at_ms=T0 + 10, actor="me")
    await Annotations(database).add(environment, text="too late", at_ms=WINDOW.end_ms, actor="me")
    await Annotations(database).add(environment, text="too early", at_ms=T0 - 1, actor="me")
    await change(database, environment, "queue.pause", -500, "q")
    await change(database, environment, "queue.resume", 40, "q")
    await add_alert(database, environment, fired=-20, resolved=-10, queue="q")
    await add_alert(database, environment, fired=-20, resolved=30, queue="q")
    await add_alert(database, environment, fired=50, resolved=None, queue="q")
    found = await marks(database, environment, Gaps((60, 70), (-9, -1)))
    assert [(mark.kind, mark.at_ms - T0, mark.until_ms and mark.until_ms - T0, mark.text) for mark in found][
        1:
    ] == [
        (MarkKind.ALERT, 50, None, "deep"),
        (MarkKind.ANNOTATION, 10, None, "v42 out"),
        (MarkKind.ALERT, -20, 30, "deep"),
        (MarkKind.PAUSE, -500, 40, "q paused"),
    ]
    assert (found[0].kind, found[0].at_ms - T0) == (MarkKind.GAP, 60)
    assert "were dropped" in found[0].text


async def test_a_pause_that_nobody_ended_goes_on(database: Database, environment: EnvironmentRef) -> None:
    await change(database, environment, "queue.pause", -50, "q")
    (mark,) = await marks(database, environment)
    assert (mark.kind, mark.until_ms, mark.queue) == (MarkKind.PAUSE, None, "q")


async def test_a_queue_leaves_out_what_concerns_other_queues(
    database: Database, environment: EnvironmentRef
) -> None:
    await add_alert(database, environment, fired=1, resolved=2, queue="other")
    await add_alert(database, environment, fired=3, resolved=4, queue="")
    await Annotations(database).add(environment, text="v42 out", at_ms=T0 + 5, actor="me")
    found = await marks(database, environment, queue="q")
    assert [(mark.kind, mark.queue) for mark in found] == [
        (MarkKind.ANNOTATION, None),
        (MarkKind.ALERT, None),
    ]


async def test_marks_are_told_while_clickhouse_is_away(
    database: Database, environment: EnvironmentRef
) -> None:
    await Annotations(database).add(environment, text="v42 out", at_ms=T0 + 5, actor="me")
    (mark,) = await marks(database, environment, Gaps((1, 2), away=True))
    assert mark.text == "v42 out"


async def test_another_environment_has_marks_of_its_own(
    database: Database, environment: EnvironmentRef
) -> None:
    await Annotations(database).add(environment, text="v42 out", at_ms=T0 + 5, actor="me")
    stranger = EnvironmentRef(organization="other", project="p", environment="e")
    assert await marks(database, stranger) == []
