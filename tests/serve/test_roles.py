"""Each route is tried with every role, without a token, with a revoked one, and with a neighbour's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from uuid import uuid4

import httpx2
import pytest

from serve.demands import (
    ADMIN,
    ANY,
    CHANNEL,
    NOBODY,
    OPERATOR,
    OWN_ADMIN,
    RANKS,
    READ,
    WRITE,
    demands,
    listed,
)
from serve.routes import REQUESTS, Asked, prepare
from support.running_api import RunningApi
from weir.api.routes.moved import METHODS, MOVED
from weir.api.routes.table import HOT, ROUTERS

ONE_ENVIRONMENT = frozenset(listed(READ, WRITE, ADMIN))
PROJECT = ENVIRONMENT = "default"
"""The names that the requests of the table use."""


def served() -> list[str]:
    """Every route that the application serves, hidden ones too."""
    control = [
        f"{method} {route.path}" for one in ROUTERS for route in one.routes for method in route.methods
    ]
    hot = [f"{method} {route.path}" for route in HOT for method in route.endpoints]
    moved = {f"{method} {path}" for path in MOVED for method in METHODS}
    return sorted({*control, *hot} - moved)


def test_the_table_names_every_route_once() -> None:
    table = listed(NOBODY, CHANNEL, ANY, READ, WRITE, ADMIN, OWN_ADMIN, OPERATOR)
    assert sorted(table) == served()


@dataclass(frozen=True, kw_only=True)
class Place:
    """Two organizations with the same names of projects and environments, and tokens of each kind."""

    client: httpx2.AsyncClient
    organization: str
    tokens: dict[str, str]
    """By role; `revoked` and the neighbour's admin, `foreign`, too."""

    async def ask(self, request: Asked, token: str | None, **headers: str) -> tuple[int, str]:
        """The status, and the code of a problem; of a stream only its head."""
        sent = {} if token is None else {"authorization": f"Bearer {self.tokens[token]}"}
        scope = {
            "weir-organization": self.organization,
            "weir-project": PROJECT,
            "weir-environment": ENVIRONMENT,
        }
        async with self.client.stream(
            request.method, request.path, json=request.body, headers={**sent, **scope, **headers}
        ) as answer:
            if answer.status_code < 400:
                return answer.status_code, ""
            await answer.aread()
            return answer.status_code, answer.json()["code"]


@pytest.fixture
async def place(api: RunningApi) -> AsyncIterator[Place]:
    mark = uuid4().hex[:12]
    ours, theirs = f"ours-{mark}", f"theirs-{mark}"
    async with httpx2.AsyncClient(base_url=api.url, timeout=60) as client:

        async def token(organization: str, role: str) -> tuple[str, str]:
            scope = {"organization": organization, "project": PROJECT, "environment": ENVIRONMENT}
            made = await client.post(
                "/api/v1/tokens",
                json={"name": role, "role": role, **scope},
                headers={"authorization": f"Bearer {api.token}"},
            )
            assert made.status_code == 201, made.text
            return made.json()["token"], made.json()["id"]

        tokens = {role: (await token(ours, role))[0] for role in RANKS[:3]}
        tokens["operator"] = api.token
        tokens["foreign"] = (await token(theirs, "admin"))[0]
        tokens["revoked"], revoked_id = await token(ours, "admin")
        admin = {"authorization": f"Bearer {tokens['admin']}"}
        async with httpx2.AsyncClient(base_url=api.url, headers=admin, timeout=60) as ours_client:
            await prepare(ours_client)
            assert (await ours_client.delete(f"/api/v1/tokens/{revoked_id}")).status_code == 204
        yield Place(client=client, organization=ours, tokens=tokens)


async def test_every_route_demands_its_role_and_ends_at_the_border(place: Place) -> None:
    wanted = demands()
    wrong: list[object] = []

    async def expect(request: Asked, token: str | None, *allowed: tuple[int, str]) -> None:
        found = await place.ask(request, token)
        if found not in allowed:
            wrong.append((request.route, token, found))

    for request in REQUESTS:
        role = wanted.get(request.route)
        if role is None:
            continue
        await expect(request, None, (401, "unauthenticated"))
        await expect(request, "revoked", (401, "unauthenticated"))
        for lower in RANKS[: RANKS.index(role)]:
            await expect(request, lower, (403, "forbidden"))
        if request.route in ONE_ENVIRONMENT:
            await expect(request, "foreign", (404, "not_found"))
        status, code = await place.ask(request, role)
        if status in (401, 403) or status >= 500:
            wrong.append((request.route, role, status, code))
    assert wrong == []
    assert {one.route for one in REQUESTS} >= wanted.keys()
