"""Runs the demo from start to end: servers, API, pipeline, workers, traffic, and a summary."""

from __future__ import annotations

import asyncio
import secrets as random_secrets
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from weir.demo.processes import commands, environment
from weir.demo.scenario import INCIDENT_AFTER_MS, LANDED, SHOP, Incidents
from weir.demo.setup import DemoAccount, set_up
from weir.demo.traffic import Traffic
from weir.embedded.java import find_java
from weir.model.clock import SystemClock
from weir.serve.system import System, first_ending, running_api, running_children
from weir.settings import Settings

Say = Callable[[str], None]
_PATIENCE_S = 60.0
"""How long a demo with `for_s` waits for its past to land before it counts the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    for_s: float | None = None
    """End after this many seconds of traffic, counted from the moment when the past has landed."""
    speed: float = 1.0


async def run_demo(settings: Settings, options: DemoOptions, *, say: Say) -> dict[str, Any]:
    """Run until the time is over or until cancelled, and return a summary in both cases."""
    # Checked first, because the pipeline needs Java and would fail only after all else has started.
    await find_java()
    started = time.monotonic()
    incidents = Incidents(first_ms=SystemClock().now_ms() + INCIDENT_AFTER_MS)
    secret = random_secrets.token_hex(24)
    say("starting Redis, PostgreSQL and ClickHouse …")
    async with (
        running_api(settings, report=say) as system,
        httpx2.AsyncClient(base_url=system.url, timeout=10) as client,
    ):
        say("starting the pipeline and the workers …")
        accounts = await set_up(
            system.stack.urls.postgres, client, first_ms=incidents.first_ms, secret=secret
        )
        folder = system.stack.data_dir.path
        async with running_children(system, commands(folder, incidents), environment=environment(incidents)):
            ready_s = time.monotonic() - started
            say(_welcome(system.url, accounts, ready_s))
            traffic = Traffic(client, accounts, secret=secret, speed=options.speed)
            await _until_stopped(_send_traffic(traffic, system, options.for_s))
            return await _summary(client, accounts, traffic, system, ready_s=ready_s)


async def _until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Wait for the work. A first Ctrl-C ends only the work; a second one ends the demo at once."""
    try:
        await work
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()


async def _send_traffic(traffic: Traffic, system: System, for_s: float | None) -> None:
    """Send traffic until the time is over, or until a server or process fails for good."""
    waits = [traffic.run(), *system.endings()]
    if for_s is not None:
        waits.append(_wait_for_end(for_s, system.stack.data_dir.path / LANDED))
    await first_ending(waits)


async def _wait_for_end(for_s: float, landed: Path) -> None:
    """Wait for the past, at most `_PATIENCE_S` on a slow machine, and then for `for_s`."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_S):
            while not landed.exists():  # noqa: ASYNC110, ASYNC240
                await asyncio.sleep(0.25)
    await asyncio.sleep(for_s)


def _welcome(url: str, accounts: list[DemoAccount], ready_s: float) -> str:
    shop = next(account for account in accounts if account.tenant is SHOP)
    return (
        f"ready after {ready_s:.1f} s\n\n"
        f"  dashboard   {url}/#/sign-in?token={shop.token}\n"
        f"  API         {url}/openapi.json\n"
        f"  Prometheus  {url}/metrics\n\n"
        "Charts fill as soon as Spark is up, in about half a minute.\n"
        "An incident slows the payments in a minute and a half, and then every twenty minutes.\n"
        "Ctrl-C ends the demo."
    )


async def _summary(
    client: httpx2.AsyncClient,
    accounts: list[DemoAccount],
    traffic: Traffic,
    system: System,
    *,
    ready_s: float,
) -> dict[str, Any]:
    totals: dict[str, int] = {}
    landed = 0
    for account in accounts:
        with suppress(httpx2.HTTPError):
            answer = await client.get("/api/v1/queues", headers=account.headers)
            for queue in answer.json().get("items", []):
                for name, value in queue["totals"].items():
                    totals[name] = totals.get(name, 0) + value
    with suppress(httpx2.HTTPError):
        answer = await client.get("/api/v1/pipeline", headers=accounts[0].headers)
        landed = ((answer.json().get("status") or {}).get("events")) or 0
    return {
        "ok": True,
        "url": system.url,
        "ready_s": round(ready_s, 2),
        "pushed": traffic.pushed,
        "webhooks": traffic.webhooks,
        "answers": dict(traffic.answers),
        "totals": totals,
        "events_landed": landed,
        "restarts": {child.server.name: child.restarts for child in system.stack.servers}
        | {name: child.restarts for name, child in system.children.items()},
        "running": sorted(name for name, child in system.children.items() if child.running),
    }
