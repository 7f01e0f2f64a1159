"""The `key` of a webhook is a text of at most 255 bytes, whatever its expression answers."""

from __future__ import annotations

import pytest

from weir.errors import InvalidInput
from weir.workers.variables import received_key

ABOUT = {"headers": {}, "source_ip": "", "received_at_ms": 0, "webhook": "w"}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("payload.id", "a"),
        ("payload.n", "1"),
        ("[payload.id, payload.n]", '["a",1]'),
        ("{1: payload.id}", '{"1":"a"}'),
        ("null", "null"),
    ],
)
def test_any_value_with_a_json_form_is_a_key(text: str, key: str) -> None:
    assert received_key(text, b'{"id":"a","n":1}', ABOUT) == key


@pytest.mark.parametrize("text", ["''", "payload.long", "[payload.long]", "payload.line"])
def test_what_is_no_key_has_a_digest_that_is_one(text: str) -> None:
    body = b'{"long":"%s","line":"a\\nb"}' % (b"x" * 300)
    assert received_key(text, body, ABOUT).startswith("sha256:")


def test_a_value_without_a_json_form_is_refused() -> None:
    with pytest.raises(InvalidInput, match="has no JSON form, so it is no key"):
        received_key("payload", b"[" * 300 + b"]" * 300, ABOUT)
