"""Pops and settlements of clients in direct mode, while Redis is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from weir.client.deliveries import SettleRequest
from weir.client.direct_opening import DirectRedis, OpenedRedis, RedisAway
from weir.client.direct_values import is_passing, to_received
from weir.client.encoding import encode
from weir.client.errors import to_api_error
from weir.client.values import ReceivedMessage, SettleStatus, time_of
from weir.errors import InvalidInput, LeaseLost, WeirError
from weir.model.ids import MessageId
from weir.model.limits import MAX_ERROR_BYTES, MIN_LEASE_MS
from weir.model.message import Failure, LeaseRef, Settlement, Verb

_STATUSES: dict[Verb, SettleStatus] = {Verb.ACK: "acked", Verb.NACK: "nacked", Verb.DEAD_LETTER: "dead"}


class DirectDeliveries:
    """`Deliveries` of one environment. Raises RedisAway if the API has to do the work."""

    def __init__(self, redis: DirectRedis) -> None:
        self._redis = redis

    async def pop(
        self, queue: str | None, *, limit: int, wait_ms: int, lease_ms: int | None, consumer: str | None
    ) -> list[ReceivedMessage]:
        opened = await self._redis.open_usable()
        with _translated(opened):
            if lease_ms is not None:
                _check_lease(lease_ms)
            deliveries = await opened.broker.dequeue(
                opened.options.environment if queue is None else opened.queue(queue),
                consumer=consumer or opened.options.token_id,
                limit=limit,
                lease_ms=lease_ms,
                wait_ms=wait_ms,
            )
        return [to_received(delivery) for delivery in deliveries]

    async def ack_many(self, messages: Sequence[ReceivedMessage]) -> list[SettleStatus]:
        opened = await self._redis.open_usable()
        with _translated(opened):
            done = await opened.broker.ack([_lease(opened, message) for message in messages])
        return ["lapsed" if one is Settlement.LAPSED else "acked" for one in done]

    async def settle(self, message: ReceivedMessage, request: SettleRequest) -> SettleStatus:
        opened = await self._redis.open_usable()
        with _translated(opened):
            if len(request.error.encode(errors="replace")) > MAX_ERROR_BYTES:
                raise InvalidInput(f"the error has more than {MAX_ERROR_BYTES} bytes; shorten it")
            lease = _lease(opened, message, handler_ms=request.handler_ms)
            failure = Failure(
                lease=lease,
                error=request.error,
                delay_ms=request.delay_ms,
                uncounted=request.uncounted,
            )
            if request.verb is Verb.ACK:
                results = [] if request.result is None else [encode(request.result)]
                (done,) = await opened.broker.ack([lease], results=results)
            elif request.verb is Verb.NACK:
                (done,) = await opened.broker.nack([failure])
            else:
                (done,) = await opened.broker.dead_letter([failure])
            if done is Settlement.LAPSED:
                raise _lost(lease)
        return "dead" if done is Settlement.DEAD else _STATUSES[request.verb]

    async def extend(self, message: ReceivedMessage, *, lease_ms: int) -> ReceivedMessage:
        opened = await self._redis.open_usable()
        with _translated(opened):
            _check_lease(lease_ms)
            lease = _lease(opened, message)
            # The clock of Redis ends the lease. It is read before the call, so the lease ends no earlier.
            now_ms = await opened.broker.now_ms(opened.shard)
            (done,) = await opened.broker.extend([lease], lease_ms=lease_ms)
            if done is not Settlement.DONE:
                raise _lost(lease)
        return replace(message, lease_until=time_of(now_ms + lease_ms))


@contextmanager
def _translated(opened: OpenedRedis) -> Iterator[None]:
    """Raise only errors of the client: the ApiError that the API would have caused, or RedisAway."""
    try:
        yield
    except WeirError as error:
        if not is_passing(error):
            raise to_api_error(error) from None
        opened.note_away()
        raise RedisAway from error


def _check_lease(lease_ms: int) -> None:
    if lease_ms < MIN_LEASE_MS:
        raise InvalidInput(f"a lease of {lease_ms} ms is too short; take at least {MIN_LEASE_MS} ms")


def _lease(opened: OpenedRedis, message: ReceivedMessage, *, handler_ms: int | None = None) -> LeaseRef:
    return LeaseRef(
        queue=opened.queue(message.queue),
        message_id=MessageId(message.id),
        token=message.lease,
        handler_ms=handler_ms,
    )


def _lost(lease: LeaseRef) -> LeaseLost:
    return LeaseLost(
        f"the lease of message `{lease.message_id}` lapsed or was settled before; nothing changed"
    )
