"""Reads the log of a queue: messages that ended, with what they carried, in the order of their ends."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import orjson

from weir.model.beside_loop import beside_loop
from weir.model.clock import Clock
from weir.model.durations import SECOND_MS
from weir.model.limits import MAX_TIME_MS
from weir.model.logged import LogAccount, LoggedMessage, LogPlace
from weir.model.message import check_number
from weir.model.names import QueueRef
from weir.model.shards import shard_of
from weir.model.turns import Turns
from weir.telemetry.events import LOG
from weir.telemetry.life_reader import read_life
from weir.warehouse import tables
from weir.warehouse.reading.freshness import FreshnessReader, GapReader, LandedGap
from weir.warehouse.reading.questions import ask_tenant
from weir.warehouse.reading.reader import Reader

MAX_READ = 1_000
"""Messages in one read."""
MAX_READ_BYTES = 8 * 1024 * 1024
"""The most bytes of headers and payloads in one read, unless the first message alone has more."""
READERS = 4
READ_WAIT_S = 10.0


class LogReader:
    """Reads logs, each within its own tenant."""

    def __init__(
        self, reader: Reader, freshness: FreshnessReader, gaps: GapReader, *, clock: Clock, shards: int
    ) -> None:
        self._reader = reader
        self._freshness = freshness
        self._gaps = gaps
        self._clock = clock
        self._shards = shards
        self.turns = Turns(most=READERS, wait_s=READ_WAIT_S, what="read logs")
        """Each request that looks through a log holds up to 50 MiB meanwhile; an owner is an organization."""

    async def read(
        self,
        queue: QueueRef,
        *,
        from_ms: int,
        to_ms: int,
        after: LogPlace,
        key: str | None = None,
        limit: int = MAX_READ,
    ) -> list[LoggedMessage]:
        """The next messages behind a place that ended from `from_ms` until before `to_ms`; none at the end.

        There may be fewer than `limit` before the end, because a read is bounded in bytes too.
        """
        check_number(limit, what="limit", least=1, most=MAX_READ)
        for name, at_ms in (("from_ms", from_ms), ("to_ms", to_ms)):
            check_number(at_ms, what=name, least=0, most=MAX_TIME_MS)
        asked = {
            "queue": queue.queue,
            "from_ms": from_ms,
            "key": key or "",
            "after_ms": after.ended_at_ms,
            "after_number": after.number,
            "now_s": self._clock.now_ms() // SECOND_MS,
        }
        places = await self._ask("log_places", queue, to_ms=to_ms, limit=limit, **asked)
        if not places:
            return []
        last = _last_that_fits(places)
        until = {"until_ms": last["ended_ms"], "until_number": last["number"]}
        rows = await self._ask("log_messages", queue, **asked, **until)
        return await beside_loop(_messages, sum(len(row["payload"]) for row in rows), queue, rows)

    async def account(self, queue: QueueRef, *, from_ms: int, to_ms: int) -> LogAccount:
        """How many messages of a span are in the log, and how many that ended between them are not.

        Messages are missing if the queue kept no log then, if a gap is recorded, or if they have not landed.
        """
        now_s = self._clock.now_ms() // SECOND_MS
        asked = {"queue": queue.queue, "from_ms": from_ms, "to_ms": to_ms, "now_s": now_s}
        (row,) = await self._ask("log_account", queue, **asked)
        span = row["last"] - row["first"] + 1 if row["messages"] else 0
        return LogAccount(messages=row["messages"], missing=max(0, span - row["messages"]))

    async def complete_until_ms(self, queue: QueueRef) -> int:
        """Until when every message that ended has landed in the log."""
        fresh = await self._freshness.of(LOG.name, anew=True)
        return fresh.complete_until_ms(self._shard(queue))

    async def landed_until_ms(self, queue: QueueRef) -> int:
        """Until when everything that was written has landed; while metrics are off nothing is written."""
        fresh = await self._freshness.of(LOG.name, anew=True)
        return fresh.behind.get(self._shard(queue), fresh.now_ms)

    async def gaps(self, queue: QueueRef, *, from_ms: int, to_ms: int) -> list[LandedGap]:
        """The spans in which messages may be missing, because entries were lost or not written."""
        found = await self._gaps.of(LOG.name, self._shard(queue))
        return [gap for gap in found if gap.span.end_ms >= from_ms and gap.span.start_ms < to_ms]

    def _shard(self, queue: QueueRef) -> int:
        return shard_of(queue.scope, shards=self._shards)

    async def _ask(self, name: str, ref: QueueRef, **asked: Any) -> list[dict[str, Any]]:
        return await self._reader.ask(ask_tenant(name, ref.scope, table=tables.LOG, **asked))


def _last_that_fits(places: list[dict[str, Any]]) -> Mapping[str, Any]:
    carried = 0
    for number, place in enumerate(places):
        carried += place["bytes"]
        if number and carried > MAX_READ_BYTES:
            return places[number - 1]
    return places[-1]


def _messages(queue: QueueRef, rows: list[dict[str, Any]]) -> list[LoggedMessage]:
    return [_message(queue, row) for row in rows]


def _message(queue: QueueRef, row: Mapping[str, Any]) -> LoggedMessage:
    return LoggedMessage(
        number=row["number"],
        life=read_life(queue, row),
        kept_ms=row["kept_until_s"] * SECOND_MS - row["ended_ms"] // SECOND_MS * SECOND_MS,
        left_out=bool(row["left_out"]),
        headers=orjson.loads(row["headers"]) if row["headers"] else {},
        payload=b64decode(row["payload"]),
        idempotency_key=row["idempotency_key"] or None,
    )
