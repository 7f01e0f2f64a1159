"""`weir bench neighbour`: pushes of one tenant while another does the worst that it may, deed by deed.

The pushes go through the one API process that the deed loads, 50 per second whatever the answers, and each is
timed from the moment when it was due. `only_refused` marks a deed of which nothing was taken.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import uvloop

from benches.children import child_environment
from benches.figures import percentile, say
from benches.neighbour_deeds import DEEDS, Deed, Did, Doer
from benches.neighbour_house import CALM_QUEUE, DEAD_LARGE, FULL, PURGED_LARGE, QUICK, House, open_house
from benches.neighbour_pushes import TOKEN
from weir.errors import Misconfigured

_LOOK_S = 0.25
_PATIENCE_S = 90.0
_MOVED_S = 900.0


def run(*, quick: bool, only: str = "", **_: Any) -> dict[str, Any]:
    """One entry per deed, and the worst of all; `only` names deeds, with commas between."""
    deeds = _chosen([name.strip() for name in only.split(",") if name.strip()])
    return uvloop.run(_run(deeds, quick=quick))


def _chosen(names: list[str]) -> dict[str, Deed]:
    """The deeds of these names, all without names, behind the idle control."""
    if unknown := [name for name in names if name not in DEEDS]:
        raise Misconfigured(f"there is no deed `{unknown[0]}`; there are: {', '.join(DEEDS)}")
    return {name: deed for name, deed in DEEDS.items() if not names or name in ("idle", *names)}


async def _run(deeds: dict[str, Deed], *, quick: bool) -> dict[str, Any]:
    async with open_house(QUICK if quick else FULL) as house:
        headers = {"authorization": f"Bearer {house.heavy}"}
        limits = httpx2.Limits(max_connections=None)
        url = f"http://127.0.0.1:{house.port}"
        async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=60, limits=limits) as client:
            await _wait_for_letters(house, client)
            found = {name: await _measure(name, deed, house, client) for name, deed in deeds.items()}
        ended_s = await _end(house)
    loaded = [one for name, one in found.items() if name != "idle"] or [found["idle"]]
    return {
        **found,
        "worst_push_p99_ms": max(one["push_p99_ms"] for one in loaded),
        "worst_push_max_ms": max(one["push_max_ms"] for one in loaded),
        "peak_rss_mib": max(one["api_rss_mib"] for one in found.values()),
        "sigterm_s": ended_s,
        "seconds_a_deed": house.size.seconds,
        "large_messages": house.size.large,
        "small_messages": house.size.small,
        "cpus": os.cpu_count(),
    }


async def _wait_for_letters(house: House, client: httpx2.AsyncClient) -> None:
    """Wait until the large messages that died are letters."""
    async with asyncio.timeout(_MOVED_S):
        for queue in (DEAD_LARGE, PURGED_LARGE):
            while await _letters(client, queue) < house.size.large:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_S)


async def _letters(client: httpx2.AsyncClient, queue: str) -> int:
    consumers = (await client.get("/api/v1/dlq/consumers")).json()["items"]
    return sum(one["dead_count"] for one in consumers if one["queue"] == queue)


async def _measure(name: str, deed: Deed, house: House, client: httpx2.AsyncClient) -> dict[str, Any]:
    """Push for the calm tenant while the heavy one does this."""
    did, before = Did(), house.rss_mib()
    async with _pushing(house) as pushes, _watching(house) as most:
        doer = Doer(house=house, client=client, until_s=time.monotonic() + house.size.seconds, did=did)
        await deed(doer)
    statuses: dict[str, int] = pushes["statuses"]
    figures = {
        "push_p99_ms": round(percentile(pushes["waits_ms"], 0.99), 1),
        "push_max_ms": round(max(pushes["waits_ms"]), 1),
        "pushes": statuses,
        "did": {**did.answers, **did.letters},
        "only_refused": name != "idle" and did.only_refused,
        "api_rss_mib": round(most["api"]),
        "grown_mib": {kind: round(mib - before.get(kind, 0.0)) for kind, mib in most.items()},
    }
    say(f"{name}: {json.dumps(figures)}")
    return figures


@asynccontextmanager
async def _pushing(house: House) -> AsyncIterator[dict[str, Any]]:
    """Push in a process of its own during the block; afterwards the value holds what that process saw."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benches.neighbour_pushes", str(house.port), CALM_QUEUE,
        env=child_environment() | {TOKEN: house.calm},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=2**26,
    )  # fmt: skip
    seen: dict[str, Any] = {}
    try:
        yield seen
        async with asyncio.timeout(_PATIENCE_S):
            out, _ = await process.communicate(b"")
        seen |= json.loads(out)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def _watching(house: House) -> AsyncIterator[Mapping[str, float]]:
    """The most memory that a process of each name had during the block."""
    most: dict[str, float] = {}

    async def watch() -> None:
        while True:
            for name, mib in (await asyncio.to_thread(house.rss_mib)).items():
                most[name] = max(most.get(name, 0.0), mib)
            await asyncio.sleep(_LOOK_S)

    watching = asyncio.create_task(watch())
    try:
        yield most
    finally:
        watching.cancel()
        for name, mib in house.rss_mib().items():
            most[name] = max(most.get(name, 0.0), mib)


async def _end(house: House) -> float:
    """How long the API takes to end after SIGTERM."""
    began_s = time.monotonic()
    os.kill(house.api.pid, signal.SIGTERM)
    await house.api.wait()
    return round(time.monotonic() - began_s, 1)
