"""How scripts are sent: routed by shard, retried here and nowhere else, safe to run twice.

Every call that changes something takes a *reply slot*: a name of this client and a number that grows. The
script keeps its reply under the slot until the slot's next call. A retry carries the same number, so it
gets the first reply again instead of running twice. The slot of a call whose outcome stayed unknown is
never used again. Named calls take no reply slot: the name does the same for longer (see `NamedCall`).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hiredis import pack_command
from redis.asyncio import Connection, Redis
from redis.asyncio.cluster import RedisCluster
from redis.exceptions import NoScriptError

from weir import redis_client
from weir.broker import checks, keys, replies
from weir.broker.failures import RETRY_AFTER_S, is_passing, translate, translated
from weir.broker.layout import VERSIONS
from weir.broker.loop_redis import LoopRedis
from weir.broker.plain_protocol import plain_address
from weir.broker.scripts import Script, script
from weir.errors import BrokerUnavailable, WeirError
from weir.model.clock import Clock
from weir.redis_client import DRIVER_ERRORS
from weir.telemetry.events import QUEUE
from weir.telemetry.streams import DEFAULT_MAX_LENGTH, stream_key

KEEP_REPLY_MS = 60_000
"""How long a reply slot keeps its reply. All tries of a call end within `patience_s`, 4 s by default."""
_RETRY_DELAYS_S = (0.02, 0.2)
_UNDO_PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0)
_LAST_UNDO_S = 1.0
"""How long closing waits for what is being undone."""
_LOST = replies.Word.LOST.encode()
log = logging.getLogger(__name__)

Client = Redis | RedisCluster
ScriptClient = Client | LoopRedis
SlotArguments = tuple[bytes, int, int]
"""Key of a reply slot, number of the call in it (0: not recorded), and how long its reply is kept in ms."""


_Head = tuple[bytes, ...]
"""What every key of a shard starts with, and the keys that its calls declare beside their reply slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisConnection:
    """How to reach Redis; the scheme of the URL says whether it is a cluster."""

    url: str
    timeout_s: float = 2.0
    """How long to wait for one answer."""
    connect_timeout_s: float = 1.0
    max_connections: int = 64

    @property
    def patience_s(self) -> float:
        """How long a call with all its tries may take: enough to ask for a lost answer once more."""
        return 2 * self.timeout_s


class _PackedConnection(Connection):
    """Packs commands in C; the driver's own packing took half of the client's time in large calls."""

    def pack_command(self, *args: Any) -> list[bytes]:
        # The driver names some commands by two words.
        return [pack_command((*args[0].split(), *args[1:]) if " " in str(args[0]) else args)]


def connect(connection: RedisConnection, *, timeout_s: float | None = None) -> Client:
    """A client that is tuned for scripts with large replies."""
    options: dict[str, Any] = {"socket_read_size": 1 << 18, "protocol": 2}
    if connection.url.startswith("redis://"):
        options["connection_class"] = _PackedConnection
    return redis_client.connect(
        connection.url,
        max_connections=connection.max_connections,
        answer_s=timeout_s or connection.timeout_s,
        connect_s=connection.connect_timeout_s,
        wait_s=connection.timeout_s,
        **options,
    )


def _new_process() -> bytes:
    return os.urandom(9).hex().encode()


def script_client(connection: RedisConnection) -> ScriptClient:
    """A client for scripts alone: a lean one where that is enough, else the driver's."""
    address = plain_address(connection.url)
    if address is None:
        return connect(connection)
    return LoopRedis(
        address,
        max_connections=connection.max_connections,
        answer_s=connection.timeout_s,
        connect_s=connection.connect_timeout_s,
    )


class ReplySlot:
    """Where the scripts keep the reply to this client's last call under a name."""

    __slots__ = ("name", "number")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.number = 0


def _arguments_of(slot: ReplySlot, shard: int) -> SlotArguments:
    return keys.slot_key(shard, slot.name), slot.number, KEEP_REPLY_MS


