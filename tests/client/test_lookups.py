"""The client looks up messages and dead letters, and asks whether the server answers."""

from __future__ import annotations

import pytest

from weir import ApiError, Unreachable, Weir

from .place import QUEUE, Place


def test_a_ping_tells_a_server_that_is_away_from_a_token_that_is_wrong(place: Place) -> None:
    with Weir(place.api.url, token=place.token) as weir:
        weir.ping()
    with Weir(place.api.url, token="weir_wrong") as weir, pytest.raises(ApiError) as refused:
        weir.ping()
    assert refused.value.status == 401
    with Weir("http://127.0.0.1:1", retry_attempts=1) as weir, pytest.raises(Unreachable):
        weir.ping()


def test_a_message_is_found_by_its_idempotency_key_and_shown(place: Place) -> None:
    with Weir(place.api.url, token=place.token) as weir:
        pushed = weir.push(QUEUE, {"order": 7}, idempotency_key="a/b &c=d")
        found = weir.find_message(QUEUE, idempotency_key="a/b &c=d")
        assert found is not None
        assert found == pushed.id
        assert weir.find_message(QUEUE, idempotency_key="another") is None
        shown = weir.message(found)
    assert (shown["state"], shown["queue"], shown["message"]["payload"]) == ("ready", QUEUE, {"order": 7})


def test_a_message_that_did_not_die_has_no_dead_letter(place: Place) -> None:
    with Weir(place.api.url, token=place.token) as weir:
        pushed = weir.push(QUEUE, {"order": 7})
        with pytest.raises(ApiError) as refused:
            weir.dead_letter(str(pushed.id), queue=QUEUE)
    assert refused.value.status == 404
