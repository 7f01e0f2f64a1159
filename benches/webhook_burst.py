"""The burst of the webhook bench: 10,000 webhooks at once, some of them twice, while a worker drains.

A sender waits for its answer before it sends the next, so with n connections and r answers a second the
mean answer takes n/r. All connections are opened inside the burst, and their first request counts: that is
where a server that takes newcomers slowly shows it. The wide burst is the same with four times as many.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import orjson

from benches.http_load import Load, generate
from benches.webhook_house import House, body_of, command, request_of
from weir.broker.redis import RedisBroker
from weir.model.ids import new_id
from weir.serve.bootstrap import DEFAULT

WEBHOOKS = 10_000
CONNECTIONS = 256
"""About what the delivery pools of some large providers hold open to one receiver together."""
WIDE_CONNECTIONS = 1_000
REPEAT_EVERY = 20
QUEUE = DEFAULT.queue("Burst")


async def burst(house: House) -> dict[str, Any]:
    """Every 202 must be processed exactly once for its key; the first burst's latencies are the bar."""
    answers: list[bytes] = []
    requests = _requests() + _requests()
    middle = len(requests) // 2
    async with command(house.folder, "worker", "--app", "benches.webhook_app:app", "--concurrency", "50"):
        # One ahead of the others: the burst begins when the worker works, not while it starts.
        await _sent(house, [request_of("burst", body_of(0), new_id())], connections=1, answers=answers)
        await _processed(house.broker, 1)
        started = time.perf_counter()
        load = await _sent(house, requests[:middle], connections=CONNECTIONS, answers=answers)
        await _processed(house.broker, _distinct(answers))
        drained_s = time.perf_counter() - started
        wide = await _sent(house, requests[middle:], connections=WIDE_CONNECTIONS, answers=answers)
        accepted = _distinct(answers)
        processed = await _processed(house.broker, accepted)
    enqueued = (await house.broker.state(QUEUE)).odometers["enqueued"]
    return {
        "sent": len(requests) + 1,
        "answered_202": len(answers),
        "accepted": accepted,
        "processed": processed,
        "lost": accepted - processed,
        "duplicates": enqueued - accepted,
        "other_answers": {str(status): number for status, number in (load.failures | wide.failures).items()},
        "p50_ms": round(load.percentile_ms(0.5), 2),
        "p99_ms": round(load.percentile_ms(0.99), 2),
        "max_ms": round(load.percentile_ms(1), 2),
        "burst_per_s": round(load.per_s),
        "burst_connections": CONNECTIONS,
        "drained_s": round(drained_s, 2),
        "wide_p50_ms": round(wide.percentile_ms(0.5), 2),
        "wide_p99_ms": round(wide.percentile_ms(0.99), 2),
        "wide_connections": WIDE_CONNECTIONS,
    }


async def _sent(house: House, requests: list[bytes], *, connections: int, answers: list[bytes]) -> Load:
    waiting = iter(requests)
    return await generate(
        house.api_url,
        lambda: next(waiting, None),
        seconds=300,
        connections=connections,
        read=answers.append,
    )


def _distinct(answers: list[bytes]) -> int:
    return len({orjson.loads(answer)["id"] for answer in answers})


async def _processed(broker: RedisBroker, wanted: int) -> int:
    """How many messages were acknowledged, once all are or nothing moves any more."""
    done, moved_at = -1, time.perf_counter()
    while time.perf_counter() - moved_at < 20:
        state = await broker.state(QUEUE)
        now = state.odometers["acked"]
        if now >= wanted and state.depth == state.running == 0:
            return now
        if now != done:
            done, moved_at = now, time.perf_counter()
        await asyncio.sleep(0.05)
    return done


def _requests() -> list[bytes]:
    requests: list[bytes] = []
    for number in range(WEBHOOKS):
        request = request_of("burst", body_of(number), new_id())
        requests.append(request)
        if number % REPEAT_EVERY == 0:
            requests.append(request)
    return requests
