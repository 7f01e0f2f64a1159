"""Who sends a request, and for which environment. Only this module of the API tells tenants apart.

An environment-scoped token implies its environment. Wider tokens choose with the headers
`Weir-Organization`, `Weir-Project` and `Weir-Environment` (percent-encoded UTF-8), or with an
`environment` or `env` in the path.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated
from urllib.parse import unquote

from fastapi import Depends, Header, Query, Request

from weir.api.services import Services
from weir.api.wire import PRINCIPAL, note_principal
from weir.control.authentication import Authenticator
from weir.control.principals import Principal, Role
from weir.errors import InvalidInput, Unauthenticated
from weir.model.names import EnvironmentRef, QueueRef

NO_CREDENTIAL = "no credential was sent; send `Authorization: Bearer weir_…`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """An authenticated request: who sends it, and for which environment."""

    principal: Principal
    environment: EnvironmentRef

    @property
    def actor(self) -> str:
        """The name of the caller in audit records."""
        return self.principal.actor


async def authenticate(headers: Mapping[str, str], authenticator: Authenticator) -> Principal:
    """The principal behind the `Authorization` header."""
    return await authenticator.authenticate(token_text(headers))


def token_text(headers: Mapping[str, str]) -> str:
    """The text of the token in the `Authorization` header."""
    value = headers.get("authorization")
    if value is None:
        raise Unauthenticated(NO_CREDENTIAL)
    scheme, _, text = value.partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthenticated(NO_CREDENTIAL)
    return text.strip()


def access(principal: Principal, headers: Mapping[str, str], services: Services, *, role: Role) -> Access:
    """The access of a hot request; routes of the control plane use `require` instead."""
    principal.demand(role)
    found = _chosen(
        principal,
        headers.get("weir-organization"),
        headers.get("weir-project"),
        headers.get("weir-environment"),
    )
    note_served(services, found.environment)
    return found


def note_served(services: Services, environment: EnvironmentRef) -> None:
    """Note that this process served the environment: a tenant sees the processes that served it."""
    if services.presence is not None:
        services.presence.note_served(environment)


@lru_cache(maxsize=4_096)
def _chosen(
    principal: Principal, organization: str | None, project: str | None, environment: str | None
) -> Access:
    chosen = principal.choose(
        organization=_decoded(organization), project=_decoded(project), environment=_decoded(environment)
    )
    return Access(principal=principal, environment=chosen)


@lru_cache(maxsize=16_384)
def queue_ref(environment: EnvironmentRef, name: str) -> QueueRef:
    """A queue of an environment; cached, because checking names is not free."""
    return environment.queue(name)


def _decoded(value: str | None) -> str | None:
    if value is None:
        return None
    try:
        return unquote(value.encode("latin-1").decode(), errors="strict")
    except UnicodeDecodeError:
        raise InvalidInput("a `Weir-…` header is not percent-encoded UTF-8") from None


def until_token_ends(request: Request, events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """The events of a stream, until the token that opened it is revoked or expires."""
    services: Services = request.app.state.services
    token = token_text(request.headers)
    return services.open_requests.until_ended(services.authenticator, token, events)


async def services_of(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


async def principal_of(request: Request, services: Annotated[Services, Depends(services_of)]) -> Principal:
    """The principal that sends a request, for whatever environment."""
    principal: Principal | None = request.scope.get(PRINCIPAL)
    if principal is None:
        principal = await authenticate(request.headers, services.authenticator)
        note_principal(request.scope, principal)
    return principal


Scope = Annotated[str | None, Header(max_length=1024)]


def require(role: Role) -> Callable[..., Awaitable[Access]]:
    """A dependency: an authenticated caller with at least this role, and its environment."""

    async def dependency(
        request: Request,
        services: Annotated[Services, Depends(services_of)],
        principal: Annotated[Principal, Depends(principal_of)],
        weir_organization: Scope = None,
        weir_project: Scope = None,
        weir_environment: Scope = None,
    ) -> Access:
        return chosen_access(
            services,
            principal,
            role=role,
            organization=weir_organization,
            project=weir_project,
            environment=weir_environment,
            named=request.path_params.get("environment", request.path_params.get("env")),
        )

    return dependency


def chosen_access(
    services: Services,
    principal: Principal,
    *,
    role: Role,
    organization: str | None,
    project: str | None,
    environment: str | None,
    named: str | None,
) -> Access:
    """The access to the environment that the headers choose; `named`, from the URL, wins over its header."""
    principal.demand(role)
    chosen = principal.choose(
        organization=_decoded(organization),
        project=_decoded(project),
        environment=named if named is not None else _decoded(environment),
    )
    note_served(services, chosen)
    return Access(principal=principal, environment=chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class WideAccess:
    """An authenticated request about one environment, or of an operator about all of them."""

    principal: Principal
    environment: EnvironmentRef | None
    """None: every environment."""


async def wide_access(
    request: Request,
    services: Annotated[Services, Depends(services_of)],
    principal: Annotated[Principal, Depends(principal_of)],
    all_environments: Annotated[
        bool, Query(description="Ask about every environment instead of one; for operators.")
    ] = False,
    weir_organization: Scope = None,
    weir_project: Scope = None,
    weir_environment: Scope = None,
) -> WideAccess:
    """A dependency: who reads, and whether about one environment or about all."""
    if all_environments:
        principal.demand(Role.OPERATOR)
        return WideAccess(principal=principal, environment=None)
    one = await require(Role.READ)(
        request, services, principal, weir_organization, weir_project, weir_environment
    )
    return WideAccess(principal=principal, environment=one.environment)


App = Annotated[Services, Depends(services_of)]
Caller = Annotated[Principal, Depends(principal_of)]
Reader = Annotated[Access, Depends(require(Role.READ))]
WideReader = Annotated[WideAccess, Depends(wide_access)]
Writer = Annotated[Access, Depends(require(Role.WRITE))]
Admin = Annotated[Access, Depends(require(Role.ADMIN))]
