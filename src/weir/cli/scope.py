"""The environment that a command is about, and the parts of the dead-letter room for it."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar, cast

import typer

from weir.broker.broker import Broker
from weir.broker.redis import RedisBroker
from weir.broker.runner import Connection
from weir.cli.options import DataDirOption, settings_with
from weir.cli.running import run_until_done
from weir.control.database import Database
from weir.control.principals import Principal, Role
from weir.deadletters.room import DeadLetterRoom, open_room
from weir.embedded.urls import resolve_urls
from weir.model.names import EnvironmentRef
from weir.settings import Settings

Result = TypeVar("Result")
Opened = TypeVar("Opened")
Own = ParamSpec("Own")
ACTOR = "cli"

OrganizationOption = Annotated[str, typer.Option("--organization", "-o", help="Whose.")]
ProjectOption = Annotated[str, typer.Option("--project", "-p", help="Which project.")]
EnvironmentOption = Annotated[str, typer.Option("--environment", "-e", help="Which environment.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which environment, in which stores."""

    environment: EnvironmentRef
    data_dir: Path | None = None


def scoped(command: Callable[Concatenate[Place, Own], Result]) -> Callable[..., Result]:
    """Let a command be told where by the four options that say it, and have them as its first argument."""
    signature = inspect.signature(command, eval_str=True)
    _, *own = signature.parameters.values()

    @wraps(command)
    def run(
        *, organization: str, project: str, environment: str, data_dir: Path | None, **options: Any
    ) -> Result:
        ref = EnvironmentRef(organization=organization, project=project, environment=environment)
        return cast(Callable[..., Result], command)(Place(environment=ref, data_dir=data_dir), **options)

    parameters = [*own, *inspect.signature(_where, eval_str=True).parameters.values()]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _where(
    *,
    organization: OrganizationOption = "default",
    project: ProjectOption = "default",
    environment: EnvironmentOption = "default",
    data_dir: DataDirOption = None,
) -> None:
    """The options of every command that is about an environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """A command's environment, and what it works with."""

    environment: EnvironmentRef
    room: DeadLetterRoom
    broker: Broker
    database: Database
    settings: Settings

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
            yield Desk(
                environment=environment, room=room, broker=broker, database=database, settings=settings
            )
    finally:
        await broker.aclose()


def at_desk(place: Place, work: Callable[[Desk], Awaitable[Result]]) -> Result:
    """Run a command's work with the parts of the dead-letter room; Ctrl-C ends it early."""
    return within(opened(place.data_dir, place.environment), work)


def within(desk: AbstractAsyncContextManager[Opened], work: Callable[[Opened], Awaitable[Result]]) -> Result:
    """Run work on something that is open meanwhile; Ctrl-C ends it early."""

    async def run() -> Result:
        async with desk as opened:
            return await work(opened)

    return cast(Result, run_until_done(run()))
