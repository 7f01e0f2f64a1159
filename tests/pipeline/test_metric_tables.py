"""The tables of a further metric: made from its definition, changed with it, and never missing unseen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weir.errors import Misconfigured
from weir.pipeline.definition import DEFINITIONS, MetricDefinition, by_name
from weir.pipeline.metric_migration import make_tables, planned_changes, require_tables
from weir.pipeline.metric_tables import statements, views_of
from weir.telemetry.events import Aggregate, EventKind, Field, TextField
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.tables import TierRetention

SENT = Field(name="sent", width=4, aggregates=(Aggregate.SUM,))
SIZE = Field(name="size", width=4, aggregates=(Aggregate.MIN, Aggregate.MAX, Aggregate.LAST))
KIND = EventKind(name="mail", dimensions=("sender", "domain"), fields=(SENT, SIZE), samples="delay_ms")
MAIL = MetricDefinition(kind=KIND)
ERROR = TextField(name="error", max_bytes=500)
VISIT = MetricDefinition(
    kind=EventKind(
        name="visit", dimensions=("site",), fields=(Field(name="took_ms", width=4),), texts=(ERROR,)
    ),
    plain=True,
)
KEPT = TierRetention()


@pytest.mark.parametrize("definition", [MAIL, VISIT], ids=lambda one: one.name)
def test_tables_are_made_once_and_every_statement_may_run_twice(
    warehouse: ClickHouseConnection, definition: MetricDefinition
) -> None:
    with pytest.raises(
        Misconfigured, match=rf"lacks the table `{definition.name}_events_landing`; run `weir mi"
    ):
        require_tables(warehouse, (*DEFINITIONS, definition))
    made = make_tables(warehouse, [definition], KEPT)
    assert made[-1] == f"the view `{definition.name}_ingest_offsets_view`"
    assert make_tables(warehouse, [definition], KEPT) == []
    for statement in statements(definition):
        warehouse.command(statement)
    assert planned_changes(warehouse, [definition]) == []
    require_tables(warehouse, (*DEFINITIONS, definition))


@pytest.mark.parametrize("definition", [MAIL, VISIT], ids=lambda one: one.name)
@pytest.mark.parametrize("at", [0, 1, -1])
def test_a_view_that_is_missing_is_named_and_made_again(
    warehouse: ClickHouseConnection, definition: MetricDefinition, at: int
) -> None:
    make_tables(warehouse, [definition], KEPT)
    name = views_of(definition)[at].name
    warehouse.command(f"DROP TABLE {name}")
    with pytest.raises(Misconfigured, match=f"lacks the view `{name}`"):
        require_tables(warehouse, (*DEFINITIONS, definition))
    assert make_tables(warehouse, [definition], KEPT) == [f"the view `{name}`"]
    require_tables(warehouse, (*DEFINITIONS, definition))


def test_the_package_s_own_offset_view_may_not_be_missing_either(warehouse: ClickHouseConnection) -> None:
    warehouse.command("DROP TABLE queue_ingest_offsets_view")
    with pytest.raises(Misconfigured, match="lacks `queue_ingest_offsets_view`"):
        require_tables(warehouse, DEFINITIONS)


GROWN = replace(
    MAIL,
    kind=replace(
        KIND,
        earlier=((SENT, SIZE),),
        fields=(
            replace(SENT, width=8),
            replace(SIZE, width=8),
            Field(name="bounced", width=4, aggregates=(Aggregate.SUM,)),
        ),
    ),
)


def test_a_field_that_is_added_later_becomes_a_column_of_every_table_and_view(
    warehouse: ClickHouseConnection,
) -> None:
    make_tables(warehouse, [MAIL], KEPT)
    warehouse.command(
        "INSERT INTO mail_events_landing (sender, domain, bucket_start, events, sent, max_size) "
        "VALUES ('a', 'b', now(), 2, 2, 7)"
    )
    with pytest.raises(Misconfigured, match="run `weir migrate`"):
        require_tables(warehouse, (*DEFINITIONS, GROWN))
    make_tables(warehouse, [GROWN], KEPT)
    assert planned_changes(warehouse, [GROWN]) == []
    warehouse.command(
        "INSERT INTO mail_events_landing (sender, domain, bucket_start, events, sent, bounced, max_size) "
        "VALUES ('a', 'b', now(), 1, 1, 5, 8000000000)"
    )
    for tier in GROWN.tiers:
        (row,) = warehouse.rows(
            "SELECT sum(events) AS events, sum(sent) AS sent, sum(bounced) AS bounced, max(max_size) AS most "
            f"FROM {tier}"
        )
        assert row == {"events": 3, "sent": 3, "bounced": 5, "most": 8_000_000_000}


def test_a_change_that_was_interrupted_is_completed(warehouse: ClickHouseConnection) -> None:
    make_tables(warehouse, [MAIL], KEPT)
    changes = planned_changes(warehouse, [GROWN])
    for done in range(len(changes)):
        warehouse.command(changes[done].statement)
        assert planned_changes(warehouse, [GROWN]) == changes[done + 1 :]


def test_a_text_that_is_added_later_is_empty_in_old_rows(warehouse: ClickHouseConnection) -> None:
    make_tables(warehouse, [VISIT], KEPT)
    warehouse.command(
        "INSERT INTO visit_events_landing (site, bucket_start, error) VALUES ('a', now(), 'broken')"
    )
    more = TextField(name="agent", max_bytes=100)
    grown = replace(
        VISIT, kind=replace(VISIT.kind, earlier=((*VISIT.kind.fields, ERROR),), texts=(ERROR, more))
    )
    make_tables(warehouse, [grown], KEPT)
    assert warehouse.rows("SELECT error, agent FROM visit_rows") == [{"error": "broken", "agent": ""}]


def test_what_cannot_be_changed_is_refused(warehouse: ClickHouseConnection) -> None:
    make_tables(warehouse, [MAIL], KEPT)
    with pytest.raises(Misconfigured, match="`country` of `mail_metrics_5s` is part of its key"):
        make_tables(
            warehouse, [replace(MAIL, kind=replace(KIND, dimensions=("sender", "domain", "country")))], KEPT
        )
    narrow = replace(SIZE, width=1)
    with pytest.raises(Misconfigured, match="`min_size` of `mail_events_landing` is `UInt32`"):
        make_tables(warehouse, [replace(MAIL, kind=replace(KIND, fields=(SENT, narrow)))], KEPT)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"name": "Mail"}, "`Mail` is not a valid name"),
        ({"name": "mail; DROP TABLE x"}, "is not a valid name"),
        ({"name": "m" * 41}, "is not a valid name"),
        ({"name": "queue"}, "metric `queue` is defined twice"),
        ({"name": "environment"}, "share the table `environment_metrics_5s`"),
        ({"dimensions": ()}, "name at least one"),
        ({"dimensions": ("shard",)}, "`shard` is a column of every metric"),
        ({"dimensions": ("sent",)}, "`sent` stands for two things"),
        ({"fields": (replace(SENT, width=3),)}, "use 1, 2, 4 or 8"),
        ({"texts": (ERROR,)}, "texts cannot be summed"),
        ({"fields": (replace(SENT, aggregates=()),), "samples": None}, "nothing would be summed"),
    ],
)
def test_a_definition_that_cannot_work_is_refused_with_the_reason(
    change: dict[str, object], reason: str
) -> None:
    with pytest.raises(Misconfigured, match=reason):
        by_name((*DEFINITIONS, MetricDefinition(kind=replace(KIND, **change))))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"samples": "waits"}, "plain rows have no samples"),
        ({"texts": (replace(ERROR, max_bytes=0),)}, "may have 1 to"),
        (
            {"texts": tuple(replace(ERROR, name=f"t{n}", max_bytes=8_000) for n in range(3))},
            "shorten its texts",
        ),
    ],
)
def test_plain_definitions_are_checked_too(change: dict[str, object], reason: str) -> None:
    with pytest.raises(Misconfigured, match=reason):
        by_name((replace(VISIT, kind=replace(VISIT.kind, **change)),))
