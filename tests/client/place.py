"""An environment of a running API with a queue and a token, and the ways to get there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import quote

import httpx2

from support.running_api import RunningApi
from weir import AsyncWeir, Weir
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.model.names import EnvironmentRef
from weir.model.shards import shard_of

QUEUE = "or/ders: ✓"


@dataclass(frozen=True, kw_only=True)
class Place:
    """An environment with a queue, a token for it, and how to get there."""

    environment: EnvironmentRef
    token: str
    api: RunningApi

    @property
    def urls(self) -> list[str]:
        return [self.api.redis_url, self.api.url]

    @property
    def shard(self) -> int:
        return shard_of(self.environment, shards=4)

    def sync(self, **options: object) -> Weir:
        return Weir(self.urls, token=self.token, **options)  # type: ignore[arg-type]

    def client(self, *urls: str, **options: object) -> AsyncWeir:
        return AsyncWeir(urls or self.urls, token=self.token, **options)  # type: ignore[arg-type]

    def define(self, name: str, **promises: object) -> str:
        answer = as_operator(self.api, "PUT", f"queues/{quote(name, safe='')}", promises, self.environment)
        assert answer.status_code < 300, answer.text
        return name

    @asynccontextmanager
    async def broker(self) -> AsyncIterator[RedisBroker]:
        broker = RedisBroker(RedisConnection(url=self.api.redis_url))
        try:
            yield broker
        finally:
            await broker.aclose()


def as_operator(
    api: RunningApi, method: str, path: str, body: object, environment: EnvironmentRef | None = None
) -> httpx2.Response:
    headers = {"authorization": f"Bearer {api.token}"}
    if environment is not None:
        names = zip(("organization", "project", "environment"), environment.names, strict=True)
        headers |= {f"weir-{name}": quote(value, safe="") for name, value in names}
    return httpx2.request(method, f"{api.url}/api/v1/{path}", json=body, headers=headers)


def make_token(api: RunningApi, environment: EnvironmentRef, **members: object) -> dict[str, str]:
    names = dict(zip(("organization", "project", "environment"), environment.names, strict=True))
    answer = as_operator(api, "POST", "tokens", {"name": "t", "role": "write", **names, **members})
    assert answer.status_code == 201, answer.text
    found: dict[str, str] = answer.json()
    return found
