"""Looking: messages that wait or are leased can be listed, found and shown while the queue moves."""

from __future__ import annotations

import pytest

from weir.broker.broker import Broker
from weir.errors import InvalidInput, NotFound
from weir.model.ids import MessageId, new_message_id
from weir.model.inspection import MAX_PAGE, PREVIEW_BYTES, MessageFilter, MessageLease, MessageState
from weir.model.message import Failure
from weir.model.names import EnvironmentRef, QueueRef
from weir.spec.ir import DeliveryPolicy, Ordering, QueueSpec
from weir.testing.clocks import ManualClock
from weir.testing.conformance.base import PLAIN, Promises, message

KEYED = QueueSpec(name="work", ordering=Ordering.PER_KEY, delivery=DeliveryPolicy(max_attempts=3))
FIFO = QueueSpec(name="work", ordering=Ordering.FIFO, delivery=DeliveryPolicy(max_attempts=3))


class Looking(Promises):
    async def put_one(self, broker: Broker, queue: QueueRef, text: str, **fields: object) -> MessageId:
        sent = message(text, **fields)
        await broker.enqueue(queue, [sent])
        return sent.id

    async def listed(
        self, broker: Broker, queue: QueueRef, state: MessageState, limit: int = 50, **fields: object
    ) -> list[str]:
        """The payloads of all messages in a state, page by page."""
        match, found, cursor = MessageFilter(**fields), [], None  # type: ignore[arg-type]
        while True:
            page = await broker.list_messages(queue, state, match=match, cursor=cursor, limit=limit)
            found += [one.preview.decode() for one in page.messages]
            if page.cursor is None:
                return found
            cursor = page.cursor

    async def test_every_message_is_listed_in_its_state(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, KEYED)
        await self.put(broker, queue, "leased", "behind", "further behind", key="a")
        await self.put(broker, queue, "failed", "behind the failed", key="b")
        await self.put(broker, queue, "later", delay_ms=9_000)
        got = {one.payload: one for one in await self.take(broker, queue)}
        await broker.nack([Failure(lease=got[b"failed"].lease, error="no", delay_ms=5_000)])
        await self.put(broker, queue, "free")
        states = {state: await self.listed(broker, queue, state) for state in MessageState}
        assert states == {
            MessageState.READY: ["free"],
            MessageState.SCHEDULED: ["later"],
            MessageState.RETRYING: ["failed"],
            MessageState.BLOCKED: ["behind", "further behind", "behind the failed"],
            MessageState.LEASED: ["leased"],
        }
        counts = await broker.count_messages(queue)
        assert (counts.ready, counts.scheduled, counts.retrying, counts.delayed) == (1, 1, 1, 2)
        assert (counts.blocked, counts.leased) == (3, 1)

    async def test_ready_messages_are_listed_as_they_will_be_handed_out(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, "b", "c", priority=4)
        await self.put(broker, queue, "a", priority=9)
        await self.put(broker, queue, "d", priority=0)
        assert await self.listed(broker, queue, MessageState.READY, limit=1) == ["a", "b", "c", "d"]

    async def test_a_walk_shows_what_stays_exactly_once_while_the_queue_moves(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        """Between pages the front is handed out, the last message shown is cancelled, and others come."""
        await broker.define(queue, PLAIN)
        names = [f"m{number:03}" for number in range(60)]
        await self.put(broker, queue, *names)
        seen: list[str] = []
        cursor = None
        while True:
            page = await broker.list_messages(queue, MessageState.READY, cursor=cursor, limit=7)
            seen += [one.preview.decode() for one in page.messages]
            cursor = page.cursor
            if cursor is None:
                break
            await self.take(broker, queue, limit=2)
            await broker.cancel(queue, [page.messages[-1].message_id])
            await self.put(broker, queue, "first of all", priority=9)
        assert len(seen) == len(set(seen))
        assert [name for name in names if name not in seen] == []

    async def test_a_renewed_lease_is_listed_once(self, broker: Broker, queue: QueueRef) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, *"abcd")
        got = await self.take(broker, queue)
        page = await broker.list_messages(queue, MessageState.LEASED, limit=2)
        await broker.extend([one.lease for one in got], lease_ms=60_000)
        rest = await broker.list_messages(queue, MessageState.LEASED, cursor=page.cursor, limit=10)
        listed = [one.preview.decode() for one in (*page.messages, *rest.messages)]
        assert (sorted(listed), rest.cursor) == (["a", "b", "c", "d"], None)

    async def test_messages_are_found_by_key_header_and_text(self, broker: Broker, queue: QueueRef) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, "an apple", key="k", headers={"kind": "fruit", "x": "1"})
        await self.put(broker, queue, "a pear", key="k2", headers={"my kind": "fruit", 'x"kind': "fruit"})
        await self.put(broker, queue, "a stone", headers={"kind": "thing"})
        ready = MessageState.READY
        assert await self.listed(broker, queue, ready, key="k") == ["an apple"]
        assert await self.listed(broker, queue, ready, header=("kind", "fruit")) == ["an apple"]
        assert await self.listed(broker, queue, ready, text=b"a p") == ["a pear"]
        assert await self.listed(broker, queue, ready, text=b"a", header=("kind", "thing")) == ["a stone"]
        assert await self.listed(broker, queue, ready, text=b"fruit") == []
        assert await self.listed(broker, queue, ready, limit=1, text=b"stone") == ["a stone"]

    async def test_blocked_messages_of_one_key_are_found_by_it(self, broker: Broker, queue: QueueRef) -> None:
        await broker.define(queue, KEYED)
        for key in ("a", "b", "ab"):
            await self.put(broker, queue, f"{key}0", f"{key}1", f"{key}2", key=key)
        assert await self.listed(broker, queue, MessageState.BLOCKED, limit=1, key="b") == ["b1", "b2"]

    async def test_a_page_shows_only_the_front_of_payloads_and_errors(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, "x" * 5_000, headers={"h": "1"}, key="k")
        (got,) = await self.take(broker, queue)
        await broker.nack([Failure(lease=got.lease, error="é" * 150, delay_ms=0)])
        (one,) = (await broker.list_messages(queue, MessageState.RETRYING)).messages
        assert (one.preview, one.payload_bytes) == (b"x" * PREVIEW_BYTES, 5_000)
        assert (one.headers, one.key, one.attempts, one.last_error) == ({"h": "1"}, "k", 1, "é" * 100)

    async def test_a_leased_message_names_its_holder_and_the_end_of_its_lease(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, PLAIN)
        message_id = await self.put_one(broker, queue, "a", idempotency_key="i", headers={"h": "1"})
        shown = await broker.show_message(queue, message_id)
        assert shown is not None
        assert (shown.state, shown.held, shown.ahead) == (MessageState.READY, None, 0)
        (got,) = await self.take(broker, queue)
        held = MessageLease(consumer="tester", until_ms=manual_clock.now_ms() + 10_000)
        shown = await broker.show_message(queue, message_id)
        assert shown is not None
        assert (shown.state, shown.held, shown.ahead) == (MessageState.LEASED, held, None)
        assert (shown.payload, shown.idempotency_key, shown.headers) == (b"a", "i", {"h": "1"})
        (listed,) = (await broker.list_messages(queue, MessageState.LEASED)).messages
        assert listed.held == held
        assert got.lease.token not in repr((shown, listed))

    async def test_a_blocked_message_names_the_head_of_its_key_and_its_place(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, FIFO)
        ids = [await self.put_one(broker, queue, name) for name in "abc"]
        places = [await broker.show_message(queue, one) for one in ids]
        assert [(one.ahead, one.behind_id) for one in places if one] == [(0, None), (1, ids[0]), (2, ids[0])]
        await broker.ack([one.lease for one in await self.take(broker, queue)])
        third = await broker.show_message(queue, ids[2])
        assert third is not None
        assert (third.state, third.ahead, third.behind_id) == (MessageState.BLOCKED, 1, ids[1])
        await broker.cancel(queue, [ids[1]])
        third = await broker.show_message(queue, ids[2])
        assert third is not None
        assert (third.state, third.ahead, third.behind_id) == (MessageState.READY, 0, None)

    async def test_a_message_is_shown_wherever_it_went(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        """Scheduled, ready, leased, retrying, ready again, lapsed, leased and gone."""
        await broker.define(queue, PLAIN)
        message_id = await self.put_one(broker, queue, "a", delay_ms=1_000)
        went = []

        async def note() -> None:
            shown = await broker.show_message(queue, message_id)
            went.append((shown.state, shown.attempts, shown.last_error) if shown else None)

        await note()
        manual_clock.advance(1_000)
        assert await self.take(broker, queue.scope, limit=1) != []
        await note()
        manual_clock.advance(10_000)
        (got,) = await self.take(broker, queue)
        await broker.nack([Failure(lease=got.lease, error="boom", delay_ms=500)])
        await note()
        manual_clock.advance(500)
        (got,) = await self.take(broker, queue)
        await note()
        await broker.ack([got.lease])
        await note()
        assert went == [
            (MessageState.SCHEDULED, 0, None),
            (MessageState.LEASED, 1, None),
            (MessageState.RETRYING, 2, "boom"),
            (MessageState.LEASED, 3, "boom"),
            None,
        ]

    async def test_the_queue_of_a_message_is_found(self, broker: Broker, environment: EnvironmentRef) -> None:
        queues = [environment.queue(name) for name in ("a", "b", "c:{}")]
        for queue in queues:
            await broker.define(queue, PLAIN)
        message_id = await self.put_one(broker, queues[2], "x", idempotency_key="once")
        assert await broker.find_message(environment, message_id) == queues[2]
        assert await broker.find_message(environment, new_message_id()) is None
        assert await broker.find_idempotency_key(queues[2], "once") == message_id
        assert await broker.find_idempotency_key(queues[1], "once") is None
        await broker.cancel(queues[2], [message_id])
        assert await broker.find_message(environment, message_id) is None

    async def test_looking_refuses_what_it_cannot_read(self, broker: Broker, queue: QueueRef) -> None:
        with pytest.raises(NotFound):
            await broker.list_messages(queue, MessageState.READY)
        with pytest.raises(NotFound):
            await broker.show_message(queue, new_message_id())
        await broker.define(queue, PLAIN)
        for cursor in ("", "é", "xyz", "AAAA", "bm90IGEgcGxhY2U="):
            for state in MessageState:
                with pytest.raises(InvalidInput, match="begin without one"):
                    await broker.list_messages(queue, state, cursor=cursor)
        for limit in (0, MAX_PAGE + 1):
            with pytest.raises(InvalidInput):
                await broker.list_messages(queue, MessageState.READY, limit=limit)
        for match in (MessageFilter(text=b""), MessageFilter(key=""), MessageFilter(text=b"x" * 2_000)):
            with pytest.raises(InvalidInput):
                await broker.list_messages(queue, MessageState.READY, match=match)
        with pytest.raises(InvalidInput):
            await broker.show_message(queue, MessageId("no id"))
