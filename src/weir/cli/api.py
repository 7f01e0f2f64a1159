"""How commands speak to the API: where it is, with which token, about which environment."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar, cast
from urllib.parse import quote, urlencode

import typer

from weir.cli.options import DataDirOption, OrganizationOption, ProjectOption, settings_with, with_options
from weir.cli.running import run_until_done
from weir.client.errors import ApiError, Unreachable
from weir.client.options import ClientOptions
from weir.client.transport import Transport
from weir.errors import Misconfigured, Unavailable, WeirError
from weir.serve.address import OPERATOR_FILE, find_address, read_token
from weir.settings import Settings

Result = TypeVar("Result")
_HEADER = re.compile(r"the header `Weir-(\w+)`", re.IGNORECASE)
"""An error of the API names a header; the command shows its own option of that name instead."""
_TIMEOUT_S = 30.0
_READ_TRIES = 3
"""Reads are repeated when the API is busy; changes are not, because a person sees the error and decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiScope:
    """Which API to ask, and about which environment; a name that is left out comes from the token."""

    settings: Settings
    organization: str | None = None
    project: str | None = None
    environment: str | None = None


class RefusedByApi(WeirError):
    """The API answered with an error: `problem` is the whole RFC 9457 document."""

    def __init__(self, detail: str, *, problem: Mapping[str, Any]) -> None:
        super().__init__(detail)
        self.problem = problem


class ApiSession:
    """The requests of one command. Answers are JSON documents, and errors are `WeirError`s."""

    def __init__(self, options: ClientOptions) -> None:
        self.options = options
        self._reading = Transport(options)
        self._changing = Transport(replace(options, retry_attempts=1))

    async def aclose(self) -> None:
        await self._reading.aclose()
        await self._changing.aclose()

    async def get(self, *path: str, **query: object) -> dict[str, Any]:
        return await self.send("GET", *path, query=query)

    async def post(self, *path: str, body: object = None, **query: object) -> dict[str, Any]:
        return await self.send("POST", *path, body=body, query=query)

    async def put(self, *path: str, body: object, revision: str | None = None) -> dict[str, Any]:
        """Replace something, only if it is still at the revision, if one is given."""
        return await self.send("PUT", *path, body=body, revision=revision)

    async def delete(self, *path: str, **query: object) -> dict[str, Any]:
        return await self.send("DELETE", *path, query=query)

    async def send(
        self,
        method: str,
        *path: str,
        body: object = None,
        query: Mapping[str, object] | None = None,
        revision: str | None = None,
    ) -> dict[str, Any]:
        """One request below `/api/v1`; the parts of the path are quoted, and a query of None is left out."""
        transport = self._reading if method == "GET" else self._changing
        try:
            return await transport.send(method, _route(path, query or {}), body=body, if_match=revision)
        except ApiError as error:
            detail = _HEADER.sub(
                lambda found: f"`--{found[1].lower()}`", str(error.problem.get("detail", error))
            )
            raise RefusedByApi(detail, problem=error.problem) from None
        except Unreachable:
            raise Unavailable(
                f"nothing answers at `{transport.base_url}`; start Weir with `weir up`, or set WEIR_URL"
            ) from None


def chosen_scope(
    *,
    organization: OrganizationOption = None,
    project: ProjectOption = None,
    environment: Annotated[
        str | None, typer.Option("--environment", "-e", help="Environment that the command is about.")
    ] = None,
    data_dir: DataDirOption = None,
) -> ApiScope:
    """The scope that the options of a command choose."""
    return ApiScope(
        settings=settings_with(data_dir), organization=organization, project=project, environment=environment
    )


def own_scope(*, data_dir: DataDirOption = None) -> ApiScope:
    """The scope of the token, for commands that are not about one environment."""
    return ApiScope(settings=settings_with(data_dir))


about_environment = with_options(scope=chosen_scope)
"""Gives a command the options that choose an environment, as its argument `scope`."""
about_token = with_options(scope=own_scope)
"""The same for a command that is about everything that the token reaches."""


@asynccontextmanager
async def api_session(scope: ApiScope) -> AsyncIterator[ApiSession]:
    """A session of the API that the settings name, or that serves the data directory."""
    url, token, assumed = _address(scope.settings)
    options = ClientOptions(
        base_urls=(url,),
        token=token,
        timeout_s=_TIMEOUT_S,
        retry_attempts=_READ_TRIES,
        organization=scope.organization or assumed,
        project=scope.project or assumed,
        environment=scope.environment or assumed,
    )
    session = ApiSession(options)
    try:
        yield session
    finally:
        await session.aclose()


def ask_api(
    scope: ApiScope,
    work: Callable[[ApiSession], Awaitable[Result]],
    *,
    doing: str | None = "waiting for the API",
) -> Result:
    """Run a command's work with a session; Ctrl-C ends it early. `doing` is None if it shows its progress."""

    async def run() -> Result:
        async with api_session(scope) as session:
            return await work(session)

    return cast(Result, run_until_done(run(), doing=doing))


def _address(settings: Settings) -> tuple[str, str, str | None]:
    """Where the API is, the token, and the name for each level of the tenant that the command leaves out.

    A token that the user set may fix its environment. The operator's token of the data directory fixes
    nothing, so that with it organization, project and environment are `default` unless they are given.
    """
    folder = settings.embedded.data_dir
    url = settings.url or find_address(folder)
    if url is None:
        raise Misconfigured(
            f"no API runs over `{folder}` and WEIR_URL is not set; start one with `weir up`, or set it"
        )
    if settings.token is not None:
        return url.rstrip("/"), settings.token.get_secret_value(), None
    token = read_token(folder / OPERATOR_FILE)
    if not token:
        raise Misconfigured(
            "there is no token; set WEIR_TOKEN, or make the first one with `weir token bootstrap`"
        )
    return url.rstrip("/"), token, "default"


def _route(path: tuple[str, ...], query: Mapping[str, object]) -> str:
    route = "/api/v1/" + "/".join(quote(part, safe="") for part in path)
    given = {name: value for name, value in query.items() if value is not None}
    return f"{route}?{urlencode(given)}" if given else route
