"""Expressions: what they mean, and that nothing but InvalidInput ever comes out."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.errors import InvalidInput
from weir.spec.cel import compile_expression, compile_mapping


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


@pytest.mark.parametrize("text", ["", "  ", "a" * 1025, "a.map(x, b.map(y, c.map(z, 1)))", "\x00", "\ud800"])
def test_an_expression_outside_the_limits_is_refused(text):
    with pytest.raises(InvalidInput):
        compile_expression(text)


def test_a_comprehension_over_a_long_list_is_refused_before_it_runs():
    expression = compile_expression("a.map(x, a.map(y, x * y)).size() > 0")
    with pytest.raises(InvalidInput, match="1000 are allowed"):
        expression.evaluate({"a": list(range(5_000))})


@given(st.text(max_size=80))
def test_no_text_escapes_the_error_tree(text):
    with contextlib.suppress(InvalidInput):
        compile_expression(text).evaluate({"a": 1})
