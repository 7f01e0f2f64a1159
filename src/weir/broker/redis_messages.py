"""The part of the broker on Redis that looks at single messages and touches them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from weir.broker import checks, grouping, inspecting, keys, layout, replies
from weir.broker.runner import ScriptRunner
from weir.model.ids import MessageId
from weir.model.inspection import (
    EVERY_MESSAGE,
    MAX_PAGE,
    PREVIEW_BYTES,
    ListedMessage,
    MessageCounts,
    MessageDetail,
    MessageFilter,
    MessagePage,
    MessageState,
    Touched,
    Why,
    check_filter,
    check_page,
)
from weir.model.limits import GROUP_KEPT_MS, MAX_BATCH, RESULT_KEPT_MS
from weir.model.message import Kept, KeptKind, LeaseRef, check_message_id
from weir.model.names import EnvironmentRef, QueueRef, check_name
from weir.model.shards import shard_of

_SCANNED_PER_PAGE = 2_000
"""A search stops after looking at so many messages, and returns what it has found."""
_STEPS_PER_PAGE = 16
"""How many scripts may make one page. A script reads few large messages, so it may find less than a page."""
_QUEUES_STEP = 500
"""How many queues one script looks into at most."""
_KEPT = {b"r": KeptKind.RESULT, b"p": KeptKind.PROGRESS, b"c": KeptKind.CANCELLED}


class RedisMessages:
    """The methods of a `Broker` that look at single messages and touch them."""

    _runner: ScriptRunner
    _shards: int
    _shard_of_queue: Callable[[QueueRef], int]

    # look

    async def list_messages(
        self,
        queue: QueueRef,
        state: MessageState,
        *,
        match: MessageFilter = EVERY_MESSAGE,
        cursor: str | None = None,
        limit: int = 50,
    ) -> MessagePage:
        check_filter(match)
        check_page(limit)
        place = inspecting.cursor_bytes(cursor, state)
        if state is MessageState.LEASED:
            return await self._list_leased(queue, match, place, limit)
        # Each script looks at few messages, so that other callers need not wait. Several scripts make a page.
        found: list[ListedMessage] = []
        scanned = 0
        for step in range(1, _STEPS_PER_PAGE + 1):
            page = await self._list_step(queue, state, match, place, limit - len(found))
            found += page.messages
            scanned += page.scanned
            is_enough = len(found) >= limit or scanned >= _SCANNED_PER_PAGE or step == _STEPS_PER_PAGE
            if page.cursor is None or is_enough:
                break
            place = inspecting.cursor_bytes(page.cursor, state)
        return MessagePage(messages=tuple(found), cursor=page.cursor, scanned=scanned)

    async def _list_step(
        self, queue: QueueRef, state: MessageState, match: MessageFilter, place: bytes, limit: int
    ) -> MessagePage:
        wanted = inspecting.filter_arguments(match)
        reply = await self._run_about(
            queue, "list_messages", state.encode(), place, limit, PREVIEW_BYTES, *wanted
        )
        return inspecting.page(reply, state, match)

    async def _list_leased(
        self, queue: QueueRef, match: MessageFilter, place: bytes, limit: int
    ) -> MessagePage:
        """A page in the order of ids. The end of a lease moves with each extension, so it is not a cursor."""
        behind = await self._leased_behind(queue, place)
        most = limit if match == EVERY_MESSAGE else MAX_PAGE
        ids = heapq.nsmallest(most, behind)
        if not ids:
            return MessagePage(messages=(), cursor=None, scanned=0)
        page = await self._list_step(queue, MessageState.LEASED, match, b"".join(ids), limit)
        if page.cursor is None and len(behind) > most:
            return replace(page, cursor=inspecting.cursor_text(ids[-1]))
        return page

    async def _leased_behind(self, queue: QueueRef, place: bytes) -> set[bytes]:
        """The ids of leased messages behind a place: a set, because a scan may name an id twice."""
        found: set[bytes] = set()
        cursor = b"0"
        while True:
            _, cursor, blob = await self._run_about(queue, "leased_ids", cursor)
            ids = (blob[at : at + 16] for at in range(0, len(blob), 16))
            found.update(one for one in ids if one > place)
            if cursor == b"0":
                return found

    async def show_message(self, queue: QueueRef, message_id: MessageId) -> MessageDetail | None:
        reply = await self._run_about_message(queue, "show_message", message_id)
        return inspecting.detail(reply, queue) if reply else None

    async def why(self, queue: QueueRef, message_id: MessageId) -> Why | None:
        reply = await self._run_about_message(queue, "why", message_id)
        return inspecting.why(reply) if reply else None

    async def count_messages(self, queue: QueueRef) -> MessageCounts:
        return inspecting.counts(await self._run_about(queue, "count_messages"))

    async def find_message(self, environment: EnvironmentRef, message_id: MessageId) -> QueueRef | None:
        check_message_id(message_id)
        shard, ident = shard_of(environment, shards=self._shards), keys.environment_ident(environment)
        after = b""
        while True:
            _, found, after = await self._runner.run(
                "find_message", shard, ident, layout.id_bytes(message_id), after, _QUEUES_STEP
            )
            if found or not after:
                return keys.queue_of(found) if found else None

    async def find_idempotency_key(self, queue: QueueRef, idempotency_key: str) -> MessageId | None:
        check_name(idempotency_key, what="idempotency key")
        reply = await self._run_about(queue, "find_idempotency_key", idempotency_key.encode())
        return MessageId(layout.id_text(reply[1])) if reply[1] else None

    async def keep_progress(self, lease: LeaseRef, progress: bytes) -> bool:
        checks.check_leases([lease])
        checks.check_kept(progress)
        ident, token = keys.queue_ident(lease.queue), grouping.token_bytes(lease.token)
        named = layout.id_bytes(lease.message_id) + token
        shard = self._shard_of_queue(lease.queue)
        reply = await self._runner.run("keep_progress", shard, RESULT_KEPT_MS, ident, named, progress)
        return bool(replies.check(reply, queue=lease.queue.queue)[1] == b"1")

    async def kept(self, environment: EnvironmentRef, message_id: MessageId) -> Kept | None:
        check_message_id(message_id)
        shard, ident = shard_of(environment, shards=self._shards), keys.environment_ident(environment)
        _, found = await self._runner.run("kept", shard, ident, layout.id_bytes(message_id))
        if not found:
            return None
        kind, data = _KEPT[found[:1]], found[1:]
        if kind is not KeptKind.CANCELLED:
            return Kept(kind=kind, data=data)
        # Older programs did not note the queue.
        return Kept(kind=kind, queue=keys.queue_of(data).queue if data else None)

    async def were_cancelled(
        self, environment: EnvironmentRef, message_ids: Sequence[MessageId]
    ) -> list[bool]:
        shard, ident = shard_of(environment, shards=self._shards), keys.environment_ident(environment)
        ids = [layout.id_bytes(message_id) for message_id in message_ids]
        found: list[bool] = []
        for at in range(0, len(ids), MAX_BATCH):
            blob = b"".join(ids[at : at + MAX_BATCH])
            found += replies.flags(await self._runner.run("were_cancelled", shard, ident, blob))
        return found

    async def finish_member(self, environment: EnvironmentRef, group: str, *, member: int, of: int) -> bool:
        checks.check_member(group, member=member, of=of)
        shard, ident = shard_of(environment, shards=self._shards), keys.environment_ident(environment)
        reply = await self._runner.run(
            "finish_member", shard, GROUP_KEPT_MS, ident, group.encode(), member, of
        )
        return bool(reply[1] == b"1")

    async def revoked(self, leases: Sequence[LeaseRef]) -> list[bool]:
        checks.check_leases(leases)
        groups = grouping.Groups([lease.queue for lease in leases], shard_of_queue=self._shard_of_queue)
        answers = {
            shard: replies.flags(
                await self._runner.run("revoked", shard, *grouping.lease_arguments(leases, group))
            )
            for shard, group in groups.shards.items()
        }
        return groups.scatter(answers, missing=False)

    async def _run_about(self, queue: QueueRef, verb: str, *args: bytes | int) -> Sequence[Any]:
        """Run a script about one queue that may run twice without harm."""
        reply = await self._runner.run(verb, self._shard_of_queue(queue), keys.queue_ident(queue), *args)
        return replies.check(reply, queue=queue.queue)

    async def _run_about_message(
        self, queue: QueueRef, verb: str, message_id: MessageId
    ) -> Sequence[Any] | None:
        """Run a script that finds a message by its id; None if it is not there."""
        check_message_id(message_id)
        reply = await self._run_about(queue, verb, layout.id_bytes(message_id))
        if reply[1] == b"unindexed":
            await self._index(queue)
            reply = await self._run_about(queue, verb, layout.id_bytes(message_id))
        return reply if len(reply) > 2 else None

    async def _index(self, queue: QueueRef) -> None:
        """Make every message of the queue findable by its id, also messages that an older program put in."""
        while (await self._run_about(queue, "index"))[1] == b"1":
            pass

    # touch

    async def run_now(self, queue: QueueRef, message_ids: Sequence[MessageId]) -> list[Touched]:
        return await self._touch(queue, "run_now", message_ids)

    async def reschedule(
        self,
        queue: QueueRef,
        message_ids: Sequence[MessageId],
        *,
        at_ms: int | None = None,
        delay_ms: int | None = None,
    ) -> list[Touched]:
        checks.check_due(at_ms=at_ms, delay_ms=delay_ms)
        return await self._touch(queue, "reschedule", message_ids, at_ms or 0, delay_ms or 0)

    async def change_priority(
        self, queue: QueueRef, message_ids: Sequence[MessageId], priority: int
    ) -> list[Touched]:
        checks.check_priority(priority)
        return await self._touch(queue, "change_priority", message_ids, priority)

    async def cancel(self, queue: QueueRef, message_ids: Sequence[MessageId]) -> list[Touched]:
        return await self._touch(queue, "cancel", message_ids, RESULT_KEPT_MS)

    async def _touch(
        self, queue: QueueRef, verb: str, message_ids: Sequence[MessageId], *args: int
    ) -> list[Touched]:
        """Touch all messages, a bounded number per script. Messages of older programs are indexed first."""
        checks.check_message_ids(message_ids)
        shard, ident = self._shard_of_queue(queue), keys.queue_ident(queue)
        raw_ids = [layout.id_bytes(message_id) for message_id in message_ids]
        results: dict[int, Touched] = {}
        left = list(range(len(raw_ids)))
        while True:
            blob = b"".join(raw_ids[place] for place in left)
            reply = await self._runner.change(verb, shard, ident, blob, *args)
            letters = replies.check(reply, queue=queue.queue)[1].decode()
            answers = dict(zip(left, letters, strict=False))
            unindexed = [place for place, letter in answers.items() if letter == inspecting.UNINDEXED]
            results |= inspecting.touched(answers)
            left = unindexed + left[len(letters) :]
            if not left:
                return [results[place] for place in range(len(raw_ids))]
            if unindexed:
                await self._index(queue)
