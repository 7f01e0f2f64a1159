"""Tokens: created, listed, rotated and revoked by admins inside their own scope."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict

from fastapi import APIRouter, status

from weir.api.auth import App, Caller
from weir.api.schemas.tokens import RotateBody, TokenBody, TokenCreated, TokenList, TokenView
from weir.api.services import Services, all_or_nothing, present
from weir.control.audit_log import AuditedChange
from weir.control.principals import Principal, Role
from weir.control.tokens import NewToken, Token
from weir.errors import Unavailable

router = APIRouter(prefix="/api/v1/tokens", tags=["tokens"])


@router.get("", operation_id="list_tokens")
async def list_tokens(caller: Caller, services: App) -> TokenList:
    """The tokens inside the scope of this one; secrets are not stored and not shown."""
    caller.demand(Role.ADMIN)
    tokens = await present(services.tokens, "PostgreSQL").inside(caller)
    return TokenList(items=[_view(token) for token in tokens])


@router.post("", operation_id="create_token", status_code=status.HTTP_201_CREATED)
async def create_token(body: TokenBody, caller: Caller, services: App) -> TokenCreated:
    """Create a token inside the scope of this one. The answer holds its text, this once."""
    # A user of Redis reaches every environment of its shard, so only an operator may make one.
    caller.demand(Role.OPERATOR if body.direct or body.role is Role.OPERATOR else Role.ADMIN)
    new = NewToken(
        name=body.name,
        role=body.role,
        organization=caller.organization if body.organization is None else body.organization,
        project=caller.project if body.project is None else body.project,
        environment=caller.environment if body.environment is None else body.environment,
        lifetime_ms=body.lifetime_ms,
        direct=body.direct,
    )
    async with all_or_nothing(services):
        text, token = await present(services.tokens, "PostgreSQL").create(new, by=caller)
        await _audit(services, caller, "token.create", token)
        await _allow_direct(services, token)
    return TokenCreated(**_view(token).model_dump(), token=text)


@router.post(
    "/{token_id}/rotate",
    operation_id="rotate_token",
    status_code=status.HTTP_201_CREATED,
)
async def rotate_token(token_id: str, body: RotateBody, caller: Caller, services: App) -> TokenCreated:
    """Replace a token by a fresh one of the same scope and role; the old one ends after the grace."""
    caller.demand(Role.ADMIN)
    tokens = present(services.tokens, "PostgreSQL")
    old = await tokens.find(token_id)
    if old is not None and old.direct:
        caller.demand(Role.OPERATOR)
    async with all_or_nothing(services):
        text, token = await tokens.rotate(token_id, by=caller, grace_ms=body.grace_ms)
        await _audit(services, caller, "token.rotate", token)
        await _allow_direct(services, token)
    services.authenticator.forget(token_id)
    if token.direct and body.grace_ms == 0:
        await _end_direct(services, token_id)
    return TokenCreated(**_view(token).model_dump(), token=text)


@router.delete(
    "/{token_id}",
    operation_id="revoke_token",
    status_code=status.HTTP_204_NO_CONTENT,
)
async def revoke_token(token_id: str, caller: Caller, services: App) -> None:
    """End a token: at once here, within seconds in other processes."""
    caller.demand(Role.ADMIN)
    async with all_or_nothing(services):
        token = await present(services.tokens, "PostgreSQL").revoke(token_id, by=caller)
        await _audit(services, caller, "token.revoke", token)
    services.authenticator.forget(token_id)
    if token.direct:
        await _end_direct(services, token_id)


async def _allow_direct(services: Services, token: Token) -> None:
    """Make the user of Redis that belongs to a token for direct mode."""
    if token.direct and token.scope is not None:
        users = present(services.direct_users, "Redis")
        await users.allow(token.id, digest=token.secret_sha256, environment=token.scope)


async def _end_direct(services: Services, token_id: str) -> None:
    """Remove the user of Redis of a token. If Redis does not answer, a loop removes it once Redis does."""
    with suppress(Unavailable):
        await present(services.direct_users, "Redis").remove(token_id)


async def _audit(services: Services, caller: Principal, action: str, token: Token) -> None:
    if services.audit is not None:
        # Recorded in the token's scope, not the caller's: a tenant sees what an operator did to its tokens.
        change = AuditedChange(
            actor=caller.actor,
            action=action,
            target=token.id,
            organization=token.organization,
            project=token.project,
            environment=token.environment,
        )
        await services.audit.record(change)


def _view(token: Token) -> TokenView:
    members = asdict(token)
    del members["secret_sha256"]
    return TokenView(**members)
