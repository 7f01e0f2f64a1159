"""The past of the demo is one that the queues could have had."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest

from weir.demo.past_events import FINE_MS, PastEvent, past, steps
from weir.demo.past_processes import DEPLOYED_AGO_MS, past_flushes
from weir.demo.scenario import INCIDENT_EVERY_MS, INCIDENT_LASTS_MS, SHOP, Incidents, Tenant
from weir.model.durations import HOUR_MS, MINUTE_MS
from weir.telemetry.events import QUEUE_COUNTERS

NOW_MS = 1_790_000_000_000
INCIDENTS = Incidents(first_ms=NOW_MS + MINUTE_MS)
QUEUES = {story.name: story for story in SHOP.queues}


@cache
def past_of(*names: str) -> list[PastEvent]:
    tenant = Tenant(environment=SHOP.environment, queues=tuple(QUEUES[name] for name in names))
    return list(past([tenant], now_ms=NOW_MS, incidents=INCIDENTS))


def test_the_steps_follow_each_other_without_a_gap_up_to_now() -> None:
    found = list(steps(NOW_MS))
    assert all(start + width == following for (start, width), (following, _) in pairwise(found))
    assert sum(found[-1]) == NOW_MS


@pytest.mark.parametrize(("days", "width"), [(0, FINE_MS), (1, FINE_MS), (7, MINUTE_MS)])
def test_the_last_hours_and_those_they_are_compared_with_are_as_fine_as_their_tier(
    days: int, width: int
) -> None:
    end = NOW_MS - days * 24 * HOUR_MS
    assert {step for start, step in steps(NOW_MS) if end - 2 * HOUR_MS <= start < end} == {width}


def test_the_odometers_count_what_happened() -> None:
    events = [one.event for one in past_of("imports")]
    for name in ("enqueued", "acked", "dead"):
        assert events[-1].values[f"{name}_total"] == sum(event.values[name] for event in events) > 0
    assert set(QUEUE_COUNTERS) == {name[:-6] for name in events[0].values if name.endswith("_total")}


def test_an_incident_slows_the_payments_and_then_they_recover() -> None:
    recent = [one for one in past_of("payments") if one.at_ms >= NOW_MS - 2 * HOUR_MS]
    hit = INCIDENTS.first_ms - INCIDENT_EVERY_MS
    during = [one.event for one in recent if hit <= one.at_ms < hit + INCIDENT_LASTS_MS]
    after = [one.event for one in recent if one.at_ms >= hit + INCIDENT_LASTS_MS + MINUTE_MS]
    assert during[-1].values["queue_length"] > 40
    assert sum(event.values["nacked"] for event in during) > 0
    assert {event.values["queue_length"] for event in after} == {0}


def test_nobody_has_waited_for_longer_than_an_incident_and_its_backlog_last() -> None:
    waits = [
        wait for one in past_of("payments") for wait in one.event.samples if one.at_ms >= NOW_MS - HOUR_MS
    ]
    assert MINUTE_MS < max(waits) < INCIDENT_LASTS_MS + 2 * MINUTE_MS


def test_the_paused_queue_only_grows() -> None:
    recent = [one.event.values for one in past_of("exports") if one.at_ms >= NOW_MS - HOUR_MS]
    assert all(one["paused"] and not one["acked"] for one in recent)
    assert recent[-1]["queue_length"] > recent[0]["queue_length"] > 0


def test_the_processes_of_the_past_did_what_the_queues_say_and_were_replaced() -> None:
    events = past_of("payments", "imports")
    flushes = list(past_flushes(events, now_ms=NOW_MS))
    assert flushes[-1].at_ms <= NOW_MS - DEPLOYED_AGO_MS
    at_ms = flushes[-1].at_ms
    acks = sum(one.event.values.get("acks", 0) for one in flushes if one.at_ms == at_ms)
    assert acks == sum(one.event.values["acked"] for one in events if one.at_ms == at_ms)
    assert {one.event.dimensions[0] for one in flushes} == {"api", "worker"}
