"""Prepares the demo: a token and a spec for each tenant, a paused queue and some dead letters."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from importlib.resources import files
from urllib.parse import quote

import httpx2

from weir.control.database import Database
from weir.control.principals import Role
from weir.control.tokens import NewToken, Tokens
from weir.demo.past_alerts import write_past_alerts
from weir.demo.payloads import payload_of
from weir.demo.scenario import BILLING, SHOP, STAGING, Tenant
from weir.errors import Unavailable
from weir.model.durations import DAY_MS

SPECS = ((SHOP, "shop.weir"), (STAGING, "staging.weir"), (BILLING, "billing.weir"))
PAGERDUTY = "DEMO_PAGERDUTY_SECRET"
TOKEN_LIFETIME_MS = 7 * DAY_MS
PAUSED_BACKLOG = 700
# 4 % of the rows are bad: about 36 dead letters.
FIRST_IMPORT = 900
_BATCH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoAccount:
    """A tenant with a token of its organization and the addresses of its webhooks."""

    tenant: Tenant
    token: str
    hooks: dict[str, str]

    @property
    def headers(self) -> dict[str, str]:
        scope = self.tenant.environment
        return {
            "authorization": f"Bearer {self.token}",
            "weir-organization": quote(scope.organization, safe=""),
            "weir-project": quote(scope.project, safe=""),
            "weir-environment": quote(scope.environment, safe=""),
        }


async def set_up(
    postgres_url: str, client: httpx2.AsyncClient, *, first_ms: int, secret: str
) -> list[DemoAccount]:
    """Make tokens and apply specs for every tenant of the demo, and write the alerts of its past."""
    async with Database(postgres_url, max_size=2, name="weir-demo") as database:
        tokens = {name: await _create_token(Tokens(database), name) for name in _organizations()}
        await write_past_alerts(database, first_ms=first_ms)
    accounts = []
    for tenant, file in SPECS:
        bare = DemoAccount(tenant=tenant, token=tokens[tenant.environment.organization], hooks={})
        await _ensure_environment(client, bare)
        if tenant is SHOP:
            await _ask(client, "PUT", f"/api/v1/secrets/{PAGERDUTY}", bare, {"value": secret})
        hooks = await _apply(client, bare, file)
        accounts.append(DemoAccount(tenant=tenant, token=bare.token, hooks=hooks))
        await _fill_paused(client, bare)
    await _import_catalog(client, accounts[0])
    return accounts


def _organizations() -> list[str]:
    return sorted({tenant.environment.organization for tenant, _ in SPECS})


async def _create_token(tokens: Tokens, organization: str) -> str:
    new = NewToken(name="demo", role=Role.ADMIN, organization=organization, lifetime_ms=TOKEN_LIFETIME_MS)
    text, _ = await tokens.create(new)
    return text


async def _ensure_environment(client: httpx2.AsyncClient, account: DemoAccount) -> None:
    name = quote(account.tenant.environment.environment, safe="")
    await _ask(client, "PUT", f"/api/v1/environments/{name}", account, {"concurrency": None})


async def _apply(client: httpx2.AsyncClient, account: DemoAccount, file: str) -> dict[str, str]:
    source = files("weir.demo").joinpath("specs", file).read_text()
    answer = await _ask(client, "PUT", "/api/v1/spec", account, {"source": source, "file": file})
    hooks: dict[str, str] = answer.json()["hooks"]
    return hooks


async def _fill_paused(client: httpx2.AsyncClient, account: DemoAccount) -> None:
    """Pause the queues that are paused in the scenario, and give them a backlog."""
    for story in account.tenant.queues:
        if story.paused:
            path = f"/api/v1/queues/{quote(story.name, safe='')}"
            await _ask(client, "POST", f"{path}/pause", account)
            depth = (await _ask(client, "GET", path, account)).json()["depth"]
            await _push(client, account, story.name, range(depth, PAUSED_BACKLOG))


async def _import_catalog(client: httpx2.AsyncClient, account: DemoAccount) -> None:
    """Push the rows of a file once. Some rows always fail, so that there are dead letters to look at."""
    queue = (await _ask(client, "GET", "/api/v1/queues/imports", account)).json()
    if not queue["totals"]["enqueued"]:
        await _push(client, account, "imports", range(FIRST_IMPORT))


async def _push(client: httpx2.AsyncClient, account: DemoAccount, queue: str, numbers: range) -> None:
    dice = random.Random(1)
    for start in range(0, len(numbers), _BATCH):
        items = [
            {"queue": queue, "payload": payload_of(queue, number, dice)}
            for number in numbers[start : start + _BATCH]
        ]
        await _ask(client, "POST", "/api/v1/push", account, {"items": items})


async def _ask(
    client: httpx2.AsyncClient, method: str, path: str, account: DemoAccount, body: object = None
) -> httpx2.Response:
    content = None if body is None else json.dumps(body)
    headers = {**account.headers, "content-type": "application/json"}
    response = await client.request(method, path, content=content, headers=headers)
    if response.is_error:
        raise Unavailable(f"{method} {path} answered {response.status_code}: {response.text:.300}")
    return response
