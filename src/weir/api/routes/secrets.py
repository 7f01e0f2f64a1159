"""Secrets of an environment, which specs name: set, listed by name, and never shown."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query, status

from weir.api.auditing import audit
from weir.api.auth import Access, Admin, App, Reader
from weir.api.schemas.secrets import SecretBody, SecretList, SecretView
from weir.api.services import Services, all_or_nothing, present
from weir.control.secrets import Secrets
from weir.errors import ControlUnavailable

router = APIRouter(prefix="/api/v1/secrets", tags=["secrets"])


@router.get("", operation_id="list_secrets")
async def list_secrets(access: Reader, services: App) -> SecretList:
    """The names and dates of the environment's secrets."""
    return await _listed(services, access)


@router.put("/{name}", operation_id="put_secret")
async def put_secret(name: str, body: SecretBody, access: Admin, services: App) -> SecretList:
    """Store a secret or replace it; every process follows within a second, and the old value holds for a day.

    The same value again changes nothing. The answer is the list of the environment's secrets.
    """
    secrets = _room(services)
    async with all_or_nothing(services):
        changed = await secrets.put(
            access.environment,
            name,
            body.value.get_secret_value(),
            actor=access.actor,
            keep_old_ms=body.keep_old_ms,
        )
        if changed:
            await audit(services, access, "secret.set", name, keep_old_ms=body.keep_old_ms)
    await _follow(secrets)
    return await _listed(services, access)


@router.delete("/{name}", operation_id="delete_secret", status_code=status.HTTP_204_NO_CONTENT)
async def delete_secret(
    name: str,
    access: Admin,
    services: App,
    only_old: Annotated[
        bool, Query(description="End only the value that was replaced, before its time.")
    ] = False,
) -> None:
    """Delete a secret: what is signed with it is refused from then on, and nothing is delivered with it."""
    secrets = _room(services)
    async with all_or_nothing(services):
        if only_old:
            await secrets.end_previous(access.environment, name)
        else:
            await secrets.delete(access.environment, name)
        await audit(services, access, "secret.end_old" if only_old else "secret.delete", name)
    await _follow(secrets)


def _room(services: Services) -> Secrets:
    return present(services.secrets, "PostgreSQL")


async def _listed(services: Services, access: Access) -> SecretList:
    found = await _room(services).listed(access.environment)
    return SecretList(items=[SecretView(**asdict(one)) for one in found])


async def _follow(secrets: Secrets) -> None:
    """Let this process know the change before it answers; the others look for it themselves."""
    with suppress(ControlUnavailable):
        await secrets.load()
