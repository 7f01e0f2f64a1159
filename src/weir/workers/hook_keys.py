"""Idempotency keys of webhooks that run at once: claimed before the run, kept with the result for a day."""

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

# A claim this old belongs to a process that died: such a webhook is answered while its sender waits.
STUCK_MS = MINUTE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class HookKey:
    """An idempotency key of a webhook."""

    scope: EnvironmentRef
    name: str
    key: str


class HookKeys(Protocol):
    """Makes each key run once."""

    async def begin(self, hook_key: HookKey, *, digest: bytes, message_id: str, now_ms: int) -> bytes | None:
        """Claim the key: None if it is ours now, or the stored result. Raises InFlight or KeyReused."""

    async def finish(self, hook_key: HookKey, result: bytes) -> None: ...

    async def abandon(self, hook_key: HookKey) -> None:
        """Release the key after a failure, so that a retry runs again."""


class PostgresHookKeys:
    """Keys in PostgreSQL, which all processes share."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, hook_key: HookKey, *, digest: bytes, message_id: str, now_ms: int) -> bytes | None:
        names = _names(hook_key)
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
        # The first request failed and released the key between the two statements; the sender tries again.
        if found is None:
            raise in_flight_error()
        return _result_or_raise(
            bytes(found["digest"]), digest, None if found["in_flight"] else orjson.dumps(found["result"])
        )

    async def finish(self, hook_key: HookKey, result: bytes) -> None:
        await self._database.execute(SQL["finish_hook"], **_names(hook_key), result=result.decode())

    async def abandon(self, hook_key: HookKey) -> None:
        await self._database.execute(SQL["abandon_hook"], **_names(hook_key))


def _result_or_raise(before: bytes, now: bytes, result: bytes | None) -> bytes:
    if before != now:
        raise KeyReused("this id came with another body before; a retry must repeat the request as it was")
    if result is None:
        raise in_flight_error()
    return result


def in_flight_error() -> InFlight:
    return InFlight("the first request with this id still runs; ask again", retry_after_s=1)


def _names(hook_key: HookKey) -> dict[str, Any]:
    return {**scope_names(hook_key.scope), "name": hook_key.name, "key": hook_key.key}
