"""The broker on Redis: every verb is a script that runs within one shard, in one round trip."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weir.broker import checks, grouping, keys, layout, replies
from weir.broker.broker import (
    HEARTBEAT_MS,
    BrokerActivity,
    CallAnswer,
    Entry,
    ForOperations,
    Gated,
    GateRule,
    Source,
    Swept,
)
from weir.broker.failures import translated
from weir.broker.layout import EntryMode
from weir.broker.preflight import written_shards
from weir.broker.redis_messages import RedisMessages
from weir.broker.runner import RedisConnection, ScriptRunner, script_client
from weir.broker.waiting import LoopWakeups, Wakeups
from weir.model.clock import Clock
from weir.model.durations import DAY_MS
from weir.model.ids import MessageId, NamedCall
from weir.model.limits import MAX_BATCH, MAX_PAYLOAD_BYTES, RESULT_KEPT_MS
from weir.model.message import (
    DeadMessage,
    Delivery,
    Enqueued,
    Failure,
    LeaseRef,
    NewMessage,
    QueueState,
    Settlement,
    check_messages,
    check_number,
)
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_finder, shard_of
from weir.spec.ir import QueueSpec
from weir.telemetry.streams import DEFAULT_MAX_LENGTH, SHARDS

LONGEST_NAP_S = 5.0
"""A waiting consumer looks again after this long, whatever happened to the wake-ups."""
VOID_KEPT_MS = DAY_MS
"""How long an operation stays void: PostgreSQL may hang in the middle of a commit for as long."""
_UNUSUAL = replies.Word.UNUSUAL.encode()
_UNUSUAL_S = 1.0
"""For how long single messages go to `enqueue` after `enqueue_one` found their queue unusual."""
_MOST_UNUSUAL = 10_000
"""After so many unusual queues, all of them are forgotten."""
# Bounds of one script, so that none holds the server for long.
_STATES_PAGE = 200
_SWEEP_STEP = 250
_HEARTBEAT_STEP = 200
_CALLS_STEP = 500
_DUE_STEPS = 10
"""So often a dequeue that does not wait goes on while work is left that time has made due."""


class RedisBroker(RedisMessages):
    """A `Broker` on Redis or Valkey 6.2+, standalone or Cluster.

    `clock` replaces the server's time in tests; `chance` draws the random part of back-off delays. `activity`
    counts what the methods do not return: deaths that a dequeue found, and the delays of retries. A caller
    that may listen to one shard only names it as `only_shard`.
    """

    def __init__(
        self,
        connection: RedisConnection,
        *,
        shards: int = 4,
        metrics: bool = True,
        stream_length: int = DEFAULT_MAX_LENGTH,
        max_payload: int = MAX_PAYLOAD_BYTES,
        clock: Clock | None = None,
        chance: Callable[[], float] = random.random,
        activity: BrokerActivity | None = None,
        only_shard: int | None = None,
    ) -> None:
        check_number(shards, what="the number of shards", least=1, most=4_096)
        self._shards = shards
        self._only_shard = only_shard
        self._max_payload = max_payload
        self._chance = chance
        self._activity = activity
        self._runner, self._wakeups = self._open(
            connection, clock=clock, metrics=metrics, stream_length=stream_length
        )
        self._shard_of_queue = shard_finder(shards)
        self._unusual_until: dict[bytes, float] = {}
        """Idents of queues that `enqueue_one` cannot serve, and until when that is assumed."""

    def _open(
        self, connection: RedisConnection, *, clock: Clock | None, metrics: bool, stream_length: int
    ) -> tuple[ScriptRunner, Wakeups]:
        runner = ScriptRunner(
            script_client(connection),
            patience_s=connection.patience_s,
            clock=clock,
            metrics=metrics,
            stream_length=stream_length,
        )
        return runner, LoopWakeups(connection, shard=self._only_shard)

    @property
    def shards(self) -> int:
        return self._shards

    @property
    def repeated(self) -> bool:
        """Whether this broker sent any call twice: bytes of the first try may still be on their way."""
        return self._runner.repeated

    # describing queues

    async def define(self, queue: QueueRef, spec: QueueSpec) -> None:
        checks.check_spec(spec)
        await self._run_about(queue, "define", layout.pack_promises(spec))

    async def forget(self, queue: QueueRef) -> None:
        await self._run_about(queue, "forget")

    async def pause(self, queue: QueueRef) -> None:
        await self._run_about(queue, "pause")

    async def resume(self, queue: QueueRef) -> None:
        await self._run_about(queue, "resume")

    async def limit(self, environment: EnvironmentRef, concurrency: int | None) -> None:
        checks.check_concurrency(concurrency)
        shard = shard_of(environment, shards=self._shards)
        await self._runner.run("limit", shard, keys.environment_ident(environment), concurrency or 0)

    async def close_gates(
        self, queue: QueueRef, gates: Sequence[Gated], *, within_room: bool = False
    ) -> list[int | None]:
        arguments: list[bytes | int] = [keys.queue_ident(queue), b"1" if within_room else b"0"]
        for gate in gates:
            arguments += ((gate.key or "").encode(), gate.operation.encode(), gate.messages)
        reply = await self._runner.change("close_gates", self._shard_of_queue(queue), *arguments)
        return replies.granted(replies.check(reply, queue=queue.queue))

    async def open_gates(self, queue: QueueRef, gates: Sequence[Gated]) -> None:
        await self._run_about(queue, "open_gates", *_gate_names(gates))

    async def void_gates(self, queue: QueueRef, gates: Sequence[Gated]) -> list[bool]:
        shard, ident = self._shard_of_queue(queue), keys.queue_ident(queue)
        reply = await self._runner.run("void_gates", shard, VOID_KEPT_MS, ident, *_gate_names(gates))
        return replies.flags(reply)

    async def stale_gates(
        self, shard: int, *, older_ms: int, skip: int = 0, limit: int = MAX_BATCH
    ) -> list[tuple[QueueRef, Gated]]:
        checks.check_shard(shard, shards=self._shards)
        return replies.gates(await self._runner.run("stale_gates", shard, older_ms, skip, limit))

    async def settle_call(self, queue: QueueRef, call: NamedCall) -> list[CallAnswer]:
        shard = self._shard_of_queue(queue)
        slot, number = call.slot.encode(), call.id.encode()
        reply = await self._runner.run("settle_call", shard, slot, number, call.digest)
        return replies.call_answers(replies.check(reply))

    async def idle_calls(self, shard: int, *, idle_ms: int) -> list[str]:
        checks.check_shard(shard, shards=self._shards)
        # The scan may name a slot twice if it moves within the hash.
        slots: set[str] = set()
        cursor = b"0"
        while True:
            _, cursor, *found = await self._runner.run("idle_calls", shard, idle_ms, cursor, _CALLS_STEP)
            slots.update(slot.decode() for slot in found)
            if cursor == b"0":
                return sorted(slots)

    async def forget_calls(self, shard: int, slots: Sequence[str], *, idle_ms: int) -> int:
        checks.check_shard(shard, shards=self._shards)
        forgotten = 0
        for at in range(0, len(slots), _CALLS_STEP):
            step = [slot.encode() for slot in slots[at : at + _CALLS_STEP]]
            forgotten += (await self._runner.run("forget_calls", shard, idle_ms, *step))[1]
        return forgotten

    async def allow_direct(self, shard: int, *, until_ms: int) -> None:
        checks.check_shard(shard, shards=self._shards)
        await self._runner.run("allow_direct", shard, until_ms)

    async def forbid_direct(self, shard: int) -> None:
        checks.check_shard(shard, shards=self._shards)
        await self._runner.run("allow_direct", shard, 0)

    async def let_lapse(self, shard: int, *, until_ms: int) -> None:
        checks.check_shard(shard, shards=self._shards)
        await self._runner.run("let_lapse", shard, until_ms)

    async def now_ms(self, shard: int) -> int:
        checks.check_shard(shard, shards=self._shards)
        now: int = (await self._runner.run("now", shard))[1]
        return now

    # moving messages

    async def enqueue(
        self,
        queue: QueueRef,
        messages: Sequence[NewMessage],
        *,
        entry: Entry = GateRule.OBEY,
    ) -> list[Enqueued]:
        check_messages(messages, max_payload=self._max_payload)
        if not messages:
            await self.state(queue)
            return []
        if isinstance(entry, NamedCall):
            packed = [part for message in messages for part in layout.pack_arrival(message)]
            return replies.enqueued(messages, await self.enqueue_packed(queue, packed, entry))
        arguments: list[bytes] = [keys.queue_ident(queue), *_name_entry(entry)]
        if isinstance(entry, ForOperations):
            for message, operation in zip(messages, entry.ids, strict=True):
                arguments += (*layout.pack_arrival(message), operation.encode())
        else:
            for message in messages:
                arguments += layout.pack_arrival(message)
        reply = await self._runner.change("enqueue", self._shard_of_queue(queue), *arguments)
        return replies.enqueued(messages, replies.check(reply, queue=queue.queue)[1])

    async def enqueue_packed(self, queue: QueueRef, packed: Sequence[bytes], call: NamedCall) -> bytes:
        """Make a named call with messages that are checked and packed: head and body of each in turn.

        Returns the answer of the script: a letter per message, then the ids of the first messages of all
        DUPLICATE and KEY_REUSED.
        """
        # Redis recognizes a repeated named call by its name, so it needs no reply slot.
        ident, shard = keys.queue_ident(queue), self._shard_of_queue(queue)
        slot, number = call.slot.encode(), call.id.encode()
        plain = len(packed) == 2 and len(packed[0]) == layout.ID_SIZE and not call.digest
        if plain and not self._is_unusual(ident):
            reply = await self._runner.run("enqueue_one", shard, ident, slot, number, *packed)
            if reply[0] != _UNUSUAL:
                answer: bytes = replies.check(reply)[1]
                return answer
            self._note_unusual(ident)
        named = (_NAMED_CALL, slot, number, call.digest)
        reply = await self._runner.run("enqueue", shard, ident, *named, *packed)
        whole: bytes = replies.check(reply, queue=queue.queue)[1]
        return whole

    def _is_unusual(self, ident: bytes) -> bool:
        return bool(self._unusual_until) and time.monotonic() < self._unusual_until.get(ident, 0.0)

    def _note_unusual(self, ident: bytes) -> None:
        """Skip `enqueue_one` for a moment: an unusual queue mostly stays unusual."""
        if len(self._unusual_until) >= _MOST_UNUSUAL:
            self._unusual_until.clear()
        self._unusual_until[ident] = time.monotonic() + _UNUSUAL_S

    async def dequeue(
        self,
        source: Source,
        *,
        consumer: str,
        limit: int = 1,
        lease_ms: int | None = None,
        wait_ms: int = 0,
    ) -> list[Delivery]:
        checks.check_dequeue(consumer=consumer, limit=limit, lease_ms=lease_ms, wait_ms=wait_ms)
        kind, ident, shard = self._place(source)
        arguments = (kind, ident, limit, lease_ms or 0, consumer.encode())
        if wait_ms == 0:
            for _ in range(_DUE_STEPS):
                found, next_ms = await self._take(source, shard, arguments)
                if found or next_ms != 0:
                    break
            return found
        return await self._wait(source, shard, arguments, give_up=time.monotonic() + wait_ms / 1_000)

    async def _take(
        self, source: Source, shard: int, arguments: tuple[Any, ...]
    ) -> tuple[list[Delivery], int]:
        """Take ready messages; return them, and in how many ms time alone may bring more (-1: never)."""
        kind, ident, limit, lease_ms, consumer = arguments
        token = os.urandom(16)
        reply = await self._runner.change(
            "dequeue", shard, kind, ident, limit, lease_ms, token, consumer, undo="give_back"
        )
        name = source.queue if isinstance(source, QueueRef) else ""
        replies.check(reply, queue=name)
        if reply[3] and self._activity is not None:
            self._activity.count_deaths(reply[3])
        return replies.deliveries(reply, token=token.hex()), reply[1]

    async def _wait(
        self, source: Source, shard: int, arguments: tuple[Any, ...], *, give_up: float
    ) -> list[Delivery]:
        if not self._wakeups.listens:
            # Listening takes time to begin, and there may be messages already.
            found, _ = await self._take(source, shard, arguments)
            if found:
                return found
        async with self._wakeups.waiter(shard, arguments[1]) as woken:
            while True:
                woken.clear()
                found, next_ms = await self._take(source, shard, arguments)
                left = give_up - time.monotonic()
                if found or left <= 0:
                    return found
                nap = min(left, LONGEST_NAP_S, next_ms / 1_000 + 0.001 if next_ms >= 0 else left)
                await woken.sleep(nap)

    def _place(self, source: Source) -> tuple[bytes, bytes, int]:
        if isinstance(source, QueueRef):
            return b"queue", keys.queue_ident(source), self._shard_of_queue(source)
        if isinstance(source, EnvironmentRef):
            return b"environment", keys.environment_ident(source), shard_of(source, shards=self._shards)
        checks.check_shard(source.number, shards=self._shards)
        return b"shard", b"", source.number

    async def ack(
        self, leases: Sequence[LeaseRef], *, results: Sequence[bytes | None] = ()
    ) -> list[Settlement]:
        checks.check_leases(leases)
        checks.check_results(results, leases=len(leases))
        groups = grouping.Groups([lease.queue for lease in leases], shard_of_queue=self._shard_of_queue)
        kept = str(RESULT_KEPT_MS).encode()
        return await self._settle(
            groups, "ack", lambda group: [kept, *grouping.ack_arguments(leases, results, group)]
        )

    async def extend(self, leases: Sequence[LeaseRef], *, lease_ms: int) -> list[Settlement]:
        checks.check_leases(leases)
        checks.check_lease(lease_ms)
        groups = grouping.Groups([lease.queue for lease in leases], shard_of_queue=self._shard_of_queue)
        span = str(lease_ms).encode()
        return await self._settle(
            groups, "extend", lambda group: [span, *grouping.lease_arguments(leases, group)]
        )

    async def nack(self, failures: Sequence[Failure]) -> list[Settlement]:
        return await self._fail("nack", failures)

    async def dead_letter(self, failures: Sequence[Failure]) -> list[Settlement]:
        return await self._fail("dead_letter", failures)

    async def _fail(self, verb: str, failures: Sequence[Failure]) -> list[Settlement]:
        checks.check_failures(failures)
        queues = [failure.lease.queue for failure in failures]
        groups = grouping.Groups(queues, shard_of_queue=self._shard_of_queue)
        return await self._settle(
            groups, verb, lambda group: grouping.failure_arguments(failures, group, chance=self._chance)
        )

    async def _settle(
        self,
        groups: grouping.Groups,
        verb: str,
        arguments: Callable[[list[tuple[QueueRef, list[int]]]], list[bytes]],
    ) -> list[Settlement]:
        """Run one script per shard, all shards at the same time."""

        async def settle(shard: int, group: list[tuple[QueueRef, list[int]]]) -> list[Settlement]:
            settled: list[Settlement] = []
            # A script that buries many bytes leaves the rest to the next.
            while left := grouping.skip(group, len(settled)):
                reply = await self._runner.change(verb, shard, *arguments(left))
                replies.check(reply)
                if len(reply) > 2 and self._activity is not None:
                    self._activity.count_retries(reply[2:])
                self._discount_repeats(verb, reply[1])
                settled += replies.settlements(reply[1])
            return settled

        shards = list(groups.shards.items())
        if len(shards) == 1:
            return groups.scatter({shards[0][0]: await settle(*shards[0])}, missing=Settlement.LAPSED)
        answers = await asyncio.gather(*(settle(shard, group) for shard, group in shards))
        by_shard = {shard: answer for (shard, _), answer in zip(shards, answers, strict=True)}
        return groups.scatter(by_shard, missing=Settlement.LAPSED)

    def _discount_repeats(self, verb: str, letters: bytes) -> None:
        """Whoever counts answers counts those that are repeated too, so they are subtracted here."""
        if self._activity is None or letters.islower():
            return
        if verb == "ack":
            self._activity.count_acks(-letters.count(b"D"))
        else:
            self._activity.count_deaths(-letters.count(b"X" if verb == "nack" else b"D"))

    # upkeep

    async def sweep(self, shard: int, *, limit: int = 1_000) -> Swept:
        checks.check_shard(shard, shards=self._shards)
        total, left = Swept(lapsed=0, expired=0, dead=0, orphans=0, more=True), limit
        while total.more and left > 0:
            step = min(left, _SWEEP_STEP)
            total = replies.swept(await self._runner.run("sweep", shard, step), after=total)
            left -= step
        return total

    async def heartbeat(self, shard: int, *, limit: int = 1_000) -> int:
        checks.check_shard(shard, shards=self._shards)
        emitted = 0
        for _ in range(-(-limit // _HEARTBEAT_STEP)):
            step = min(limit - emitted, _HEARTBEAT_STEP)
            _, some, more = await self._runner.run("heartbeat", shard, HEARTBEAT_MS, step)
            emitted += some
            if more == b"0":
                break
        return emitted

    async def state(self, queue: QueueRef) -> QueueState:
        reply = await self._runner.run(
            "state", self._shard_of_queue(queue), keys.queue_ident(queue), b"queue", b"", 1
        )
        return replies.states(replies.check(reply, queue=queue.queue))[0]

    async def states(self, environment: EnvironmentRef) -> list[QueueState]:
        shard, ident = shard_of(environment, shards=self._shards), keys.environment_ident(environment)
        results: list[QueueState] = []
        after = b""
        while True:
            reply = await self._runner.run("state", shard, ident, b"environment", after, _STATES_PAGE)
            page = replies.states(replies.check(reply))
            results += page
            if len(page) < _STATES_PAGE:
                return sorted(results, key=lambda state: state.queue.queue)
            after = keys.queue_ident(page[-1].queue)

    async def take_dead(self, shard: int, *, limit: int = 1_000) -> list[DeadMessage]:
        checks.check_shard(shard, shards=self._shards)
        return replies.dead_messages(await self._runner.run("take_dead", shard, limit))

    async def drop_dead(self, shard: int, message_ids: Sequence[MessageId]) -> None:
        checks.check_shard(shard, shards=self._shards)
        for at in range(0, len(message_ids), MAX_BATCH):
            blob = b"".join(layout.id_bytes(message_id) for message_id in message_ids[at : at + MAX_BATCH])
            await self._runner.run("drop_dead", shard, blob)

    async def holds(self, queue: QueueRef, message_ids: Sequence[MessageId]) -> list[bool]:
        results: list[bool] = []
        for at in range(0, len(message_ids), MAX_BATCH):
            blob = b"".join(layout.id_bytes(message_id) for message_id in message_ids[at : at + MAX_BATCH])
            results += replies.flags(await self._run_about(queue, "holds", blob))
        return results

    async def peek(self, queue: QueueRef, message_id: MessageId) -> Mapping[str, str] | None:
        return replies.headers(await self._run_about(queue, "peek", layout.id_bytes(message_id)))

    async def last_errors(self, queue: QueueRef, *, limit: int) -> list[str]:
        reply = await self._run_about(queue, "last_errors", limit)
        return [error.decode(errors="replace") for error in reply[1:]]

    # the server behind it

    async def epoch(self) -> str | None:
        """The epoch of the data in this Redis; None if it lost its data or never belonged to a Weir."""
        with translated():
            stored = await self._runner.client.execute_command("GET", keys.EPOCH)
        return None if stored is None else stored.decode()

    async def begin_epoch(self, epoch: str) -> str:
        """Write an epoch into this Redis if it has none; return the epoch that holds."""
        with translated():
            await self._runner.client.execute_command("SETNX", keys.EPOCH, epoch.encode())
        return await self.epoch() or epoch

    async def written_shards(self) -> int | None:
        """The number of shards that this Redis was begun with; None if nobody wrote it yet."""
        return await written_shards(self._runner.client.execute_command)

    async def write_shards(self) -> None:
        """Write this broker's number of shards into this Redis, unless there is one."""
        with translated():
            await self._runner.client.execute_command("SETNX", SHARDS, b"%d" % self._shards)

    async def hold_epoch(self, epoch: str) -> None:
        """Let every shard know the epoch of its data. A shard that loses it is not used any more."""
        with translated():
            for shard in range(self._shards):
                await self._runner.client.execute_command("SETNX", keys.epoch_key(shard, epoch), b"1")
        self._runner.hold_epoch(epoch)

    async def join_epoch(self, epoch: str, *, shard: int) -> None:
        """Hold the epoch if the shard knows it; older programs did not tell the shards."""
        with translated():
            known = await self._runner.client.execute_command("GET", keys.epoch_key(shard, epoch))
        if known is not None:
            self._runner.hold_epoch(epoch)

    async def aclose(self) -> None:
        await self._wakeups.aclose()
        await self._runner.aclose()


def _gate_names(gates: Sequence[Gated]) -> list[bytes]:
    return [part.encode() for gate in gates for part in (gate.key or "", gate.operation)]


_OBEY_GATES = (EntryMode.OBEY_GATES.encode(), b"", b"", b"")
_PASS_GATES = (EntryMode.PASS_GATES.encode(), b"", b"", b"")
_FOR_OPERATIONS = (EntryMode.FOR_OPERATIONS.encode(), b"", b"", b"")
_NAMED_CALL = EntryMode.NAMED_CALL.encode()


def _name_entry(entry: Entry) -> tuple[bytes, bytes, bytes, bytes]:
    """The mode of an enqueue call without a name, as the script reads it."""
    if isinstance(entry, ForOperations):
        return _FOR_OPERATIONS
    return _PASS_GATES if entry is GateRule.PASS else _OBEY_GATES
