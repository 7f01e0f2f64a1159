"""Idempotency keys of what runs at once: claimed before, with the result after, for 24 hours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from weir.control.database import Database
from weir.control.scopes import scope_names
from weir.errors import InFlight, KeyReused
from weir.model.durations import MINUTE_MS
from weir.model.names import EnvironmentRef
from weir.workers.journal import KEYS_KEPT_MS, SQL

STUCK_MS = MINUTE_MS
"""A claim this old was left behind by a process that died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPlace:
    """Whose key it is: a webhook of an environment."""

    scope: EnvironmentRef
    name: str
    key: str


class SigningKeys(Protocol):
    """Runs each key once."""

    async def begin(self, place: KeyPlace, *, digest: bytes, message_id: str, now_ms: int) -> bytes | None:
        """None: the key is ours, go on. Else the stored result. InFlight or KeyReused otherwise."""

    async def finish(self, place: KeyPlace, result: bytes) -> None: ...

    async def abandon(self, place: KeyPlace) -> None:
        """It failed: let a retry run again."""


class PostgresKeys:
    """Keys in PostgreSQL, so that every process keeps the promise."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, place: KeyPlace, *, digest: bytes, message_id: str, now_ms: int) -> bytes | None:
        names = _names(place)
        claimed = await self._database.fetch_one(
            SQL["begin_hook"],
            **names,
            digest=digest,
            message_id=message_id,
            now_ms=now_ms,
            expired_ms=now_ms - KEYS_KEPT_MS,
            stuck_ms=now_ms - STUCK_MS,
        )
        if claimed is not None:
            return None
        found = await self._database.fetch_one(SQL["find_hook_key"], **names)
        if found is None:
            raise in_flight()
        return _stored(
            bytes(found["digest"]), digest, None if found["in_flight"] else orjson.dumps(found["result"])
        )

    async def finish(self, place: KeyPlace, result: bytes) -> None:
        await self._database.execute(SQL["finish_hook"], **_names(place), result=result.decode())

    async def abandon(self, place: KeyPlace) -> None:
        await self._database.execute(SQL["abandon_hook"], **_names(place))


def _stored(before: bytes, now: bytes, result: bytes | None) -> bytes:
    if before != now:
        raise KeyReused("this id came with another body before; a retry must repeat the request as it was")
    if result is None:
        raise in_flight()
    return result


def in_flight() -> InFlight:
    return InFlight("the first request with this id still runs; ask again", retry_after_s=1)


def _names(place: KeyPlace) -> dict[str, Any]:
    return {**scope_names(place.scope), "name": place.name, "key": place.key}
