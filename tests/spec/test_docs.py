"""The examples in the reference are real: they are read here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from weir.spec.fmt import formatted
from weir.spec.language import read_spec
from weir.spec.parse import parse

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "spec.md"
EXAMPLES = re.findall(r"```weir\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("text", EXAMPLES)
def test_an_example_of_the_reference_is_a_good_spec(text):
    app = read_spec(text, file="spec.md")
    assert read_spec(formatted(parse(text))) == app


def test_there_are_examples():
    assert EXAMPLES