class ScriptRunner:
    """Runs scripts on one Redis or Redis Cluster."""

    def __init__(
        self,
        client: ScriptClient,
        *,
        patience_s: float,
        clock: Clock | None = None,
        metrics: bool = True,
        stream_length: int = DEFAULT_MAX_LENGTH,
    ) -> None:
        self.client = client
        self._patience_s = patience_s
        self._clock = clock
        self._metrics = b"1" if metrics else b"0"
        self._stream_length = str(stream_length).encode()
        self._pid = os.getpid()
        self._process = _new_process()
        self._slots: list[ReplySlot] = []
        # Threads take and return slots only by `pop`, `append` and `next`, which are atomic.
        self._numbers = itertools.count(1)
        self.repeated = False
        """Whether any call was sent twice: bytes of the first try may still be on their way."""
        self._heads: dict[int, _Head] = {}
        self._announced: set[int] = set()
        self._undoing: set[asyncio.Task[None]] = set()
        self._epoch: str | None = None
        self._lost: set[int] = set()
        """Shards that were last found without the data of the epoch."""

    def hold_epoch(self, epoch: str) -> None:
        """From now on every call is refused by a server that has not the data of this epoch."""
        self._epoch = epoch
        self._heads.clear()

    async def change(self, verb: str, shard: int, *args: bytes | int, undo: str = "") -> list[Any]:
        """Run a script that changes something; at most one of its tries takes effect.

        If nobody gets the answer, because Redis gave none or the caller was cancelled, the verb `undo` undoes
        what the script did, as soon as Redis answers.
        """
        slot = self._take_slot()
        try:
            reply = await self._send(verb, shard, _arguments_of(slot, shard), args)
        except (BrokerUnavailable, asyncio.CancelledError):
            if undo:
                slot.number += 1
                self._undo_later(undo, shard, slot)
            raise
        self._slots.append(slot)
        return reply

    def _undo_later(self, verb: str, shard: int, slot: ReplySlot) -> None:
        task = asyncio.create_task(self._undo_patiently(verb, shard, slot))
        self._undoing.add(task)
        task.add_done_callback(self._undoing.discard)

    async def _undo_patiently(self, verb: str, shard: int, slot: ReplySlot) -> None:
        """Undo the last call in a slot. It is tried for as long as Redis knows that call."""
        until = time.monotonic() + KEEP_REPLY_MS / 1_000
        for pause_s in itertools.chain(_UNDO_PAUSES_S, itertools.repeat(_UNDO_PAUSES_S[-1])):
            if time.monotonic() > until or await self._undo(verb, shard, slot):
                return
            await asyncio.sleep(pause_s)

    async def _undo(self, verb: str, shard: int, slot: ReplySlot) -> bool:
        try:
            await self._send(verb, shard, _arguments_of(slot, shard), ())
        except WeirError:
            return False
        self._slots.append(slot)
        return True

    async def run(self, verb: str, shard: int, *args: bytes | int) -> list[Any]:
        """Run a script that only reads, or that may run twice without harm, as named calls may."""
        return await self._send(verb, shard, (keys.slot_key(shard, b"none"), 0, 0), args)

    def _take_slot(self) -> ReplySlot:
        if self._pid != os.getpid():
            # A fork: the slots belong to the parent, which goes on using them.
            self._pid, self._process, self._slots = os.getpid(), _new_process(), []
        try:
            slot = self._slots.pop()
        except IndexError:
            slot = ReplySlot(b"s%s-%d" % (self._process, next(self._numbers)))
        slot.number += 1
        return slot

    async def _send(
        self, verb: str, shard: int, slot: SlotArguments, args: Sequence[bytes | int]
    ) -> list[Any]:
        try:
            # The limit includes all tries and the waits for a connection.
            async with asyncio.timeout(self._patience_s):
                return await self._send_patiently(verb, shard, slot, args)
        except TimeoutError:
            raise self._no_answer() from None

    def _no_answer(self) -> BrokerUnavailable:
        text = f"Redis did not answer within {self._patience_s:g} s; try again"
        return BrokerUnavailable(text, retry_after_s=RETRY_AFTER_S)

    async def _send_patiently(
        self, verb: str, shard: int, slot: SlotArguments, args: Sequence[bytes | int]
    ) -> list[Any]:
        if shard not in self._announced:
            await self._announce(shard)
        return self._right(shard, await self._try(script(verb), self._call(shard, slot, args)))

    def _right(self, shard: int, reply: list[Any]) -> list[Any]:
        """The reply, unless the server lost the data that this process knows."""
        if reply[0] == _LOST:
            if shard not in self._lost:
                log.error("Redis lost the data of shard %d, or is another one; nothing is done there", shard)
            self._lost.add(shard)
            self._announced.discard(shard)
            raise checks.data_lost()
        if self._lost and shard in self._lost:
            self._lost.discard(shard)
            log.warning("Redis has the data of shard %d again", shard)
        return reply

    async def _announce(self, shard: int) -> None:
        """Tell a shard which layouts this program writes. Fails if a newer program wrote there."""
        versions = [part for name, version in VERSIONS.items() for part in (name.encode(), version)]
        call = self._call(shard, (keys.slot_key(shard, b"none"), 0, 0), versions)
        replies.check(self._right(shard, await self._try(script("announce"), call)))
        self._announced.add(shard)

    def _call(self, shard: int, slot: SlotArguments, args: Sequence[bytes | int]) -> tuple[Any, ...]:
        """The keys and arguments that `call.lua` describes."""
        prefix, timers, stream, *others = self._head(shard)
        now = b"" if self._clock is None else self._clock.now_ms()
        name, number, keep_ms = slot
        return (
            3 + len(others),
            timers,
            stream,
            name,
            *others,
            prefix,
            now,
            self._metrics,
            self._stream_length,
            number,
            keep_ms,
            *args,
        )

    async def _try(self, wanted: Script, call: tuple[Any, ...]) -> list[Any]:
        for delay in _RETRY_DELAYS_S:
            try:
                return await self._run_once(wanted, call)
            except DRIVER_ERRORS as error:
                if not is_passing(error):
                    raise translate(error) from error
            self.repeated = True
            await self._pause(delay)
        with translated():
            return await self._run_once(wanted, call)

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _run_once(self, wanted: Script, call: tuple[Any, ...]) -> list[Any]:
        reply: list[Any]
        try:
            reply = await self.client.execute_command("EVALSHA", wanted.sha, *call)
        except NoScriptError:
            reply = await self.client.execute_command("EVAL", wanted.source, *call)
        return reply

    def _head(self, shard: int) -> _Head:
        head = self._heads.get(shard)
        if head is None:
            held = () if self._epoch is None else (keys.epoch_key(shard, self._epoch),)
            stream = stream_key(QUEUE.name, shard).encode()
            timers, never = keys.shard_key(shard, "timers"), keys.shard_key(shard, "never")
            head = self._heads[shard] = (keys.prefix(shard), timers, stream, never, *held)
        return head

    async def aclose(self) -> None:
        if undoing := list(self._undoing):
            await asyncio.wait(undoing, timeout=_LAST_UNDO_S)
            for task in undoing:
                task.cancel()
            await asyncio.gather(*undoing, return_exceptions=True)
        with translated():
            await self.client.aclose()
