"""A world of one environment, with tokens of its own, and the shop's app as a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from support.running_api import RunningApi
from tasks import shop
from tasks.world import World
from weir.control.database import Database
from weir.control.principals import Role
from weir.control.tokens import NewToken, Tokens
from weir.model.names import EnvironmentRef


@pytest.fixture
async def world(api_process: RunningApi, environment: EnvironmentRef, tmp_path: Path) -> AsyncIterator[World]:
    admin, write = await _tokens(api_process.postgres_url, environment)
    before = shop.app.address, shop.reports.address
    for app in (shop.app, shop.reports):
        app.address = replace(app.address, url=api_process.url, token=write)
    yield World(
        api=api_process, environment=environment, admin_token=admin, write_token=write, folder=tmp_path
    )
    for app, address in zip((shop.app, shop.reports), before, strict=True):
        await app.aclose()
        app.close()
        app.address = address


async def _tokens(postgres_url: str, environment: EnvironmentRef) -> list[str]:
    names = dict(zip(("organization", "project", "environment"), environment.names, strict=True))
    async with Database(postgres_url, max_size=1) as database:
        return [
            (await Tokens(database).create(NewToken(name="t", role=role, **names)))[0]
            for role in (Role.ADMIN, Role.WRITE)
        ]
