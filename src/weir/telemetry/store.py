"""The pipeline's access to the streams: their lengths, their entries, and how far they were read.

It blocks, because Spark's Python workers do. Every call is bounded in time and does not retry; a failure is
`BrokerUnavailable`, and callers decide how often to try again.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from redis import Redis, RedisCluster
from redis.backoff import NoBackoff
from redis.connection import ConnectionPool
from redis.exceptions import ResponseError
from redis.retry import Retry

from weir.errors import BrokerUnavailable
from weir.model.shards import require_shards
from weir.redis_client import DRIVER_ERRORS, is_cluster, node_url
from weir.telemetry.entries import Entries, entries_of
from weir.telemetry.events import MAX_EVENT_BYTES
from weir.telemetry.stream_ids import ORIGIN, StreamId, is_after, parse_id
from weir.telemetry.streams import GROUP, SHARDS, layouts_key, metric_layouts_key, switch_key
from weir.telemetry.switch import ShardSwitch, switch_of

# Entries per read. Larger replies keep Redis busy for longer than a queue's clients should wait.
CHUNK = 5_000

# A holder with less time left treats its lease as lost, because the lease may end before the next command.
LEASE_MARGIN_MS = 2_000

HOLD = "hold"
"""The name of the mark that keeps every pipeline from planning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The length and the ends of a stream."""

    length: int
    first_id: str
    last_id: str
    dropped: int | None
    """How many entries were ever removed; None before Redis 7, which does not count them."""
    nodes: int = 0
    """In how many pieces of memory Redis keeps the entries; 0 if that is not known."""
    bytes: int = 0
    """About how much memory the entries take; 0 if nobody asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamGap:
    """Entries after `after` and before `until` were dropped before they were read."""

    after: str
    until: str
    entries: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLease:
    holder: str
    left_ms: int


