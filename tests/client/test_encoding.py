"""Values become JSON, quickly or always in the same bytes; what one way refuses, the other refuses too."""

from __future__ import annotations

import json
import math
from collections import ChainMap
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Any, TypeAlias
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.client.encoding import decode, encode, encode_quickly

Way: TypeAlias = Callable[[Any], bytes]
BOTH = pytest.mark.parametrize("way", [encode, encode_quickly])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


class Colour(Enum):
    RED = "red"


class Size(IntEnum):
    SMALL = 1


@dataclass
class Order:
    number: int


@BOTH
@given(value=VALUES)
def test_what_was_encoded_is_read_as_it_was(way: Way, value: Any) -> None:
    assert json.loads(way(value)) == decode(way(value)) == value


@given(value=VALUES)
def test_what_is_decoded_has_the_types_that_python_gives_it(value: Any) -> None:
    data = json.dumps(value).encode()
    assert repr(decode(data)) == repr(json.loads(data))


@pytest.mark.parametrize(
    "text",
    [
        *(b'"\\ud800"', b"1e999", b"[NaN, -Infinity]", b'{"a":1,"a":2}', b"-0", b"-0.0", b"1E5", b"9" * 400),
        *(
            '{"a": "ü"}'.encode("utf-16"),
            b'\xef\xbb\xbf"bom"',
            b' "spaces" \n',
            b"0.1e-400",
            b"123456789.123456789",
        ),
    ],
)
def test_a_text_is_read_as_python_reads_it(text: bytes) -> None:
    assert repr(decode(text)) == repr(json.loads(text))


@pytest.mark.parametrize("text", [b"", b"{", b'{"a":}', b"01", b"\xff", b'"\xff"', b"[1,]", b"nul", b"'a'"])
def test_what_is_not_json_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        decode(text)


@BOTH
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("beside", [None, "null", 2**100])
def test_a_number_that_json_does_not_know_is_refused_wherever_it_stands(
    way: Way, number: float, beside: Any
) -> None:
    with pytest.raises(ValueError, match="JSON"):
        way({"list": [1, {"number": number}], "beside": beside})


@BOTH
@pytest.mark.parametrize(
    "value", [b"bytes", {1, 2}, Decimal("1.5"), datetime.now(UTC), datetime.now(UTC).date(), Order(number=1)]
)
@pytest.mark.parametrize("beside", [None, "text"])
def test_what_has_no_json_form_is_refused_wherever_it_stands(way: Way, value: Any, beside: Any) -> None:
    with pytest.raises(TypeError, match="no JSON form"):
        way({"value": value, "beside": beside})


@BOTH
@pytest.mark.parametrize("beside", [None, "text"])
@pytest.mark.parametrize(
    ("value", "written"),
    [
        (2**200, 2**200),
        ((1, 2), [1, 2]),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (ChainMap({"a": 1}, {"b": 2}), {"a": 1, "b": 2}),
        ({7: "a"}, {"7": "a"}),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (Colour.RED, "red"),
        (Size.SMALL, 1),
        ("\ud800", "\ud800"),
        ("grün \u2028", "grün \u2028"),
    ],
)
def test_a_value_has_one_form_whatever_stands_beside_it(
    way: Way, value: Any, written: Any, beside: Any
) -> None:
    assert json.loads(way({"value": value, "beside": beside})) == {"value": written, "beside": beside}


def test_a_payload_with_a_key_is_the_same_bytes_as_in_earlier_releases() -> None:
    assert encode({"name": "grün", "large": 1e16, "small": 0.00001}) == (
        b'{"name":"gr\\u00fcn","large":1e+16,"small":1e-05}'
    )
