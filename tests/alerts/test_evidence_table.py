"""The evidence as a table: now beside the usual, each with its unit, and no name of a field in it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.alerts.test_verdict import STATES, served

from weir.alerts.causes import explain
from weir.alerts.evidence_table import EvidenceRow, evidence_table
from weir.alerts.verdict import Cause


def rows(cause: Cause) -> dict[str, tuple[str, str | None]]:
    table = evidence_table(explain(served(**STATES[cause])).evidence)
    return {row.what: (row.now, row.usual) for row in table}


def test_slow_handlers_stand_beside_the_usual() -> None:
    found = rows(Cause.SLOW_HANDLERS)
    assert found["a handler takes"] == ("4 s", "0.2 s")
    assert found["arrive"] == ("4.7/s", "5/s")
    assert found["are done"] == ("5/s", "5/s")


def test_a_reached_limit_says_whose_it_is_and_how_full() -> None:
    found = rows(Cause.LIMIT_REACHED)
    assert found["concurrency limit of the queue"] == ("4, 100 % of it in use", None)
    assert found["with consumers"] == ("4, 8 of them in a handler", None)


def test_workers_and_their_slots_stand_in_one_row() -> None:
    assert rows(Cause.TOO_FEW_WORKERS)["workers"] == ("2 workers alive, 0 of 8 slots free", None)
    assert rows(Cause.NO_WORKERS)["workers"] == ("none alive", None)


def test_failures_say_their_share_and_their_errors() -> None:
    found = rows(Cause.DOWNSTREAM_REFUSING)
    assert found["attempts that fail"] == ("100 %", "0 %")
    assert found["ConnectionRefusedError: [Errno 111] Connection refused"] == ("44 attempts", None)


@pytest.mark.parametrize("cause", STATES)
def test_no_row_shows_the_name_of_a_field(cause: Cause) -> None:
    table = evidence_table(explain(served(**STATES[cause])).evidence)
    assert table
    assert not [row for row in table if "_" in row.what or ":" in row.now]


def test_a_queue_without_a_past_has_no_usual() -> None:
    table = evidence_table(explain(replace(served(**STATES[Cause.PAUSED]), before=None)).evidence)
    assert {row.usual for row in table} == {None}


def test_rates_that_are_not_known_are_said_to_be() -> None:
    table = evidence_table(explain(served(**STATES[Cause.NO_WORKERS], pace=None)).evidence)
    assert EvidenceRow(what="arrive", now="not known", usual="5/s") in table
    assert EvidenceRow(what="are done", now="not known", usual="5/s") in table


def test_a_rate_below_one_per_second_is_told_by_the_minute() -> None:
    table = evidence_table({"span_ms": 20_000, "enqueued": 1, "usual_span_ms": 600_000, "usual_enqueued": 20})
    assert table == [EvidenceRow(what="arrive", now="3/min", usual="2/min")]


def test_both_rates_of_a_row_have_one_unit() -> None:
    figures = {"span_ms": 20_000, "enqueued": 2, "usual_span_ms": 600_000, "usual_enqueued": 2_580}
    table = evidence_table(figures)
    assert table == [EvidenceRow(what="arrive", now="0.1/s", usual="4.3/s")]


def test_what_is_none_now_and_usually_has_no_row() -> None:
    figures = {"span_ms": 20_000, "enqueued": 0, "acked": 0, "usual_span_ms": 600_000, "usual_acked": 1_200}
    assert evidence_table(figures) == [EvidenceRow(what="are done", now="none", usual="2/s")]


def test_figures_of_an_alert_of_an_earlier_release_still_make_a_table() -> None:
    table = evidence_table({"depth": 1, "errors": [{"error": "boom", "deaths": 2}]})
    assert table == [EvidenceRow(what="waiting", now="1 message"), EvidenceRow(what="boom", now="2 deaths")]
