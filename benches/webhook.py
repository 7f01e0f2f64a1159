"""`weir bench webhook`: signed webhooks into a queue, against a bare route with the same signature check.

Rounds alternate between the two; the burst follows. The API and the worker are real `weir` processes.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import uvloop

from benches.figures import percentile
from benches.http_load import Load, generate
from benches.webhook_burst import burst
from benches.webhook_house import House, body_of, open_house, request_of
from weir.model.ids import MessageId, new_id
from weir.serve.bootstrap import DEFAULT

CONNECTIONS = 64


def run(*, quick: bool, **_: Any) -> dict[str, Any]:
    """All figures; with `quick` within a minute."""
    if quick:
        return uvloop.run(_run(rounds=3, seconds=2.0, probes=150))
    return uvloop.run(_run(rounds=5, seconds=4.0, probes=500))


async def _run(*, rounds: int, seconds: float, probes: int) -> dict[str, Any]:
    async with open_house() as house:
        limits, hooks = await _alternate(house, rounds=rounds, seconds=seconds)
        visible = await _visibility(house, probes)
        figures = await burst(house)
    ratios = [hook.per_s / limit.per_s for hook, limit in zip(hooks, limits, strict=True)]
    return {
        "limit_per_s": round(statistics.median(load.per_s for load in limits)),
        "accept_per_s": round(statistics.median(load.per_s for load in hooks)),
        "refused": sum(sum(load.failures.values()) for load in hooks),
        "ratio": round(statistics.median(ratios), 3),
        "ratio_spread": [round(min(ratios), 3), round(max(ratios), 3)],
        "accept_p50_ms": round(statistics.median(load.percentile_ms(0.5) for load in hooks), 2),
        "accept_p99_ms": round(statistics.median(load.percentile_ms(0.99) for load in hooks), 2),
        "visible_p50_ms": round(percentile(visible, 0.5), 2),
        "visible_p99_ms": round(percentile(visible, 0.99), 2),
        **figures,
        "connections": CONNECTIONS,
        "rounds": rounds,
        "seconds_a_round": seconds,
        "body_bytes": len(body_of(0)),
        "durability": "fast",
        "cpus": os.cpu_count(),
    }


async def _alternate(house: House, *, rounds: int, seconds: float) -> tuple[list[Load], list[Load]]:
    limits: list[Load] = []
    hooks: list[Load] = []
    for url in (house.limit_url, house.api_url):
        await generate(url, _maker("bench"), seconds=0.5, connections=CONNECTIONS)
    for _ in range(rounds):
        limits.append(
            await generate(house.limit_url, _maker("bench"), seconds=seconds, connections=CONNECTIONS)
        )
        hooks.append(await generate(house.api_url, _maker("bench"), seconds=seconds, connections=CONNECTIONS))
    return limits, hooks


async def _visibility(house: House, probes: int) -> list[float]:
    """Milliseconds from the 202 that the sender gets until a consumer can see the message."""
    waits: list[float] = []
    queue = DEFAULT.queue("Accepted")
    for number in range(probes):
        message_id = await _send_once(house.api_url, number)
        answered = time.perf_counter()
        seen = False
        while not seen:
            (seen,) = await house.broker.holds(queue, [message_id])
        waits.append((time.perf_counter() - answered) * 1000)
    return waits


async def _send_once(url: str, number: int) -> MessageId:
    answers: list[bytes] = []
    waiting = iter([request_of("bench", body_of(number), new_id())])
    await generate(url, lambda: next(waiting, None), seconds=10, connections=1, read=answers.append)
    return MessageId(orjson.loads(answers[0])["id"])


def _maker(hook: str) -> Callable[[], bytes]:
    """Makes requests with one body and signature and a new delivery id each, so that making them is cheap."""
    body = body_of(1)
    head, _, rest = request_of(hook, body, "DELIVERY").partition(b"DELIVERY")
    prefix = new_id()

    def numbers() -> Iterator[int]:
        number = 0
        while True:
            number += 1
            yield number

    counter = numbers()
    return lambda: b"%s%s-%d%s" % (head, prefix.encode(), next(counter), rest)
