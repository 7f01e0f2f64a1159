"""Documents of the API as people read them."""

from __future__ import annotations

from weir.cli.output import flat_fields


def test_a_time_that_is_not_set_is_named_like_one_that_is() -> None:
    document = {"delivery": {"lease_ms": 30_000, "handler_timeout_ms": None}, "paused": False}
    assert flat_fields(document) == [
        ("delivery lease", "30 s"),
        ("delivery handler timeout", ""),
        ("paused", "no"),
    ]
