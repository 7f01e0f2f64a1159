"""The register of tokens in PostgreSQL, which never stores a secret."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from weir.control.database import Connection, Database, Row, execute, execute_many, fetch_one
from weir.control.principals import Principal, Role
from weir.control.scopes import principal_names
from weir.control.sql import load_queries
from weir.control.tenants import SQL as TENANTS
from weir.control.tenants import ensure_environment
from weir.control.token_texts import mint
from weir.errors import Conflict, Forbidden, InvalidInput, NotFound
from weir.model.clock import Clock, SystemClock
from weir.model.names import EnvironmentRef, check_name, check_tenant

SQL = load_queries("weir.control", "tokens.sql")
# How long a request with an uncached token waits for PostgreSQL; `docs/reference/deadlines.md` promises it.
FIND_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A stored token: everything but its secret."""

    id: str
    organization: str | None
    project: str | None
    environment: str | None
    role: Role
    name: str
    secret_sha256: bytes
    created_at_ms: int
    expires_at_ms: int | None
    revoked_at_ms: int | None
    last_used_at_ms: int | None
    replaces: str | None
    direct: bool = False
    """Whether a user of Redis belongs to it, for clients in direct mode."""

    @property
    def principal(self) -> Principal:
        return Principal(
            token_id=self.id,
            role=self.role,
            organization=self.organization,
            project=self.project,
            environment=self.environment,
            direct=self.direct,
        )

    @property
    def scope(self) -> EnvironmentRef | None:
        """The one environment that it reaches; None if it reaches more."""
        if self.organization is None or self.project is None or self.environment is None:
            return None
        return EnvironmentRef(
            organization=self.organization, project=self.project, environment=self.environment
        )

    @property
    def ends_at_ms(self) -> float:
        """When the token stops being valid: 0 if it is revoked, infinity if it does not expire."""
        if self.revoked_at_ms is not None:
            return 0
        return math.inf if self.expires_at_ms is None else self.expires_at_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """A token to create: a role inside a scope, under a name for people."""

    name: str
    role: Role
    organization: str | None
    project: str | None = None
    environment: str | None = None
    lifetime_ms: int | None = None
    direct: bool = False

    def __post_init__(self) -> None:
        check_name(self.name, what="token")
        if (self.role is Role.OPERATOR) != (self.organization is None):
            raise InvalidInput("an operator's token has no organization, and every other token has one")
        if self.organization is not None:
            check_tenant(self.organization)
        elif self.project is not None:
            raise InvalidInput("an operator's token reaches every project; leave the project out")
        if self.environment is not None and self.project is None:
            raise InvalidInput("a token for an environment needs its project too")
        if self.project is not None:
            check_name(self.project, what="project")
        if self.environment is not None:
            check_name(self.environment, what="environment")
        if self.lifetime_ms is not None and self.lifetime_ms <= 0:
            raise InvalidInput("the lifetime of a token must be positive; leave it out for no expiry")
        if self.direct and (self.environment is None or self.role.rank < Role.WRITE.rank):
            raise InvalidInput(
                "a token for direct mode belongs to one environment and may write; "
                "name its organization, project and environment, and a role above `read`"
            )


