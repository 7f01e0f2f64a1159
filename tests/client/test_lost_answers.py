"""The answer to a settlement is lost after its effect: the client asks again, and is told what it did."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from support.tcp_proxy import TcpProxy
from weir import ApiError, AsyncWeir, OutgoingMessage

from .place import QUEUE, Place


@pytest.fixture
async def proxy(place: Place) -> AsyncIterator[TcpProxy]:
    async with TcpProxy.to(place.api.url) as proxy:
        yield proxy


@pytest.fixture
async def weir(place: Place, proxy: TcpProxy) -> AsyncIterator[AsyncWeir]:
    async with AsyncWeir(proxy.url, token=place.token, retry_delay=0.01) as weir:
        yield weir


async def test_an_ack_says_acked(weir: AsyncWeir, proxy: TcpProxy) -> None:
    await weir.push(QUEUE, 1)
    (message,) = await weir.pop(QUEUE)
    proxy.drop_next_reply()
    assert await weir.ack(message) == "acked"
    with pytest.raises(ApiError):
        await weir.nack(message)


async def test_a_nack_says_nacked(weir: AsyncWeir, proxy: TcpProxy) -> None:
    await weir.push(QUEUE, 1)
    (message,) = await weir.pop(QUEUE)
    proxy.drop_next_reply()
    assert await weir.nack(message, delay=60) == "nacked"


async def test_an_ack_of_many_says_what_became_of_each(weir: AsyncWeir, proxy: TcpProxy) -> None:
    await weir.push_many([OutgoingMessage(queue=QUEUE, payload=n) for n in range(20)])
    messages = [*await weir.pop(QUEUE, limit=15), *await weir.pop(QUEUE, limit=5)]
    await weir.nack(messages[3], dead_letter=True)
    proxy.drop_next_reply()
    statuses = await weir.ack_many(messages)
    assert statuses == ["lapsed" if at == 3 else "acked" for at in range(20)]


@pytest.mark.parametrize("leased", [False, True])
async def test_a_cancel_says_that_it_cancelled(weir: AsyncWeir, proxy: TcpProxy, leased: bool) -> None:
    pushed = await weir.push(QUEUE, 1)
    assert pushed.id is not None
    if leased:
        await weir.pop(QUEUE)
    proxy.drop_next_reply()
    assert await weir.cancel(pushed.id)
    done = await weir.push(QUEUE, 2)
    assert done.id is not None
    (message,) = await weir.pop(QUEUE)
    await weir.ack(message)
    assert not await weir.cancel(done.id)
