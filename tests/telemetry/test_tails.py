"""Where the streams end, asked by many at once."""

from __future__ import annotations

import asyncio

from weir.redis_client import connect
from weir.telemetry.streams import stream_key
from weir.telemetry.tails import RedisTails


async def test_more_shards_and_callers_than_connections_wait_their_turn(redis_url: str) -> None:
    client = connect(redis_url, max_connections=2)
    try:
        await client.xadd(stream_key("tails-test", 3), {"e": b"x"}, id="7-1")
        tails = RedisTails(client, shards=64)
        answers = await asyncio.gather(*(tails.tails("tails-test") for _ in range(4)))
        assert answers == [{3: (7, 1)}] * 4
    finally:
        await client.aclose()
