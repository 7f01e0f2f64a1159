"""The past of the demo is one that the queues could have had."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from itertools import pairwise

import pytest

from weir.demo.past_events import FINE_MS, PastEvent, past, steps
from weir.demo.past_incidents import (
    QUEUES as QUEUES_HIT,
)
from weir.demo.past_incidents import (
    IncidentKind,
    PastIncident,
    past_deploys,
    past_incidents,
)
from weir.demo.past_processes import DEPLOYED_AGO_MS, past_flushes
from weir.demo.scenario import SHOP, Incidents, Tenant
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


def depths(name: str, start_ms: int, end_ms: int) -> list[int]:
    return [one.event.values["queue_length"] for one in past_of(name) if start_ms <= one.at_ms < end_ms]


@pytest.mark.parametrize("incident", past_incidents(INCIDENTS.first_ms), ids=lambda one: str(one.kind))
def test_every_incident_shows_and_its_queue_recovers(incident: PastIncident) -> None:
    queue, hour_ms = QUEUES_HIT[incident.kind], HOUR_MS
    if incident.kind is IncidentKind.POISONED_IMPORT:
        dead = sum(
            one.event.values["dead"]
            for one in past_of(queue)
            if incident.start_ms <= one.at_ms < incident.end_ms
        )
        assert dead > 1_000
    else:
        assert max(depths(queue, incident.start_ms, incident.end_ms + MINUTE_MS)) > 200
    calm = depths(queue, incident.end_ms + hour_ms, incident.end_ms + 2 * hour_ms)
    assert not calm or min(calm) < 20


def test_no_week_has_more_than_four_incidents_and_all_kinds_come() -> None:
    found = past_incidents(NOW_MS)
    weeks = [(NOW_MS - one.start_ms) // (7 * 24 * HOUR_MS) for one in found]
    assert all(1 <= weeks.count(week) <= 4 for week in range(4))
    assert {one.kind for one in found} == set(IncidentKind)


def test_a_bad_deploy_goes_out_on_a_working_day_and_comes_back_when_it_is_over() -> None:
    for now_ms in range(NOW_MS, NOW_MS + 7 * 24 * HOUR_MS, 24 * HOUR_MS):
        bad = [one for one in past_incidents(now_ms) if one.kind is IncidentKind.BAD_DEPLOY]
        assert all(datetime.fromtimestamp(one.start_ms / 1_000, UTC).weekday() < 5 for one in bad)
        deploys = {one.at_ms: one.text for one in past_deploys(now_ms)}
        for one in bad:
            version = deploys[one.start_ms].removesuffix(" out")
            assert deploys[one.end_ms].startswith(f"{version} taken back")


def test_the_last_hours_are_calm_until_the_running_demo_has_its_first_incident() -> None:
    assert max(depths("payments", NOW_MS - HOUR_MS, NOW_MS)) < 20


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
