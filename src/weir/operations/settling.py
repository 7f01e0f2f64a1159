"""Where acks and nacks come in: at once while the broker answers, queued only when it is out of reach.

Settling is one short script, as cheap as keeping the leases alive meanwhile would be; so pressure never
queues it, and no lease lapses because its ack stood in a queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from weir.admission.kinds import OperationType
from weir.broker.broker import Broker
from weir.errors import BrokerUnavailable, WeirError
from weir.model.exchange import Queued, Refused, SettleAnswer, Settled, SettleItem, Verb
from weir.model.ids import new_operation_id
from weir.model.message import Failure, Settlement
from weir.operations.attempt import is_unknown
from weir.operations.model import NewOperation, lane_alone
from weir.operations.overflow import Overflow
from weir.operations.payload import Settle, encode_settle
from weir.operations.reach import BROKER_ANSWER_S, Reach


class Settlements:
    """A `Settler` that outlasts the broker."""

    def __init__(
        self, *, broker: Broker, overflow: Overflow, reach: Reach, timeout_s: float = BROKER_ANSWER_S
    ) -> None:
        self._broker = broker
        self._overflow = overflow
        self._reach = reach
        self._timeout_s = timeout_s

    async def settle(self, items: Sequence[SettleItem]) -> list[SettleAnswer]:
        answers: dict[int, SettleAnswer] = {}
        for verb in Verb:
            at = [index for index, item in enumerate(items) if item.verb is verb]
            if at:
                done = await self._one_verb(verb, [_failure(items[index]) for index in at])
                answers.update(zip(at, done, strict=True))
        return [answers[index] for index in range(len(items))]

    async def _one_verb(self, verb: Verb, failures: list[Failure]) -> list[SettleAnswer]:
        shards = {self._overflow.shard(failure.lease.queue) for failure in failures}
        try:
            if all(map(self._reach.reachable, shards)):
                try:
                    return [Settled(outcome=one) for one in await self._now(verb, failures)]
                except WeirError as error:
                    if not is_unknown(error):
                        raise
                    for shard in shards:
                        self._reach.lost(shard)
            queued = await self._later(verb, failures)
        except WeirError as error:
            return [Refused(error=error)] * len(failures)
        return [queued] * len(failures)

    async def _now(self, verb: Verb, failures: list[Failure]) -> list[Settlement]:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await settle_through(self._broker, verb, failures)
        except TimeoutError:
            raise BrokerUnavailable("the broker did not answer in time; try again") from None

    async def _later(self, verb: Verb, failures: list[Failure]) -> Queued:
        operation_id = new_operation_id()
        queue = failures[0].lease.queue
        ticket = await self._overflow.add_alone(
            NewOperation(
                id=operation_id,
                queue=queue,
                key=None,
                type=OperationType.ACK_BATCH if len(failures) > 1 else OperationType.ACK_SINGLE,
                lane=lane_alone(operation_id),
                shard=self._overflow.shard(queue),
                payload=encode_settle(Settle(verb=verb, failures=tuple(failures))),
                messages=len(failures),
            )
        )
        return Queued(
            operation_id=ticket.operation_id,
            position=ticket.position,
            estimated_wait_ms=ticket.estimated_wait_ms,
            reason=ticket.reason.value,
        )


async def settle_through(broker: Broker, verb: Verb, failures: Sequence[Failure]) -> list[Settlement]:
    """Ack, nack or dead-letter through the broker."""
    match verb:
        case Verb.ACK:
            return await broker.ack([failure.lease for failure in failures])
        case Verb.NACK:
            return await broker.nack(failures)
        case Verb.DEAD_LETTER:
            return await broker.dead_letter(failures)


def _failure(item: SettleItem) -> Failure:
    return Failure(lease=item.lease, error=item.error, delay_ms=item.delay_ms)
