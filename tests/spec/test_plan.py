"""Plans: what would change, and what is refused because messages would be lost."""

from __future__ import annotations

import pytest

from weir.spec.language import read_spec
from weir.spec.plan import Effect, Holding, plan

BASE = """
app A {
  queue Q { ordering: fifo  message_type { a: int }  retention { max_depth: 100 } }
  queue P {}
  webhook W { queue: P }
}
"""


def planned(after: str, **holdings: Holding):
    return plan(read_spec(BASE), read_spec(after), holdings)


def test_a_first_apply_adds_everything():
    found = plan(None, read_spec(BASE), {})
    assert {(change.effect, change.kind, change.name) for change in found.changes} == {
        (Effect.ADD, "queue", "Q"),
        (Effect.ADD, "queue", "P"),
        (Effect.ADD, "webhook", "W"),
    }


def test_the_same_spec_changes_nothing():
    assert planned(BASE).changes == ()


def test_a_change_names_its_path_with_before_and_after():
    (change,) = planned(BASE.replace("100", "200")).changes
    assert (change.path, change.before, change.after) == (("retention", "max_depth"), 100, 200)


@pytest.mark.parametrize(
    ("after", "holding"),
    [
        ("app A { queue P {} webhook W { queue: P } }", Holding(waiting=3)),
        ("app A { queue P {} webhook W { queue: P } }", Holding(running=1)),
        ("app A { queue P {} webhook W { queue: P } }", Holding(dead=2)),
        (BASE.replace("fifo", "unordered"), Holding(waiting=1)),
        (
            BASE.replace("max_depth: 100", "max_depth: 100  max_age: 1m"),
            Holding(waiting=1, oldest_age_ms=61_000),
        ),
        (BASE.replace("a: int", "a: string"), Holding(waiting=1)),
        (BASE.replace("a: int", "a: int, b: string"), Holding(waiting=1)),
    ],
)
def test_what_would_lose_messages_is_refused_while_there_are_any(after, holding):
    assert not planned(after, Q=holding).allowed
    assert planned(after).allowed


UNTYPED = "app A { queue Q {} }"


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [("a: int", False), ("a: int?", True), ("a: json", True), ("a: json, b: string", False)],
)
def test_a_first_message_type_must_fit_the_messages_that_wait(fields, allowed):
    typed = read_spec(f"app A {{ queue Q {{ message_type {{ {fields} }} }} }}")
    assert plan(read_spec(UNTYPED), typed, {"Q": Holding(waiting=1)}).allowed is allowed
    assert plan(read_spec(UNTYPED), typed, {}).allowed


def test_a_field_may_become_optional_and_an_optional_one_may_be_added():
    assert planned(BASE.replace("a: int", "a: int?, b: string?"), Q=Holding(waiting=5)).allowed


def test_a_depth_below_what_waits_is_allowed_with_a_warning():
    found = planned(BASE.replace("100", "5"), Q=Holding(waiting=50))
    assert found.allowed
    assert "max_depth" in found.warnings[0]


DYING = "app A { queue Q { delivery { dead_letter_queue: P } } queue P { AGE } webhook W { queue: P } }"


@pytest.mark.parametrize(
    ("before", "after", "warned"),
    [
        ("", "retention { max_age: 7d }", True),
        ("retention { max_age: 8d }", "retention { max_age: 7d }", True),
        ("retention { max_age: 6d }", "retention { max_age: 7d }", False),
        ("retention { max_age: 7d }", "", False),
    ],
)
def test_dead_letters_that_will_be_deleted_by_age_are_warned_about(before, after, warned):
    old, new = (read_spec(DYING.replace("AGE", age)) for age in (before, after))
    found = plan(old, new, {"Q": Holding(dead=12)})
    assert found.allowed
    expected = "queue `Q` has 12 dead letters; those older than 7 d will be deleted"
    assert any(warning.startswith(expected) for warning in found.warnings) is warned
    assert plan(old, new, {}).warnings == ()


def test_a_webhook_that_goes_away_is_warned_about():
    found = planned(BASE.replace("webhook W { queue: P }", ""))
    assert "401" in found.warnings[0]
