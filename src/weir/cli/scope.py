"""The environment that a command is about, and the parts of the dead-letter room for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar, cast

import typer

from weir.broker.broker import Broker
from weir.broker.redis import RedisBroker
from weir.broker.runner import Connection
from weir.cli.options import settings_with
from weir.cli.running import run_until_done
from weir.control.database import Database
from weir.control.principals import Principal, Role
from weir.deadletters.room import DeadLetterRoom, open_room
from weir.embedded.urls import resolve_urls
from weir.model.names import EnvironmentRef

Result = TypeVar("Result")
ACTOR = "cli"

OrganizationOption = Annotated[str, typer.Option("--organization", "-o", help="Whose.")]
ProjectOption = Annotated[str, typer.Option("--project", "-p", help="Which project.")]
EnvironmentOption = Annotated[str, typer.Option("--environment", "-e", help="Which environment.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """A command's environment, and what it works with."""

    environment: EnvironmentRef
    room: DeadLetterRoom
    broker: Broker
    database: Database

    @property
    def principal(self) -> Principal:
        scope = self.environment
        return Principal(
            token_id=ACTOR,
            role=Role.ADMIN,
            organization=scope.organization,
            project=scope.project,
            environment=scope.environment,
        )


@asynccontextmanager
async def opened(data_dir: Path | None, environment: EnvironmentRef) -> AsyncIterator[Desk]:
    """The stores of the settings, while the block runs."""
    settings = settings_with(data_dir)
    urls = resolve_urls(settings)
    broker = RedisBroker(Connection(url=urls.redis), shards=settings.shards)
    try:
        async with Database(urls.postgres, max_size=4, name="weir-cli") as database:
            room = open_room(database, broker)
            yield Desk(environment=environment, room=room, broker=broker, database=database)
    finally:
        await broker.aclose()


def at_desk(
    data_dir: Path | None, scope: tuple[str, str, str], work: Callable[[Desk], Awaitable[Result]]
) -> Result:
    """Run a command's work; Ctrl-C ends it early."""
    organization, project, environment = scope
    ref = EnvironmentRef(organization=organization, project=project, environment=environment)

    async def run() -> Result:
        async with opened(data_dir, ref) as desk:
            return await work(desk)

    return cast(Result, run_until_done(run()))
