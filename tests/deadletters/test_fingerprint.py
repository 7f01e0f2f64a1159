"""Errors that differ only in ids, numbers and addresses are one group."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.deadletters.fingerprint import MAX_TEMPLATE, fingerprint, normalise


@pytest.mark.parametrize(
    ("error", "template"),
    [
        ("order 4711 not found", "order <n> not found"),
        ("order-4711 took 3.5e2 ms", "order-<n> took <n> ms"),
        ("user 018f3c5e-7b2a-7cc0-8000-1234567890ab is gone", "user <uuid> is gone"),
        ("connect to 10.0.0.17:5432 refused", "connect to <address> refused"),
        ("connect to [fe80::1:2:3:4]:443 refused", "connect to [<address> refused"),
        ("GET https://api.example.com/v1/orders/17?x=1 answered 503", "GET <url> answered <n>"),
        ("mail to ann.b+7@mail.example.org bounced", "mail to <email> bounced"),
        ("at 2026-01-31T12:00:00.123Z it broke", "at <time> it broke"),
        ("object at 0x7f3a12 and sha deadbeef01", "object at <hex> and sha <hex>"),
        ("key sk_live_4eC39HqLyjWDarjtT1zdp7dc expired", "key <id> expired"),
        ("worker7  said\n\tno", "worker<n> said no"),
        (
            'Traceback (most recent call last):\n  File "a.py", line 3, in f\nKeyError: 17',
            "KeyError: <n>",
        ),
    ],
)
def test_what_differs_from_one_occurrence_to_the_next_is_taken_out(error: str, template: str) -> None:
    assert normalise(error) == template


@given(st.text(max_size=400))
def test_the_template_is_stable_bounded_and_without_digits(error: str) -> None:
    template = normalise(error)
    assert normalise(template) == template
    assert len(template) <= MAX_TEMPLATE
    assert re.search(r"\d", template) is None
    assert len(fingerprint(error, reason="attempts").value) == 16


@given(
    st.from_regex(r"[a-z]{1,8} [a-z]{1,8}", fullmatch=True),
    # Of 32 digits it could be a UUID without dashes.
    st.integers(min_value=-(10**30), max_value=10**30),
    st.uuids(),
    st.ip_addresses(v=4),
)
def test_numbers_ids_and_addresses_never_split_a_group(words: str, n: int, uuid: object, ip: object) -> None:
    one = fingerprint(f"{words}: {n} for {uuid} from {ip}", reason="attempts")
    other = fingerprint(
        f"{words}: 7 for 018f3c5e-7b2a-7cc0-8000-1234567890ab from 10.0.0.1", reason="attempts"
    )
    assert one == other


def test_different_errors_are_different_groups_and_no_error_is_grouped_by_its_reason() -> None:
    refused, timeout = (fingerprint(text, reason="attempts") for text in ("refused", "timed out"))
    assert refused.value != timeout.value
    assert fingerprint("", reason="expired").template == "(expired)"
    assert fingerprint("", reason="expired").value != fingerprint("", reason="lapsed").value


@pytest.mark.parametrize(
    "text", ["a" * 100_000, "a.b@" * 20_000, "f:" * 50_000, "0" * 90_000, "x://" * 20_000]
)
def test_hostile_errors_take_no_time(text: str) -> None:
    began = time.process_time()
    normalise(text)
    assert time.process_time() - began < 0.2
