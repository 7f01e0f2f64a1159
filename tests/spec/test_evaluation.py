"""Where expressions are evaluated, and that the worst ones cost nobody but their author."""

from __future__ import annotations

import asyncio
import json
import os
import time
from contextlib import asynccontextmanager

import pytest

from benches.worst_expressions import payloads, worst_expressions
from weir.deadletters.filters import value_of
from weir.errors import InvalidInput, OverBudget
from weir.spec.cel import compile_expression
from weir.spec.evaluation import IN_PLACE_BYTES, answer_each, evaluated, evaluated_each, json_value

WORST = worst_expressions()
PAYLOADS = payloads()
HELD_S = 0.05
"""Processor time of the loop's thread between two turns; the machine of the tests may be busy."""


def where(text, payload, values):
    return os.getpid(), value_of(text, payload, values)


def slow(payload, values):
    time.sleep(0)
    end_s = time.process_time() + 0.3
    while time.process_time() < end_s:
        pass
    return os.getpid()


@asynccontextmanager
async def loop_that_is_not_held():
    """Fail if the event loop was held meanwhile."""
    longest_s, last_s = 0.0, time.thread_time()

    async def look():
        nonlocal longest_s, last_s
        while True:
            await asyncio.sleep(0.002)
            now_s = time.thread_time()
            longest_s, last_s = max(longest_s, now_s - last_s), now_s

    looking = asyncio.ensure_future(look())
    yield
    looking.cancel()
    assert longest_s < HELD_S, f"the loop was held for {longest_s * 1_000:.0f} ms"


async def evaluate(text, payload):
    return await evaluated(
        *(where, text, payload, {}),
        compiled=compile_expression(text),
        size=len(payload),
        owner="a",
        what=f"`{text}`",
    )


async def evaluate_each(text, *raw, answer=value_of):
    return await evaluated_each(
        *(answer, text),
        records=[(payload, {}) for payload in raw],
        compiled=compile_expression(text),
        owner="a",
        what=f"`{text}`",
    )


@pytest.mark.parametrize(
    ("text", "payload"),
    [
        ("payload.x == 1", b'{"x":1}'),
        ("payload.s.replace('a', 'b') == ''", b'{"s":"' + b"a" * 10_000 + b'"}'),
        ("payload.x.split(',').size()", b'{"x":"a,b"}'),
    ],
)
async def test_what_is_small_runs_in_place(text, payload):
    assert (await evaluate(text, payload))[0] == os.getpid()


@pytest.mark.parametrize(
    ("text", "payload"),
    [
        ("payload.all(a, a > 0)", b"[1]"),
        ("payload.s.matches('a+')", b'{"s":"a"}'),
        ("payload.x == 1", b'{"x":1,"s":"' + b"a" * IN_PLACE_BYTES + b'"}'),
        ("payload.s.replace('a', payload.t) != ''", json.dumps({"s": "a" * 500, "t": "b" * 1000}).encode()),
    ],
)
async def test_what_is_not_provably_small_runs_in_the_box(text, payload):
    pid, value = await evaluate(text, payload)
    assert pid != os.getpid()
    assert value is True


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("[" + ",".join(["payload"] * 100) + "]", 160),
        ("payload.a + payload.b", 8_000),
        ("payload.a == payload.b", 16_000),
        ("payload.s.replace('a', 'b') == payload.t.trim()", 8_000),
    ],
)
async def test_what_is_converted_several_times_must_be_smaller_to_run_in_place(text, most):
    async def runs_here(size):
        payload = json.dumps({"a": "a" * size, "b": "b", "s": "s", "t": "t"}).encode()
        return (await evaluate(text, payload))[0] == os.getpid()

    assert await runs_here(most - 100)
    assert not await runs_here(most + 500)


async def test_many_small_records_and_large_variables_do_not_run_in_place():
    async def runs_here(records):
        answers = await evaluated_each(
            *(where, "headers == headers"),
            records=records,
            compiled=compile_expression("headers == headers"),
            owner="a",
            what="it",
        )
        return {pid for pid, _ in answers} == {os.getpid()}

    assert await runs_here([(None, {"headers": {"a": "b"}})] * 50)
    assert not await runs_here([(None, {"headers": {"a": "b"}})] * 500)
    assert not await runs_here([(None, {"headers": {str(n): "" for n in range(5_000)}})])


async def test_a_value_that_is_too_large_to_be_taken_apart_is_refused():
    text = "payload.s.replace('x', 'xxxxxxxxxx')"
    with pytest.raises(OverBudget, match="has a result of more than 4 MiB"):
        await evaluate(text, json.dumps({"s": "x" * 900_000}).encode())


@pytest.mark.parametrize(("name", "text"), WORST, ids=[text[:60] for _, text in WORST])
async def test_the_worst_expressions_end_within_their_budget_and_hold_no_loop(name, text):
    async with loop_that_is_not_held():
        (ended,) = await asyncio.gather(evaluate_each(text, *[PAYLOADS[name]] * 2), return_exceptions=True)
        if isinstance(ended, OverBudget):
            assert ended.message.startswith(f"`{text}`")
            assert ended.extra["item"] < 2
        else:
            assert [isinstance(answer, (bool, InvalidInput)) for answer in ended] == [True] * 2
        assert await evaluate_each("payload.all(x, x == 1)", b"[1]") == [True]


async def test_a_thousand_payloads_of_100_kb_hold_no_loop():
    raw = [PAYLOADS["objects"]] * 100
    async with loop_that_is_not_held():
        for _ in range(10):
            assert await evaluate_each("payload.x == 1", *raw) == [True] * 100


async def test_each_payload_has_an_answer_or_a_reason_of_its_own():
    answers = await evaluate_each(
        "payload.order == 1",
        *(b'{"order":1,"name":"\\ud83d"}', b'{"order":2}', b"{}", b"not JSON", b"\xff"),
        b'{"order":1,"name":"a\\u0000b"}',
        b'{"order":1,"n":18446744073709551616,"m":9007199254740993}',
        b'{"order":1,"a":' + b"[" * 990 + b"]" * 990 + b"}",
    )
    assert [answers[place] for place in (0, 1, 5, 6, 7)] == [True, False, True, True, True]
    assert [isinstance(answer, InvalidInput) for answer in answers[2:5]] == [True] * 3


async def test_a_batch_takes_turns_and_an_endless_one_is_over_its_budget(monkeypatch):
    assert len(answer_each([(b"1", {})] * 9, slow)[0]) == 4
    monkeypatch.setattr("weir.spec.evaluation.BATCH_S", 1.0)
    with pytest.raises(OverBudget, match=r"used 1 s of processor time for \d of 30") as caught:
        await evaluated_each(
            slow,
            records=[(b"x" * IN_PLACE_BYTES, {})] * 30,
            compiled=compile_expression("payload.all(x, x)"),
            owner="a",
            what="it",
        )
    assert caught.value.extra["item"] < 30


def test_payloads_are_read_as_the_engine_can_read_them():
    assert json_value(b'{"a":"\\ud83d"}') == {"a": "�"}
    assert json_value(b'{"a":"\\ud83d\\ude00"}') == {"a": "😀"}
    assert json_value(b"9007199254740993") == 9007199254740993
    assert json_value(b"18446744073709551616") == 2.0**64
    assert json_value(b"{") is None
    assert json_value(b"[" * 100_000) is None
