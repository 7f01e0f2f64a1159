"""The page on expressions: each example in its tables is true, and it names each function."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from weir.spec.cel import compile_expression
from weir.spec.cel_functions import LISTED, MAX_RANGE, MOST_ARGUMENTS
from weir.spec.functions import FUNCTIONS, METHODS

PAGE = (Path(__file__).parents[2] / "docs/reference/expressions.md").read_text()
ROWS = re.findall(r"^\| ([^|]+) \| (`+)(.+)\2 \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("what", "example"), [(what, example) for what, _, example in ROWS])
def test_each_example_is_true(what, example):
    assert compile_expression(example).evaluate({}) is True


@pytest.mark.parametrize("name", sorted({*LISTED, *FUNCTIONS, *METHODS}))
def test_each_function_is_named_and_has_an_example(name):
    examples = " ".join(example for *_, example in ROWS)
    assert f"`{name}`" in PAGE
    assert f"{name}(" in examples


def test_the_page_names_the_limits():
    assert len(ROWS) > 20
    assert f"up to {MAX_RANGE:,}" in PAGE
    assert f"up to {MOST_ARGUMENTS} of them" in PAGE
