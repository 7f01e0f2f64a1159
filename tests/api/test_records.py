"""Objects written from columns are the objects that would have been written one by one."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.api.records import records

NUMBERS = (
    st.none() | st.booleans() | st.integers(0, 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
TEXTS = st.text(st.characters(blacklist_characters=",", blacklist_categories=("Cs",)))
OBJECTS = st.fixed_dictionaries(
    {
        "name": TEXTS,
        "100%": NUMBERS,
        "within": st.fixed_dictionaries({"few": st.sampled_from((0, 1)), "more": NUMBERS}),
        "last": st.fixed_dictionaries({"deep": st.fixed_dictionaries({"text": TEXTS})}),
    }
)


def written(objects: list[dict[str, Any]]) -> Any:
    shape = {
        "name": [one["name"] for one in objects],
        "100%": [one["100%"] for one in objects],
        "within": {
            "few": [one["within"]["few"] for one in objects],
            "more": [one["within"]["more"] for one in objects],
        },
        "last": {"deep": {"text": [one["last"]["deep"]["text"] for one in objects]}},
    }
    return orjson.loads(orjson.dumps({"all": records(shape)}))["all"]


@given(st.lists(OBJECTS, max_size=12))
def test_the_objects_come_out_as_they_are(objects: list[dict[str, Any]]) -> None:
    assert written(objects) == objects


@given(OBJECTS, st.integers(1, 5))
def test_objects_that_are_all_the_same_are_all_there(one: dict[str, Any], count: int) -> None:
    assert written([one] * count) == [one] * count


@pytest.mark.parametrize("column", [["a,b", "c"], [1], [1, 1, 1], [1, 1, 2]])
def test_columns_of_unequal_length_are_refused(column: list[Any]) -> None:
    with pytest.raises(ValueError, match="zip"):
        records({"first": [1, 2], "second": column})
