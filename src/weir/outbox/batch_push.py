"""Pushes rows of the outbox into their queues, and sorts them: done, to be set aside, or to be tried again.

Only Weir's own word about a message sets its row aside: a problem with a code that says so. Any other answer,
such as a page of a proxy in between, says nothing about the message, so its queue waits.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from weir.client.core import AsyncWeir
from weir.client.errors import ApiError, ClientError
from weir.client.sharing import MAX_SHARED_BYTES
from weir.client.values import OutgoingMessage, PushResult
from weir.model.item_loops import text_of
from weir.model.message import check_json_payload

Row = dict[str, Any]
PUSH_S = 120.0
"""How long one push may take, with all its tries."""
_FIXED_BYTES = 256
"""At least as many bytes as the names of the fields of one item, its numbers and its punctuation take."""
_NEVER = frozenset({"key_reused", "invalid_input", "malformed", "too_large"})
"""Codes of problems that a message keeps, however often it is tried."""
_TOO_LARGE = 413
"""A proxy may take smaller requests only, so a request that it refuses goes out in halves."""


@dataclass(frozen=True, slots=True)
class _Parcel:
    """A row, and the message that is made of it."""

    row: Row
    message: OutgoingMessage


@dataclass(slots=True)
class BatchPush:
    """One push of rows, in their order. Behind a row that must wait, nothing of its queue goes out."""

    weir: AsyncWeir
    done: list[str] = field(default_factory=list)
    """The ids of the rows whose messages are in their queues."""
    accepting: set[str] = field(default_factory=set)
    """The queues that took messages."""
    waiting: dict[str, str] = field(default_factory=dict)
    """The queues that must wait, each with the reason."""
    never: list[tuple[Row, str]] = field(default_factory=list)
    """The rows that can never be pushed, each with the reason."""
    odd: list[tuple[Row, str]] = field(default_factory=list)
    """The rows whose push ended with an error that nobody foresaw. Their queues wait."""

    async def push(self, rows: Sequence[Row]) -> None:
        for parcels in _cut(self._parcels(rows)):
            await self._push(parcels)

    def _parcels(self, rows: Sequence[Row]) -> Iterator[_Parcel]:
        for row in rows:
            try:
                yield _Parcel(row, _message(row))
            except Exception as error:
                self.never.append((row, text_of(error)))

    async def _push(self, parcels: Sequence[_Parcel]) -> None:
        parcels = [one for one in parcels if one.row["queue"] not in self.waiting]
        if not parcels:
            return
        try:
            async with asyncio.timeout(PUSH_S):
                results = await self.weir.push_many([one.message for one in parcels])
        except ApiError as error:
            await self._take_refusal(parcels, error)
        except (ClientError, TimeoutError) as error:
            self._wait(parcels, str(error) or "no answer in time")
        except Exception as error:
            await self._take_odd(parcels, text_of(error))
        else:
            self._sort(parcels, results)

    async def _take_refusal(self, parcels: Sequence[_Parcel], error: ApiError) -> None:
        """The whole request was refused: find the message for which it was, or wait."""
        about_a_message = error.code in _NEVER
        if len(parcels) > 1 and (about_a_message or error.status == _TOO_LARGE):
            await self._push_halves(parcels)
        elif about_a_message:
            self.never.append((parcels[0].row, str(error)))
        else:
            self._wait(parcels, str(error))

    async def _take_odd(self, parcels: Sequence[_Parcel], problem: str) -> None:
        if len(parcels) > 1:
            await self._push_halves(parcels)
        else:
            self.odd.append((parcels[0].row, problem))
            self._wait(parcels, problem)

    async def _push_halves(self, parcels: Sequence[_Parcel]) -> None:
        middle = len(parcels) // 2
        await self._push(parcels[:middle])
        await self._push(parcels[middle:])

    def _sort(self, parcels: Sequence[_Parcel], results: Sequence[PushResult]) -> None:
        for one, result in zip(parcels, results, strict=True):
            problem = result.problem or {}
            if result.accepted:
                self.accepting.add(one.row["queue"])
                self.done.append(str(one.row["id"]))
            elif problem.get("code") in _NEVER:
                self.never.append((one.row, str(problem.get("detail"))))
            else:
                self._wait([one], str(problem.get("detail")))

    def _wait(self, parcels: Sequence[_Parcel], problem: str) -> None:
        for one in parcels:
            self.waiting.setdefault(one.row["queue"], problem)


def _cut(parcels: Iterator[_Parcel]) -> Iterator[list[_Parcel]]:
    """Cut rows into requests.

    The client would cut a longer one by itself, and send the second part whatever became of the first: a
    queue that was full for the first could take the second.
    """
    batch: list[_Parcel] = []
    size = 0
    for one in parcels:
        more = _most_bytes(one.row)
        if batch and size + more > MAX_SHARED_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += more
    if batch:
        yield batch


def _most_bytes(row: Row) -> int:
    """A bound of what a row takes in a request, where text is ASCII with escapes."""
    payload, texts = row["payload"], (row["queue"], row["key"] or "", row["idempotency_key"] or "")
    # A character has at most 12 bytes then, and a byte of UTF-8 becomes at most 3. Bytes go as base64.
    growth = 4 / 3 if not row["is_json"] else 1 if payload.isascii() else 3
    headers = len(row["headers"] or "")
    return math.ceil(len(payload) * growth) + headers + 12 * sum(map(len, texts)) + _FIXED_BYTES


def _message(row: Row) -> OutgoingMessage:
    """The message of a row, which may be older than the checks of a push, or written by somebody else."""
    payload = bytes(row["payload"])
    if row["is_json"]:
        check_json_payload(payload)
    return OutgoingMessage(
        queue=row["queue"],
        payload=json.loads(payload) if row["is_json"] else payload,
        key=row["key"],
        headers=json.loads(row["headers"]) if row["headers"] else {},
        priority=row["priority"],
        delay=None if row["delay_ms"] is None else row["delay_ms"] / 1_000,
        idempotency_key=row["idempotency_key"] or f"outbox:{row['id']}",
    )