class StreamStore:
    """The streams of one Redis or Redis Cluster; it connects when it is first used."""

    def __init__(self, url: str, *, timeout_s: float = 10) -> None:
        self._url = url
        self._timeout_s = timeout_s

    @cached_property
    def _redis(self) -> Redis | RedisCluster:
        kind = RedisCluster if is_cluster(self._url) else Redis
        client = kind.from_url(
            node_url(self._url),
            socket_timeout=self._timeout_s,
            socket_connect_timeout=self._timeout_s,
            retry=Retry(NoBackoff(), 0),
        )
        # Close the connections when the store is dropped. Errors in replies tie the driver's objects into
        # cycles, and a socket that the garbage collector finds open would be reported as left open.
        closing = weakref.finalize(self, client.close)
        closing.atexit = False
        return client

    def tails(self, keys: Sequence[str], *, sized: Set[str] = frozenset()) -> list[Tail | None]:
        """The tail of each stream, with its bytes for streams in `sized`; None if a stream has no entry."""
        with _translating():
            pipeline = self._redis.pipeline(transaction=False)
            for key in keys:
                pipeline.xinfo_stream(key)
            tails = [_tail(reply) for reply in pipeline.execute(raise_on_error=False)]
            return [
                tail if tail is None or key not in sized else replace(tail, bytes=self._used(key))
                for key, tail in zip(keys, tails, strict=True)
            ]

    def _used(self, key: str) -> int:
        used: Any = self._redis.memory_usage(key, samples=5)
        return int(used or 0)

    def read(
        self,
        key: str,
        *,
        after: str,
        until: str,
        chunk: int = CHUNK,
        max_bytes: int = MAX_EVENT_BYTES,
    ) -> Iterator[Entries | StreamGap]:
        """The entries after `after` up to `until`, in runs, with a gap wherever entries are missing.

        Each read begins with the last entry of the read before it. The pipeline never trims that entry, so if
        it is missing, Redis dropped it and perhaps others after it. Before the first read there is no such
        entry; Redis 7 and Valkey count what they dropped until then.
        """
        position = after
        while is_after(until, position):
            reply = self._range(key, position, until, count=chunk + 1)
            if reply and reply[0][0].decode() == position:
                reply = reply[1:]
            else:
                gap = self._gap(key, position, reply[0][0].decode() if reply else until)
                if position != ORIGIN or gap.entries:
                    yield gap
            if not reply:
                return
            position = reply[-1][0].decode()
            yield entries_of(reply, max_bytes=max_bytes)

    def last_until(self, key: str, position: str) -> str | None:
        """The last id up to and including `position`; None if there is none."""
        found = self._call("XREVRANGE", key, position, "-", "COUNT", 1)
        return found[0][0].decode() if found else None

    def neighbours(self, key: str, times_ms: Sequence[int]) -> list[tuple[StreamId | None, StreamId | None]]:
        """For each time, the last id in this millisecond or before it, and the first id after it."""
        commands: list[tuple[Any, ...]] = []
        for at_ms in times_ms:
            commands.append(("XREVRANGE", key, at_ms, "-", "COUNT", 1))
            commands.append(("XRANGE", key, at_ms + 1, "+", "COUNT", 1))
        found = [_ids(reply) for reply in self._call_all(key, commands)]
        firsts = [ids[0] if ids else None for ids in found]
        return list(zip(firsts[::2], firsts[1::2], strict=True))

    def windows(self, key: str, spans_ms: Sequence[tuple[int, int]], *, limit: int) -> list[list[StreamId]]:
        """For each span, the ids from its first to before its second millisecond, latest first."""
        commands = [("XREVRANGE", key, end_ms - 1, begin_ms, "COUNT", limit) for begin_ms, end_ms in spans_ms]
        return [_ids(reply) for reply in self._call_all(key, commands)]

    def read_announced(self, layouts: Sequence[str], *, shards: int) -> dict[str, int]:
        """For each of these layouts, the newest version that any program announced in any shard."""
        with _translating():
            pipeline = self._redis.pipeline(transaction=False)
            for shard in range(shards):
                pipeline.hmget(layouts_key(shard), list(layouts))
                pipeline.hmget(metric_layouts_key(shard), list(layouts))
            found = pipeline.execute()
        return {name: max(int(versions[at] or 0) for versions in found) for at, name in enumerate(layouts)}

    def require_shards(self, shards: int) -> None:
        """Refuse another number of shards than this Redis was begun with: streams would not be read."""
        with _translating():
            written: Any = self._redis.get(SHARDS)
        require_shards(written and int(written), configured=shards)

    def read_switches(self, *, shards: int) -> list[ShardSwitch]:
        """The switch of every shard."""
        with _translating():
            pipeline = self._redis.pipeline(transaction=False)
            for shard in range(shards):
                pipeline.hgetall(switch_key(shard))
            return [switch_of(shard, stored) for shard, stored in enumerate(pipeline.execute())]

    def settle(self, positions: Mapping[str, str]) -> None:
        """Trim all entries before these positions, and publish the positions through the consumer group.

        The entry at the position stays. If it is missing later, `read` knows that Redis dropped unread
        entries.
        """
        with _translating():
            pipeline = self._redis.pipeline(transaction=False)
            for key, position in positions.items():
                pipeline.xtrim(key, minid=position, approximate=False)
                # Creating a group that exists fails and changes nothing; the next command moves it.
                pipeline.xgroup_create(key, GROUP, id=position)
                pipeline.xgroup_setid(key, GROUP, id=position)
                pipeline.xinfo_stream(key)
            replies = pipeline.execute(raise_on_error=False)
            self._note_dropped(dict(zip(positions.items(), replies[3::4], strict=True)))

    def positions(self, keys: Sequence[str]) -> list[str]:
        """The published position of each stream; `ORIGIN` if none was published."""
        with _translating():
            pipeline = self._redis.pipeline(transaction=False)
            for key in keys:
                pipeline.xinfo_groups(key)
            return [_position(reply) for reply in pipeline.execute(raise_on_error=False)]

    def remember(self, name: str, value: Mapping[str, Any]) -> None:
        """Store a small value in Redis under a name."""
        with _translating():
            self._redis.set(_note_key(name), json.dumps(value))

    def recall(self, name: str) -> dict[str, Any] | None:
        with _translating():
            text = self._redis.get(_note_key(name))
            return json.loads(text) if text else None

    def hold(self, seconds: float, *, holder: str, name: str = HOLD) -> bool:
        """Ask the pipeline to plan no batch for a while; False if another holder asked for it."""
        key, span_ms = _note_key(name), int(seconds * 1_000)
        with _translating():
            if self._redis.set(key, holder, nx=True, px=span_ms):
                return True
            # Another holder may set the key before `PEXPIRE`, so the value is read once more after it.
            return (
                self._redis.get(key) == holder.encode()
                and bool(self._redis.pexpire(key, span_ms))
                and self._redis.get(key) == holder.encode()
            )

    def release(self, *, holder: str) -> bool:
        """Let the pipeline go on; False if the time was over or another holder has it."""
        key = _note_key(HOLD)
        with _translating():
            return self._redis.get(key) == holder.encode() and bool(self._redis.delete(key))

    def is_held(self, *, name: str = HOLD) -> bool:
        with _translating():
            return bool(self._redis.exists(_note_key(name)))

    def claim(self, name: str, *, holder: str, seconds: float) -> bool:
        """Take or prolong a lease that has one holder at a time and ends by itself if the holder dies."""
        with _translating():
            if self._redis.set(_lease_key(name), holder, nx=True, px=int(seconds * 1_000)):
                return True
        return self.prolong(name, holder=holder, seconds=seconds)

    def prolong(self, name: str, *, holder: str, seconds: float) -> bool:
        """Prolong a lease; False if it has ended, even if nobody has taken it since."""
        key = _lease_key(name)
        with _translating():
            return self._holds(key, holder) and bool(self._redis.pexpire(key, int(seconds * 1_000)))

    def unclaim(self, name: str, *, holder: str) -> None:
        """Give a lease back, unless it has passed to another holder."""
        key = _lease_key(name)
        with _translating():
            if self._holds(key, holder):
                self._redis.delete(key)

    def read_lease(self, name: str) -> HeldLease | None:
        """The holder of a lease and the time left; None if nobody holds it."""
        key = _lease_key(name)
        with _translating():
            held: Any = self._redis.get(key)
            left_ms: Any = self._redis.pttl(key)
        return None if held is None or left_ms < 0 else HeldLease(holder=held.decode(), left_ms=left_ms)

    def _holds(self, key: str, holder: str) -> bool:
        held: Any = self._redis.get(key)
        left_ms: Any = self._redis.pttl(key)
        return bool(held == holder.encode() and left_ms > LEASE_MARGIN_MS)

    def close(self) -> None:
        if "_redis" in self.__dict__:
            self._redis.close()

    def _range(self, key: str, start: str, until: str, *, count: int) -> list[Any]:
        return self._call("XRANGE", key, start, until, "COUNT", count)

    def _call(self, *command: Any) -> list[Any]:
        """Send a command and return the parser's reply."""
        (reply,) = self._call_all(command[1], [command])
        return reply

    def _call_all(self, key: str, commands: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
        """Send commands about one stream together and return the parser's replies."""
        # Without the client's own methods, because building their dictionaries would halve the speed.
        with _translating():
            pool = self._pool_of(key)
            connection: Any = pool.get_connection()
            try:
                connection.send_packed_command(connection.pack_commands(commands))
                return [connection.read_response(disable_decoding=True) for _ in commands]
            except BaseException:
                connection.disconnect()
                self._forget_nodes()
                raise
            finally:
                pool.release(connection)

    def _pool_of(self, key: str) -> ConnectionPool:
        """The connections to the server that holds a stream."""
        if isinstance(self._redis, Redis):
            return self._redis.connection_pool
        cluster: Any = self._redis
        pool: ConnectionPool = cluster.get_redis_connection(cluster.get_node_from_key(key)).connection_pool
        return pool

    def _forget_nodes(self) -> None:
        """Ask a cluster again where its slots are; they may have moved."""
        if isinstance(self._redis, RedisCluster):
            self._redis.nodes_manager.initialize()

    def _gap(self, key: str, after: str, until: str) -> StreamGap:
        tail = self.tails([key])[0]
        # When the position was settled, the number of entries up to it was noted. The entries removed beyond
        # this number are the gap.
        noted = self.recall(f"read:{key}")
        entries = None
        if tail is not None and tail.dropped is not None:
            if after == ORIGIN:
                entries = tail.dropped
            elif noted and noted["position"] == after:
                entries = max(0, tail.dropped - noted["count"])
        return StreamGap(after=after, until=until, entries=entries)

    def _note_dropped(self, replies: Mapping[tuple[str, str], Any]) -> None:
        """If Redis counts added entries, note how many of them lie up to each position."""
        for (key, position), reply in replies.items():
            tail = _tail(reply)
            if tail is not None and tail.dropped is not None and tail.first_id == position:
                self.remember(f"read:{key}", {"position": position, "count": tail.dropped + 1})


def _ids(reply: Sequence[Any]) -> list[StreamId]:
    return [parse_id(entry[0].decode()) for entry in reply]


def _note_key(name: str) -> str:
    return f"weir:pipeline:{name}"


def _lease_key(name: str) -> str:
    return _note_key(f"lease:{name}")


def _tail(reply: Any) -> Tail | None:
    if isinstance(reply, ResponseError):
        return None
    if isinstance(reply, Exception):
        raise reply
    if not reply["first-entry"]:
        return None
    added = reply.get("entries-added")
    return Tail(
        length=reply["length"],
        first_id=reply["first-entry"][0].decode(),
        last_id=reply["last-entry"][0].decode(),
        dropped=None if added is None else added - reply["length"],
        nodes=reply.get("radix-tree-keys", 0),
    )


def _position(reply: Any) -> str:
    if isinstance(reply, ResponseError):
        return ORIGIN
    if isinstance(reply, Exception):
        raise reply
    mine = [group["last-delivered-id"].decode() for group in reply if group["name"].decode() == GROUP]
    return mine[0] if mine else ORIGIN


@contextmanager
def _translating() -> Iterator[None]:
    try:
        yield
    except DRIVER_ERRORS as error:
        raise BrokerUnavailable(f"Redis does not answer ({error}); try again", retry_after_s=1) from error
