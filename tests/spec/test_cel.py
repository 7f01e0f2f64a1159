"""Expressions: what they mean, and that nothing but InvalidInput ever comes out."""

from __future__ import annotations

import contextlib
import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.errors import InvalidInput
from weir.spec.cel import compile_expression, compile_mapping, readable


def test_an_expression_is_evaluated_over_its_variables():
    expression = compile_expression('payload.urgency == "high" ? "critical" : "low"')
    assert expression.variables == {"payload"}
    assert expression.evaluate({"payload": {"urgency": "high"}}) == "critical"


def test_several_expressions_share_one_set_of_variables():
    inputs = compile_mapping((("a", "x + 1"), ("b", "y.lowerAscii()")))
    assert inputs.variables == {"x", "y"}
    assert inputs.evaluate({"x": 1, "y": "ABC"}) == {"a": 2, "b": "abc"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("lists.range(3).map(x, x * 2)", [0, 2, 4]),
        ("math.greatest(1, 5)", 5),
        ("min(3, 2) + size('ab')", 4),
        ("['b', 'a'].sort().join('-')", "a-b"),
        ("base64.encode(b'hi')", "aGk="),
        ("strings.quote('a')", '"a"'),
    ],
)
def test_an_expression_may_call_what_the_library_has(text, value):
    assert compile_expression(text).evaluate({}) == value
    assert compile_mapping((("it", text),)).evaluate({}) == {"it": value}


@pytest.mark.parametrize(
    "text", ["1/0", "a.missing", "nowhere", "a + 1", "int('x')", "9223372036854775807 + 1", "a[7]"]
)
def test_an_evaluation_that_fails_is_invalid_input(text):
    with pytest.raises(InvalidInput):
        compile_expression(text).evaluate({"a": {"b": 1}})


def test_a_broken_expression_says_where():
    with pytest.raises(InvalidInput) as caught:
        compile_expression("payload. + 1")
    assert caught.value.extra["offset"] == 9


@pytest.mark.parametrize("text", ["", "  ", "a" * 1025, "(" * 33 + "1" + ")" * 33, "\x00", "\ud800"])
def test_an_expression_outside_the_limits_is_refused(text):
    with pytest.raises(InvalidInput):
        compile_expression(text)


@pytest.mark.parametrize(
    "text",
    [
        "a.all(x, a.all(y, x >= 0 || y >= 0))",
        "a.all//\n(x, a.all//\n(y, x >= 0 || y >= 0))",
        r"r'\d.map(' != '' && a.all(x, a.all(y, x >= 0 || y >= 0))",
    ],
)
def test_comprehensions_end_after_so_many_steps_however_they_are_written(text):
    expression = compile_expression(text)
    assert not expression.cheap
    with pytest.raises(InvalidInput, match="more than 10,000 steps"):
        expression.evaluate({"a": list(range(999))})


@pytest.mark.parametrize(
    "text",
    [
        "a.replace('a', a)",
        "a.split('').join(a)",
        "a.replace('a', 'aaaaaaaaaa').replace('a', 'aaaaaaaaaa')",
    ],
)
def test_a_text_function_does_not_multiply_a_text_without_end(text):
    with pytest.raises(InvalidInput, match="too many characters and values"):
        compile_expression(text).evaluate({"a": "a" * 40_000})


@pytest.mark.parametrize(
    ("text", "cheap"),
    [
        ("payload.x == 1", True),
        ("has(payload.x) && payload.x in [1, 2]", True),
        ("payload.s.replace('a', 'b')", True),
        ("payload.l.exists(x, x == 1)", False),
        ("payload.l.map // a comment\n (x, x)", False),
        ("payload.s.matches('a+')", False),
        ("payload" + ".trim()" * 9, False),
    ],
)
def test_what_is_not_provably_small_is_not_cheap(text, cheap):
    assert compile_expression(text).cheap is cheap


def test_the_names_of_an_expression_are_those_that_it_does_not_bind():
    assert compile_expression("a.map(x, x + b).exists(x, x == y)").variables == {"a", "b", "y"}
    assert compile_expression("x + a.map(x, x)[0]").variables == {"x", "a"}
    assert compile_expression("math.greatest(a, 1)").variables == {"a"}


