"""Slicing payloads out of requests: whatever the JSON around them, their bytes stay as they are."""

from __future__ import annotations

import json
from typing import Any

import orjson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weir.api.bodies import cut_payloads

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
SPACES = st.text(alphabet=" \t\r\n", max_size=3)


@st.composite
def written(draw: st.DrawFn, value: Any) -> str:
    """A value as JSON, in one of several styles."""
    indent = draw(st.sampled_from([None, 1]))
    return json.dumps(value, ensure_ascii=draw(st.booleans()), indent=indent)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_every_payload_is_cut_out_as_it_was_written(data: st.DataObject) -> None:
    def space() -> str:
        return data.draw(SPACES)

    payloads, items = [], []
    for _ in range(data.draw(st.integers(min_value=0, max_value=4))):
        members = []
        payload = None
        for name in data.draw(st.permutations(["queue", "payload", "paylo\\u0061d2", "key"])):
            text = data.draw(written(data.draw(VALUES)))
            if name == "payload":
                payload = text
            members.append(f'{space()}"{name}"{space()}:{space()}{text}{space()}')
        payloads.append(payload)
        items.append(f"{space()}{{{','.join(members)}}}{space()}")
    other = f'"other":{data.draw(written(data.draw(VALUES)))}'
    body = f'{space()}{{{space()}{other},{space()}"items"{space()}:{space()}[{",".join(items)}{space()}]}}'
    encoded = body.encode(errors="surrogatepass")
    try:
        orjson.loads(encoded)
    except orjson.JSONDecodeError:
        return
    found = cut_payloads(encoded)
    assert found == [None if text is None else text.encode() for text in payloads]
