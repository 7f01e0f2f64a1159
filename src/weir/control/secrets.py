"""Secrets that specs name: each belongs to one environment, is stored sealed, and is never shown again.

A process keeps what it read, so that webhooks verify while PostgreSQL is away, and reads the secrets of an
environment again within a second after they changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from weir.control.database import Connection, Database, Row, execute, fetch, fetch_one
from weir.control.scopes import scope_names, scope_of
from weir.control.sealing import MAKE_A_KEY, Sealed, SealingKeys
from weir.control.sql import load_queries
from weir.errors import ControlUnavailable, InvalidInput, Misconfigured, NotFound, Unavailable
from weir.model.clock import Clock, SystemClock
from weir.model.durations import DAY_MS
from weir.model.names import EnvironmentRef, check_secret_name

SQL = load_queries("weir.control", "secrets.sql")
log = structlog.get_logger("weir.control")

SecretLookUp = Callable[[EnvironmentRef, str], Sequence[str]]
"""The values of an environment's secret that hold now, the current one first; empty if there is none."""

MIN_SECRET_BYTES = 24
"""Shorter ones can be guessed. Standard Webhooks asks for as many."""
MAX_SECRET_BYTES = 1_024
MAX_SECRETS = 50
"""Per environment: every process keeps all of them in memory, at most 100 kB."""
KEEP_OLD_MS = DAY_MS
"""How long the value before a change holds, if nobody says otherwise."""
MAX_KEEP_OLD_MS = 30 * DAY_MS
MAX_VALUES = 8
"""How many secrets are tried for one request: each costs a digest of the body."""
# How soon a process follows a change; each look costs one small query.
REFRESH_S = 0.5
_AT_ONCE = 50
"""Environments that are read, and secrets that are sealed again, at once; at most 5 MB."""
_SAY_EVERY_S = 60.0
_PREFIX = "whsec_"
NO_KEY = (
    "there is no key to seal secrets with; the operator names a file of keys in `WEIR_SECRETS__KEY_FILE` "
    f"({MAKE_A_KEY})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """What may be shown of a secret."""

    name: str
    set_at_ms: int
    set_by: str
    previous_until_ms: int | None
    """Until when the value before holds too; None if only one holds."""


@dataclass(frozen=True, slots=True)
class _Values:
    """The opened values of one secret."""

    current: str | None
    previous: str | None
    previous_until_ms: int


class Secrets:
    """The secrets of all environments: changed in PostgreSQL, looked up in memory."""

    def __init__(
        self,
        database: Database,
        keys: SealingKeys | None,
        *,
        clock: Clock | None = None,
        every_s: float = REFRESH_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._keys = keys
        self._clock = clock or SystemClock()
        self._every_s = every_s
        self._monotonic = monotonic
        self._version = 0
        self._values: dict[EnvironmentRef, Mapping[str, _Values]] = {}
        self._said_s: float | None = None

    def of(self, environment: EnvironmentRef, name: str) -> Sequence[str]:
        """The values that hold now, the current one first."""
        found = self._values.get(environment, {}).get(name)
        if found is None:
            return ()
        values = [] if found.current is None else [found.current]
        if found.previous is not None and self._clock.now_ms() < found.previous_until_ms:
            values.append(found.previous)
        return values

    async def listed(self, environment: EnvironmentRef) -> list[Secret]:
        """The names and dates of an environment's secrets, by name."""
        now_ms = self._clock.now_ms()
        rows = await self._database.fetch(SQL["secrets_of"], **scope_names(environment))
        return [_shown(row, now_ms=now_ms) for row in rows]

    async def put(
        self,
        environment: EnvironmentRef,
        name: str,
        value: str,
        *,
        actor: str,
        keep_old_ms: int = KEEP_OLD_MS,
    ) -> bool:
        """Store or replace a secret; returns whether it changed.

        The value before holds for `keep_old_ms` more. The same value again changes nothing, so a request
        whose answer was lost can be sent again.
        """
        check_secret_name(name)
        check_secret_value(value)
        if not 0 <= keep_old_ms <= MAX_KEEP_OLD_MS:
            raise InvalidInput(f"the old value may hold for 0 s to {MAX_KEEP_OLD_MS // DAY_MS} days more")
        if self._keys is None:
            raise Unavailable(NO_KEY)
        scope, now_ms, place = scope_names(environment), self._clock.now_ms(), _place(environment, name)
        async with self._database.transaction() as connection:
            await fetch(connection, SQL["lock_secrets"])
            row = await fetch_one(connection, SQL["find_secret"], name=name, **scope)
            old = None if row is None else self._keys.open(_current(row), place=place)
            if old == value:
                return False
            if row is None:
                await _check_room(connection, environment)
            sealed = self._keys.seal(value, place=place)
            await execute(
                connection,
                SQL["put_secret"],
                name=name,
                key_id=sealed.key_id,
                sealed=sealed.data,
                now_ms=now_ms,
                actor=actor,
                # A value that cannot be opened any more holds nowhere.
                until_ms=None if old is None or keep_old_ms == 0 else now_ms + keep_old_ms,
                **scope,
            )
            await execute(connection, SQL["note_secrets_changed"], **scope)
        return True

    async def end_previous(self, environment: EnvironmentRef, name: str) -> None:
        """End the value that was replaced; NotFound if there is no such secret."""
        scope = scope_names(environment)
        async with self._database.transaction() as connection:
            await fetch(connection, SQL["lock_secrets"])
            if await fetch_one(connection, SQL["find_secret"], name=name, **scope) is None:
                raise _unknown(name)
            if await execute(connection, SQL["end_previous"], name=name, **scope):
                await execute(connection, SQL["note_secrets_changed"], **scope)

    async def delete(self, environment: EnvironmentRef, name: str) -> None:
        """Delete a secret: what it verified is refused from then on."""
        scope = scope_names(environment)
        async with self._database.transaction() as connection:
            await fetch(connection, SQL["lock_secrets"])
            if not await execute(connection, SQL["delete_secret"], name=name, **scope):
                raise _unknown(name)
            await execute(connection, SQL["note_secrets_changed"], **scope)

    async def demand_key(self) -> None:
        """Fail a start that could open none of the stored secrets."""
        if self._keys is None and await self._database.fetch_one(SQL["any_secret"]) is not None:
            raise Misconfigured(
                "secrets are stored, and this process has no key to open them; name the file of keys in "
                "`WEIR_SECRETS__KEY_FILE`, as where they were set"
            )

    async def refresh(self) -> bool:
        """Read the secrets of environments where some changed; returns whether any did."""
        rows = await self._database.fetch(SQL["changed_environments"], version=self._version, limit=_AT_ONCE)
        if not rows:
            return False
        changed = [scope_of(row) for row in rows]
        found = await self._database.fetch(
            SQL["secrets_of_environments"],
            organizations=[one.organization for one in changed],
            projects=[one.project for one in changed],
            environments=[one.environment for one in changed],
        )
        opened = await asyncio.to_thread(self._opened, found)
        for environment in changed:
            self._values.pop(environment, None)
        self._values |= opened
        self._version = max(int(row["version"]) for row in rows)
        return True

    async def load(self) -> None:
        """Read everything that changed, however much it is."""
        while await self.refresh():
            pass

    async def seal_again(self) -> int:
        """Seal with the first key what another one sealed; returns how many secrets that were."""
        if self._keys is None:
            return 0
        async with self._database.transaction() as connection:
            rows = await fetch(
                connection,
                SQL["sealed_otherwise"],
                key_id=self._keys.current_id,
                known=self._keys.ids,
                limit=_AT_ONCE,
            )
            done = [await self._reseal(connection, self._keys, row) for row in rows]
        return sum(done)

    async def count_by_key(self) -> dict[str, int]:
        """How many secrets each key seals, by the id of the key."""
        return {row["key_id"]: row["secrets"] for row in await self._database.fetch(SQL["count_by_key"])}

    async def run(self) -> None:
        """Follow changes until cancelled."""
        while True:
            with contextlib.suppress(ControlUnavailable):
                await self.load()
            await asyncio.sleep(self._every_s)

    def _opened(self, rows: Iterable[Row]) -> dict[EnvironmentRef, dict[str, _Values]]:
        found: dict[EnvironmentRef, dict[str, _Values]] = {}
        for row in rows:
            environment = scope_of(row)
            found.setdefault(environment, {})[row["name"]] = self._open(environment, row)
        return found

    def _open(self, environment: EnvironmentRef, row: Row) -> _Values:
        place, previous = _place(environment, row["name"]), _previous(row)
        keys = self._keys
        current = None if keys is None else keys.open(_current(row), place=place)
        if current is None:
            self._say_unopened(environment, row["name"])
        return _Values(
            current,
            None if keys is None or previous is None else keys.open(previous, place=place),
            row["previous_until_ms"] or 0,
        )

    def _say_unopened(self, environment: EnvironmentRef, name: str) -> None:
        now_s = self._monotonic()
        if self._said_s is not None and now_s - self._said_s < _SAY_EVERY_S:
            return
        self._said_s = now_s
        log.error(
            "a stored secret cannot be opened, so what it signs is refused: no key of this process "
            "sealed it; bring the key back, or set the secret again",
            secret=name,
            organization=environment.organization,
            project=environment.project,
            environment=environment.environment,
        )

    async def _reseal(self, connection: Connection, keys: SealingKeys, row: Row) -> int:
        environment, name = scope_of(row), row["name"]
        place, previous = _place(environment, name), _previous(row)
        current = keys.open(_current(row), place=place)
        before = None if previous is None else keys.open(previous, place=place)
        if current is None or (previous is not None and before is None):
            return 0
        return await execute(
            connection,
            SQL["reseal"],
            name=name,
            key_id=keys.current_id,
            sealed=keys.seal(current, place=place).data,
            previous_sealed=None if before is None else keys.seal(before, place=place).data,
            old_sealed=row["sealed"],
            old_previous=row["previous_sealed"],
            **scope_names(environment),
        )


def values_of(look_up: SecretLookUp, environment: EnvironmentRef, names: Iterable[str]) -> list[str]:
    """The values of several secrets that hold now, each once; at most `MAX_VALUES`."""
    found = dict.fromkeys(value for name in names for value in look_up(environment, name))
    return list(found)[:MAX_VALUES]


def check_secret_value(value: str) -> None:
    """InvalidInput unless a value is long enough to be a secret."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidInput("a secret holds a lone surrogate; send valid Unicode text") from None
    if size > MAX_SECRET_BYTES:
        raise InvalidInput(f"a secret has {size} bytes; at most {MAX_SECRET_BYTES} are allowed")
    if not value.isprintable() or value != value.strip():
        raise InvalidInput("a secret is printable text without a space or a line break at its ends")
    if key_size(value) < MIN_SECRET_BYTES:
        raise InvalidInput(
            f"a secret has at least {MIN_SECRET_BYTES} bytes; `{_PREFIX}` does not count, and Base64 after "
            "it counts for what it encodes; `openssl rand -base64 32` makes one"
        )


def key_size(value: str) -> int:
    """How many bytes of key a secret holds."""
    rest = value.removeprefix(_PREFIX)
    return len(rest.encode()) if rest == value else len(rest.rstrip("=")) * 3 // 4


def _place(environment: EnvironmentRef, name: str) -> tuple[str, ...]:
    return (*environment.names, name)


def _current(row: Row) -> Sealed:
    return Sealed(key_id=row["key_id"], data=bytes(row["sealed"]))


def _previous(row: Row) -> Sealed | None:
    if row["previous_sealed"] is None:
        return None
    return Sealed(key_id=row["previous_key_id"], data=bytes(row["previous_sealed"]))


def _shown(row: Row, *, now_ms: int) -> Secret:
    until_ms = row["previous_until_ms"]
    return Secret(
        name=row["name"],
        set_at_ms=row["set_at_ms"],
        set_by=row["set_by"],
        previous_until_ms=until_ms if until_ms is not None and now_ms < until_ms else None,
    )


async def _check_room(connection: Connection, environment: EnvironmentRef) -> None:
    row = await fetch_one(connection, SQL["count_secrets"], **scope_names(environment))
    if row is not None and row["secrets"] >= MAX_SECRETS:
        raise InvalidInput(f"an environment has at most {MAX_SECRETS} secrets; delete one that nothing uses")


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no secret `{name:.80}` in this environment")
