"""The demo from start to end: servers, API, pipeline, workers, traffic, and what went through."""

from __future__ import annotations

import asyncio
import os
import secrets as random_secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from weir.demo.processes import running
from weir.demo.scenario import INCIDENT_AFTER_MS, LANDED, SHOP, Incidents
from weir.demo.setup import Account, set_up
from weir.demo.traffic import Traffic
from weir.embedded.child import Child
from weir.embedded.java import find_java
from weir.embedded.migrations import migrate_stores
from weir.embedded.open import stack_from
from weir.embedded.ports import is_free
from weir.embedded.stack import Stack
from weir.errors import WeirError
from weir.model.clock import SystemClock
from weir.serve.run import served
from weir.serve.server import bind
from weir.settings import Settings

Say = Callable[[str], None]
PAGERDUTY = "DEMO_PAGERDUTY_SECRET"
_PATIENCE_S = 60.0
"""How long a demo that ends by itself waits for its past to be there before its time begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    for_s: float | None = None
    """End by itself after so many seconds of traffic with a past to compare it with."""
    speed: float = 1.0


async def run_demo(settings: Settings, options: DemoOptions, *, say: Say) -> dict[str, Any]:
    """Run until the time is over, or until cancelled."""
    await find_java()
    settings = with_free_port(settings)
    started = time.monotonic()
    incidents = Incidents(first_ms=SystemClock().now_ms() + INCIDENT_AFTER_MS)
    secrets = {PAGERDUTY: random_secrets.token_hex(24)}
    # The API of this process looks secrets up where a deployment keeps them.
    os.environ.update(secrets)
    say("starting Redis, PostgreSQL and ClickHouse …")
    async with stack_from(settings, report=say) as stack:
        await migrate_stores(stack.urls)
        say("starting the API, the pipeline and a worker …")
        async with (
            served(settings, stack.urls, token_dir=stack.data_dir.path) as url,
            httpx2.AsyncClient(base_url=url, timeout=10) as client,
        ):
            accounts = await set_up(stack.urls.postgres, client)
            async with running(settings, incidents, secrets=secrets) as children:
                ready_s = time.monotonic() - started
                say(_welcome(url, accounts, ready_s))
                traffic = Traffic(client, accounts, secret=secrets[PAGERDUTY], speed=options.speed)
                await _flow(traffic, stack, children, options.for_s)
                return await _summary(client, accounts, traffic, stack, children, ready_s=ready_s, url=url)


def with_free_port(settings: Settings) -> Settings:
    """Another port when the usual one is taken; a busy one that was asked for is an error."""
    api = settings.api
    if "port" not in api.model_fields_set and not is_free(api.port):
        return settings.model_copy(update={"api": api.model_copy(update={"port": 0})})
    # Said before the servers start, and not after.
    bind(api.host, api.port).close()
    return settings


async def _flow(traffic: Traffic, stack: Stack, children: dict[str, Child], for_s: float | None) -> None:
    """Traffic until the time is over; a server or process that fails for good ends it at once."""
    parts = [traffic.run(), stack.failed(), *(_ended(name, child) for name, child in children.items())]
    if for_s is not None:
        parts.append(_time_over(for_s, stack.data_dir.path / LANDED))
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _time_over(for_s: float, landed: Path) -> None:
    """Return after so many seconds, counted from when the past is there; a slow machine is not waited for."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_S):
            while not landed.exists():  # noqa: ASYNC110, ASYNC240
                await asyncio.sleep(0.25)
    await asyncio.sleep(for_s)


async def _ended(name: str, child: Child) -> None:
    status = await child.wait()
    lines = "\n".join(child.last_lines())
    raise WeirError(f"the {name} ended with status {status}; see `{child.log}`\n{lines}")


def _welcome(url: str, accounts: list[Account], ready_s: float) -> str:
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
    accounts: list[Account],
    traffic: Traffic,
    stack: Stack,
    children: dict[str, Child],
    *,
    ready_s: float,
    url: str,
) -> dict[str, Any]:
    totals: dict[str, int] = {}
    landed = 0
    for account in accounts:
        with suppress(httpx2.HTTPError):
            answer = await client.get("/api/v1/queues", headers=account.headers)
            for queue in answer.json().get("queues", []):
                for name, value in queue["totals"].items():
                    totals[name] = totals.get(name, 0) + value
    with suppress(httpx2.HTTPError):
        answer = await client.get("/api/v1/pipeline", headers=accounts[0].headers)
        landed = ((answer.json().get("status") or {}).get("events")) or 0
    return {
        "ok": True,
        "url": url,
        "ready_s": round(ready_s, 2),
        "pushed": traffic.pushed,
        "webhooks": traffic.webhooks,
        "answers": dict(traffic.answers),
        "totals": totals,
        "events_landed": landed,
        "restarts": {child.server.name: child.restarts for child in stack.servers},
        "running": sorted(name for name, child in children.items() if child.status() is None),
    }
