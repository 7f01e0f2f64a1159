"""Whatever fails in between: a producer's messages stay in order, none is lost, none comes twice."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weir.control.database import Database
from weir.control.sql import NamedQuery
from weir.model.names import EnvironmentRef

from .cluster import Cluster, Link

Action = tuple[str, int, object]

AT = st.integers(0, 1)
KEYS = st.lists(st.sampled_from("abc"), min_size=1, max_size=4)
ACTIONS = st.one_of(
    st.tuples(st.just("push"), AT, KEYS),
    st.tuples(st.just("push"), AT, KEYS),
    st.tuples(st.just("keep"), AT, st.none()),
    st.tuples(st.just("busy"), AT, st.booleans()),
    st.tuples(st.just("link"), AT, st.sampled_from(Link)),
    st.tuples(st.just("late"), AT, st.none()),
    st.tuples(st.just("round"), AT, st.sampled_from([None, None, "enqueue", "open_gates"])),
    st.tuples(st.just("time_out"), AT, st.none()),
    st.tuples(st.just("consume"), AT, st.none()),
)


_EMPTY = NamedQuery(
    name="empty",
    sentence="Forget the last example.",
    text="TRUNCATE weir.operations, weir.operation_lanes, weir.direct_leases",
)


async def act(cluster: Cluster, action: Action) -> None:
    verb, at, value = action
    if verb == "push":
        await cluster.push(at, value)  # type: ignore[arg-type]
    elif verb == "keep":
        await cluster.keep(at)
    elif verb == "busy":
        cluster.processes[at].admission.in_flight = 10_000 if value else 0
    elif verb == "link":
        cluster.links[at].link = Link(value)
    elif verb == "late":
        await cluster.links[at].deliver_late()
    elif verb == "round":
        await cluster.run_round(at, crash_after=value)  # type: ignore[arg-type]
    elif verb == "time_out":
        await cluster.time_out_claims()
    else:
        await cluster.consume()


def play(database_url: str, actions: list[Action]) -> Cluster:
    async def scene() -> Cluster:
        scope = EnvironmentRef(organization=uuid4().hex, project="p", environment="e")
        async with Database(database_url) as database:
            await database.execute(_EMPTY)
            cluster = await Cluster.start(database, scope)
            for at in (0, 1):
                await cluster.keep(at)
            for action in actions:
                await act(cluster, action)
            await cluster.settle()
        return cluster

    return asyncio.run(scene())


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(actions=st.lists(ACTIONS, max_size=25))
def test_any_mixture_of_direct_and_queued_keeps_order_through_faults(
    database_url: str, actions: list[Action]
) -> None:
    cluster = play(database_url, actions)
    assert cluster.consumed == cluster.accepted


def test_a_push_whose_answer_was_lost_is_not_pushed_again(database_url: str) -> None:
    cluster = play(
        database_url,
        [
            ("link", 0, Link.DEAF),
            ("push", 0, ["a", "b", "a"]),
            ("consume", 0, None),
            ("link", 0, Link.UP),
            ("push", 0, ["a"]),
        ],
    )
    assert cluster.consumed == {"a": ["a1", "a3", "a4"], "b": ["b2"]}


def test_a_push_that_arrives_after_its_operation_ran_changes_nothing(database_url: str) -> None:
    cluster = play(
        database_url,
        [
            ("link", 0, Link.LATE),
            ("push", 0, ["a"]),
            ("keep", 1, None),
            ("round", 1, None),
            ("push", 1, ["a"]),
            ("consume", 0, None),
            ("late", 0, None),
            ("consume", 0, None),
        ],
    )
    assert cluster.consumed == {"a": ["a1", "a2"]}


def test_another_process_does_not_overtake_what_was_queued_without_a_gate(database_url: str) -> None:
    cluster = play(
        database_url,
        [
            ("link", 0, Link.CUT),
            ("push", 0, ["a"]),
            ("push", 1, ["a"]),
            ("keep", 1, None),
            ("push", 1, ["a"]),
        ],
    )
    assert cluster.consumed == {"a": ["a1", "a2", "a3"]}


def test_a_processor_that_dies_in_the_middle_is_taken_over_without_pushing_twice(database_url: str) -> None:
    cluster = play(
        database_url,
        [
            ("busy", 0, True),
            ("push", 0, ["a"]),
            ("push", 0, ["a", "b"]),
            ("round", 0, "enqueue"),
            ("consume", 0, None),
            ("time_out", 0, None),
            ("round", 1, None),
            ("busy", 0, False),
            ("push", 0, ["a"]),
        ],
    )
    assert cluster.consumed == {"a": ["a1", "a2", "a4"], "b": ["b3"]}
