"""An API over a world of dead letters, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2
from tests.deadletters.world import World

from weir.api.app import create_app
from weir.api.services import Services
from weir.channels.channels import Channels
from weir.control.authentication import CachedAuthenticator
from weir.control.changes import Changes
from weir.control.principals import Role
from weir.control.tenants import Tenants
from weir.control.tokens import NewToken, Tokens
from weir.deadletters.services import open_dead_letters
from weir.exchange.attempt import DirectPusher
from weir.exchange.settle import DirectSettler
from weir.warehouse.reading.warehouse import Warehouse


@dataclass
class Api:
    """A client of an environment with an admin token, and the world behind it."""

    world: World
    services: Services
    client: httpx2.AsyncClient
    tokens: Tokens

    async def token(self, role: Role, **scope: str) -> dict[str, str]:
        environment = self.world.environment
        new = NewToken(
            name="t",
            role=role,
            organization=scope.get("organization", environment.organization),
            project=scope.get("project", environment.project),
            environment=scope.get("environment", environment.environment),
        )
        return {"authorization": f"Bearer {(await self.tokens.create(new))[0]}"}

    async def put_channel(self, *queues: str) -> dict[str, dict[str, str]]:
        """Make the channel `order events`; the headers of each consumer."""
        body = {
            "name": "Order Events",
            "consumers": [
                {"id": f"{queue}-c", "name": f"{queue} consumer", "queue": queue} for queue in queues
            ],
        }
        answer = await self.client.put("/api/v1/channels/order%20events", json=body)
        assert answer.status_code == 200, answer.text
        channel = (await self.client.post("/api/v1/channels/order%20events/tokens")).json()["token"]
        headers = {}
        for queue in queues:
            path = f"/api/v1/channels/order%20events/consumers/{queue}-c/tokens"
            token = (await self.client.post(path)).json()["token"]
            headers[queue] = {"X-Broker-Channel-Token": channel, "X-Broker-Consumer-Token": token}
        return headers


@asynccontextmanager
async def served(world: World, *, warehouse: Warehouse | None = None) -> AsyncIterator[Api]:
    tokens = Tokens(world.database)
    services = Services(
        broker=world.broker,
        authenticator=CachedAuthenticator(tokens, fresh_s=0),
        pusher=DirectPusher(world.broker),
        settler=DirectSettler(world.broker),
        tokens=tokens,
        tenants=Tenants(world.database),
        changes=Changes(world.database, world.broker),
        dead_letters=open_dead_letters(world.database, world.broker, clock=world.clock),
        channels=Channels(world.database, clock=world.clock),
        warehouse=warehouse,
    )
    transport = httpx2.ASGITransport(app=create_app(services), raise_app_exceptions=True)
    async with httpx2.AsyncClient(transport=transport, base_url="http://weir") as client:
        api = Api(world, services, client, tokens)
        client.headers.update(await api.token(Role.ADMIN))
        yield api
