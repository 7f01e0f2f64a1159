"""The burst of the webhook bench: 10,000 webhooks at once, some of them twice, while a worker drains.

A sender waits for its answer before it sends the next request, so with n connections and r answers per second
the mean answer takes n/r. All connections are opened inside the burst. Their first request counts, because it
shows whether a server accepts new connections slowly. The wide burst has four times as many connections.
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
"""About as many connections as some large providers together keep open to one receiver."""
WIDE_CONNECTIONS = 1_000
REPEAT_EVERY = 20
QUEUE = DEFAULT.queue("Burst")


async def burst(house: House) -> dict[str, Any]:
    """Send both bursts. Each accepted key must be processed exactly once. `p99_ms` is of the first burst."""
    answers: list[bytes] = []
    requests = _requests() + _requests()
    middle = len(requests) // 2
    async with command(house.folder, "worker", "--app", "benches.webhook_app:app", "--concurrency", "50"):
        # Send one request before the burst, so that the burst begins when the worker has started.
        await _send(house, [request_of("burst", body_of(0), new_id())], connections=1, answers=answers)
        await _wait_processed(house.broker, 1)
        started = time.perf_counter()
        load = await _send(house, requests[:middle], connections=CONNECTIONS, answers=answers)
        await _wait_processed(house.broker, _distinct(answers))
        drained_s = time.perf_counter() - started
        wide = await _send(house, requests[middle:], connections=WIDE_CONNECTIONS, answers=answers)
        accepted = _distinct(answers)
        processed = await _wait_processed(house.broker, accepted)
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


async def _send(house: House, requests: list[bytes], *, connections: int, answers: list[bytes]) -> Load:
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


async def _wait_processed(broker: RedisBroker, wanted: int) -> int:
    """Wait until all messages are acked, or none is for 20 s, and return how many were acked."""
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