class Tokens:
    """The register of tokens. Methods with a principal act only inside its scope."""

    def __init__(self, database: Database, *, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    async def create(self, new: NewToken, *, by: Principal | None = None) -> tuple[str, Token]:
        """A fresh token: its text, which is shown this once, and its record."""
        if by is not None:
            _demand_inside(by, new)
        async with self._database.transaction() as connection:
            return await self._insert(connection, new, replaces=None)

    async def find(self, token_id: str) -> Token | None:
        async with self._database.connection(within_s=FIND_S) as connection:
            row = await fetch_one(connection, SQL["find_token"], id=token_id)
        return None if row is None else _token(row)

    async def inside(self, principal: Principal) -> list[Token]:
        """The tokens whose scope lies inside the principal's."""
        rows = await self._database.fetch(SQL["list_tokens"], **principal_names(principal))
        return [_token(row) for row in rows]

    async def direct(self) -> list[Token]:
        """Every token for direct mode, also if it has ended."""
        return [_token(row) for row in await self._database.fetch(SQL["direct_tokens"])]

    async def revoke(self, token_id: str, *, by: Principal) -> Token:
        """End a token at once. NotFound if it is outside the principal's scope or was revoked before."""
        row = await self._database.fetch_one(
            SQL["revoke_token"], id=token_id, now_ms=self._clock.now_ms(), **principal_names(by)
        )
        if row is None:
            raise NotFound(f"there is no live token `{token_id}` in the scope of this token")
        return _token(row)

    async def rotate(self, token_id: str, *, by: Principal, grace_ms: int = 0) -> tuple[str, Token]:
        """Replace a token by a new one of the same scope and role; the old one ends after `grace_ms`."""
        async with self._database.transaction() as connection:
            row = await fetch_one(connection, SQL["lock_token"], id=token_id)
            # Now, not before the wait for the lock: another rotation may have ended the token meanwhile.
            now_ms = self._clock.now_ms()
            old = None if row is None else _token(row)
            if old is None or not _inside(by, old):
                raise NotFound(f"there is no token `{token_id}` in the scope of this token")
            if now_ms >= old.ends_at_ms:
                raise Conflict(f"the token `{token_id}` has ended; create a new one instead")
            await execute(connection, SQL["expire_token"], id=token_id, expires_at_ms=now_ms + grace_ms)
            return await self._insert(connection, _successor(old), replaces=token_id)

    async def touch(self, seen: Mapping[str, int]) -> None:
        """Store when tokens were last used."""
        async with self._database.transaction() as connection:
            # In the order of their ids: two processes that touch the same tokens must not deadlock.
            parameters = [{"id": token_id, "at_ms": at_ms} for token_id, at_ms in sorted(seen.items())]
            await execute_many(connection, SQL["touch_token"], parameters)

    async def _insert(
        self, connection: Connection, new: NewToken, *, replaces: str | None
    ) -> tuple[str, Token]:
        now_ms = self._clock.now_ms()
        text, parts = mint(new.environment or new.project or new.organization or str(new.role))
        await _ensure_scope(connection, new, now_ms=now_ms)
        expires_at_ms = None if new.lifetime_ms is None else now_ms + new.lifetime_ms
        await execute(
            connection,
            SQL["insert_token"],
            id=parts.id,
            organization=new.organization,
            project=new.project,
            environment=new.environment,
            role=str(new.role),
            name=new.name,
            digest=parts.digest,
            now_ms=now_ms,
            expires_at_ms=expires_at_ms,
            replaces=replaces,
            direct=new.direct,
        )
        row = await fetch_one(connection, SQL["find_token"], id=parts.id)
        assert row is not None
        return text, _token(row)


async def _ensure_scope(connection: Connection, new: NewToken, *, now_ms: int) -> None:
    if new.organization is None:
        return
    if new.project is not None and new.environment is not None:
        scope = EnvironmentRef(
            organization=new.organization, project=new.project, environment=new.environment
        )
        await ensure_environment(connection, scope, now_ms=now_ms)
        return
    names = {"organization": new.organization, "project": new.project, "now_ms": now_ms}
    await execute(connection, TENANTS["ensure_organization"], **names)
    if new.project is not None:
        await execute(connection, TENANTS["ensure_project"], **names)


def _demand_inside(principal: Principal, new: NewToken) -> None:
    principal.demand(max(Role.ADMIN, new.role, key=lambda role: role.rank))
    inside = principal.covers(organization=new.organization, project=new.project, environment=new.environment)
    if not inside:
        raise Forbidden("a token can only create tokens inside its own scope")


def _inside(principal: Principal, token: Token) -> bool:
    return principal.covers(
        organization=token.organization, project=token.project, environment=token.environment
    )


def _successor(old: Token) -> NewToken:
    lifetime_ms = None if old.expires_at_ms is None else max(1, old.expires_at_ms - old.created_at_ms)
    return NewToken(
        name=old.name,
        role=old.role,
        organization=old.organization,
        project=old.project,
        environment=old.environment,
        lifetime_ms=lifetime_ms,
        direct=old.direct,
    )


def _token(row: Row) -> Token:
    return Token(**{**row, "role": Role(row["role"]), "secret_sha256": bytes(row["secret_sha256"])})
