"""Requests that are still arriving have budgets of their own and take nothing from complete ones."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from weir.api.limits import Limits
from weir.errors import WeirError
from weir.serve.unfinished import GRACE_TICKS, UnfinishedRequests, client_of

from .wire import PATIENT, answer, connected, head, serving

FEW = replace(PATIENT, max_unfinished_per_client=20, max_unfinished=30)


class Request:
    """One that is arriving, and what it was told."""

    def __init__(self, client_key: str = "a", *, verified: bool = False, size: int = 0) -> None:
        self.client_key = client_key
        self.verified = verified
        self.in_body = True
        self.paused = False
        self.bytes_held = 0
        self.size = size
        self.told: WeirError | None = None
        self.all: UnfinishedRequests | None = None

    def refuse(self, error: WeirError) -> None:
        self.told = error
        assert self.all is not None
        self.all.discard(self)


def arrive(unfinished: UnfinishedRequests, requests: list[Request]) -> list[Request]:
    for request in requests:
        request.all = unfinished
        unfinished.add(request)
        unfinished.hold(request, request.size)
    return requests


async def looked(unfinished: UnfinishedRequests, times: int) -> None:
    """Let the watch look some times, whatever the clock says."""
    for _ in range(times):
        unfinished._sweep()


def ended(requests: list[Request]) -> list[bool]:
    return [request.told is not None for request in requests]


async def test_over_the_number_of_a_client_its_oldest_are_ended_and_nobody_elses() -> None:
    unfinished = UnfinishedRequests(replace(Limits(), max_unfinished_per_client=3))
    many = arrive(unfinished, [Request() for _ in range(5)])
    other = arrive(unfinished, [Request("b")])
    await looked(unfinished, GRACE_TICKS - 1)
    assert not any(ended(many))
    await looked(unfinished, 1)
    assert ended(many) == [True, True, False, False, False]
    assert not any(ended(other))
    assert many[0].told is not None
    assert many[0].told.status == 429


async def test_over_the_total_number_strangers_are_ended_before_holders_of_a_token() -> None:
    unfinished = UnfinishedRequests(replace(Limits(), max_unfinished=4, max_unfinished_per_client=4))
    holders = arrive(unfinished, [Request(f"holder {n}", verified=True) for n in range(3)])
    strangers = arrive(unfinished, [Request(f"stranger {n}") for n in range(3)])
    await looked(unfinished, GRACE_TICKS)
    assert not any(ended(holders))
    assert ended(strangers) == [True, True, False]


async def test_what_unfinished_requests_keep_in_memory_is_bounded_at_once() -> None:
    unfinished = UnfinishedRequests(replace(Limits(), max_unfinished_bytes=1_000))
    requests = arrive(unfinished, [Request(f"client {n}", size=300) for n in range(5)])
    assert ended(requests) == [True, True, False, False, False]


async def test_a_client_may_keep_its_share_of_the_memory_and_at_least_one_body() -> None:
    limits = replace(
        Limits(),
        max_body_bytes=500,
        max_unfinished_bytes=4_000,
        max_unfinished=8,
        max_unfinished_per_client=2,
    )
    unfinished = UnfinishedRequests(limits)
    large = arrive(unfinished, [Request(size=600), Request(size=600)])
    small = arrive(unfinished, [Request("b", size=450)])
    await looked(unfinished, 1)
    assert ended(large) == [True, False]
    assert not any(ended(small))


async def test_a_request_that_this_process_does_not_read_does_not_age() -> None:
    unfinished = UnfinishedRequests(replace(Limits(), body_timeout_s=1, header_timeout_s=1))
    (slow,) = arrive(unfinished, [Request()])
    slow.paused = True
    await looked(unfinished, 100)
    slow.paused = False
    await looked(unfinished, 3)
    assert slow.told is None
    await looked(unfinished, 1)
    assert slow.told is not None
    assert slow.told.status == 408


@pytest.mark.parametrize(
    ("host", "same", "other"),
    [
        ("192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"),
        ("2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1"),
        ("fe80::1%eth0", "fe80::2%eth0", "fe81::1"),
    ],
)
def test_a_client_is_an_address_or_half_of_an_ipv6_one(host: str, same: str, other: str) -> None:
    assert client_of(host) == client_of(same)
    assert client_of(host) != client_of(other)


async def test_unfinished_requests_of_a_client_do_not_hinder_its_finished_ones() -> None:
    async with serving(FEW) as port, AsyncExitStack() as stack:
        slow = [await stack.enter_async_context(connected(port)) for _ in range(60)]
        for _, writer in slow:
            writer.write(head(1_000) + b"z")
        turned_away = [asyncio.create_task(answer(reader)) for reader, _ in slow]
        async with connected(port) as (reader, writer):
            while sum(task.done() for task in turned_away) < 40:
                writer.write(head(5))
                await asyncio.sleep(0.01)
                writer.write(b"hello")
                assert await answer(reader) == (200, {"bytes": 5})
        told = [task for task in turned_away if task.done()]
        assert {task.result()[0] for task in told} == {429}
        # The client that finishes its requests counts while it is in the middle of one.
        assert len(told) in (40, 41)
        assert told == turned_away[: len(told)]
        for task in turned_away[len(told) :]:
            task.cancel()