@pytest.mark.parametrize("name", ["type", "list", "map", "string", "int", "math", "timestamp"])
def test_a_field_may_have_the_name_of_a_type_or_a_namespace(name):
    assert compile_expression(f"{name} == 'x'").evaluate({name: "x"}) is True


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("half \ud83d", "half \ufffd"),
        ("a\x00b", "a\x00b"),
        (2**53 + 1, 2**53 + 1),
        (2**63, 2**63),
        (2**64, float(2**64)),
        (-(2**63) - 1, -float(2**63)),
        (10**400, "Infinity"),
    ],
)
def test_odd_values_reach_the_expression(value, seen):
    answer = compile_expression("a").evaluate({"a": readable(value)})
    assert answer == (math.inf if seen == "Infinity" else seen)


def test_a_text_with_half_a_pair_that_nobody_made_readable_is_invalid_input():
    with pytest.raises(InvalidInput, match="surrogate"):
        compile_expression("a + ''").evaluate({"a": "\ud83d"})


def test_an_unknown_function_is_found_with_its_place():
    with pytest.raises(
        InvalidInput, match=r"there is no function `indexof`; did you mean `indexOf`\?"
    ) as caught:
        compile_expression("payload.s.indexof('a')")
    assert (caught.value.extra["offset"], caught.value.extra["length"]) == (10, 7)


def test_wrong_types_of_literals_are_found_when_it_is_compiled():
    with pytest.raises(InvalidInput) as caught:
        compile_expression("payload.a == 1 && 'x' + 1 == ''")
    assert caught.value.extra["offset"] == 22


@pytest.mark.parametrize(
    "value",
    [1, 2**63, 1.5, True, None, "a\x00b", "é", [1, {"c": "x\x00"}], {"c": [None]}],
    ids=repr,
)
def test_a_value_that_is_only_looked_up_is_what_the_engine_would_answer(value):
    variables = {"a": readable({"b": value})}
    looked_up = compile_expression("a.b")
    assert looked_up.path == ("a", "b")
    assert compile_expression("dyn(a.b)").path == ()
    assert looked_up.evaluate(variables) == compile_expression("dyn(a.b)").evaluate(variables) == value


AT = datetime(2026, 1, 31, 4, 5, 6, 789000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("at", AT),
        ("at.getHours() + at.getMilliseconds()", 793),
        ("string(at)", "2026-01-31T04:05:06.789Z"),
        ("at > timestamp('2026-01-01T00:00:00Z')", True),
        ("message.enqueued_at", AT),
        ("message.enqueued_at.getDate()", 31),
        ("message.id + ' ' + string(message.enqueued_at)", "m 2026-01-31T04:05:06.789Z"),
        ("[at, message.enqueued_at]", [AT, AT]),
        ("times.exists(t, t == at)", True),
        ("days['x'] == at && days.y > at", True),
        ("message", {"id": "m", "enqueued_at": AT}),
    ],
)
def test_times_are_times_wherever_they_are(text, value):
    variables = {
        "at": AT,
        "message": {"id": "m", "enqueued_at": AT},
        "times": [AT, AT],
        "days": {"x": AT, "y": AT + timedelta(1)},
    }
    assert compile_expression(text).evaluate(variables) == value


@pytest.mark.parametrize("a", [{}, None, 1, [], {"c": 1}])
def test_a_value_that_is_not_there_is_the_same_mistake(a):
    mistakes = []
    for text in ("a.b", "dyn(a.b)"):
        with pytest.raises(InvalidInput) as caught:
            compile_expression(text).evaluate({"a": a})
        mistakes.append(caught.value.message.removeprefix(f"`{text}`"))
    assert mistakes[0] == mistakes[1]
    assert compile_expression("has(a.b)").path == ()


def test_exists_and_all_absorb_errors():
    assert compile_expression("a.exists(x, x.b == 1)").evaluate({"a": [{}, {"b": 1}]}) is True
    assert compile_expression("a.all(x, x.b == 1)").evaluate({"a": [{}, {"b": 2}]}) is False


@given(st.text(max_size=80))
def test_no_text_escapes_the_error_tree(text):
    with contextlib.suppress(InvalidInput):
        compile_expression(text).evaluate({"a": 1})
