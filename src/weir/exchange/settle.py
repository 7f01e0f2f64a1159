"""Executes acks and nacks at once while the broker answers; queues them only while it is out of reach.

Settling is one short script, as cheap as extending the leases during a wait would be. So pressure never
queues it, and no lease lapses because its ack stood in a queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Sequence
from typing import Any, TypeVar

from weir.admission.kinds import OperationType
from weir.broker.broker import Broker
from weir.errors import WeirError
from weir.exchange.admit import AnswerTally, Overflow
from weir.exchange.seam import SETTLED, Queued, Refused, SettleAnswer, SettleItem, Settler
from weir.model.asyncio_tasks import in_turns
from weir.model.ids import new_operation_id
from weir.model.message import Failure, Settlement, Verb
from weir.operations.execute import settle_through
from weir.operations.gates import BROKER_ANSWER_S, Reach, is_unknown, no_answer
from weir.operations.model import NewOperation, partition_alone
from weir.operations.payload import Settle, encode_settle

_Name = TypeVar("_Name", bound=Hashable)


class CountedSettler:
    """The outermost `Settler` of a process: it counts the answers to consumers."""

    def __init__(self, inner: Settler, tally: AnswerTally) -> None:
        self._inner = inner
        self._tally = tally

    async def settle(self, items: Sequence[SettleItem]) -> list[SettleAnswer]:
        answers = await self._inner.settle(items)
        self._tally.count_settlements(answers)
        return answers


class DirectSettler:
    """Settles every lease now: one broker call per verb."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def settle(self, items: Sequence[SettleItem]) -> list[SettleAnswer]:
        answers: dict[int, SettleAnswer] = {}
        for verb in Verb:
            at = [index for index, item in enumerate(items) if item.verb is verb]
            if len(at) == len(items):
                return await self._settle_with(verb, items)
            if at:
                done = await self._settle_with(verb, [items[index] for index in at])
                answers.update(zip(at, done, strict=True))
        return [answers[index] for index in range(len(items))]

    async def _settle_with(self, verb: Verb, failures: Sequence[Failure]) -> list[SettleAnswer]:
        try:
            return [SETTLED[one] for one in await settle_through(self._broker, verb, failures)]
        except WeirError as error:
            return [Refused(error=error)] * len(failures)


class Settlements(DirectSettler):
    """A `Settler` that queues settlements while the broker is out of reach."""

    def __init__(
        self, *, broker: Broker, overflow: Overflow, reach: Reach, timeout_s: float = BROKER_ANSWER_S
    ) -> None:
        super().__init__(broker)
        self._overflow = overflow
        self._reach = reach
        self._timeout_s = timeout_s

    async def _settle_with(self, verb: Verb, failures: Sequence[Failure]) -> list[SettleAnswer]:
        """Settle shard by shard, because one of them may be out of reach alone."""
        shards = [self._reach.shard(failure.lease.queue) for failure in failures]
        return await _by_group(shards, failures, lambda shard, group: self._settle_in(shard, verb, group))

    async def _settle_in(self, shard: int, verb: Verb, failures: Sequence[Failure]) -> list[SettleAnswer]:
        if shard not in self._reach.lost:
            try:
                return [SETTLED[one] for one in await self._settle_now(verb, failures)]
            except WeirError as error:
                if not is_unknown(error):
                    return [Refused(error=error)] * len(failures)
                self._reach.lose(shard)
        # Requests of several tenants share a call. An operation belongs to one of them.
        environments = [failure.lease.queue.scope for failure in failures]
        return await _by_group(environments, failures, lambda _, group: self._queue(verb, group))

    async def _settle_now(self, verb: Verb, failures: Sequence[Failure]) -> list[Settlement]:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await settle_through(self._broker, verb, failures)
        except TimeoutError:
            raise no_answer() from None

    async def _queue(self, verb: Verb, failures: Sequence[Failure]) -> list[SettleAnswer]:
        try:
            return [await self._queue_together(verb, failures)] * len(failures)
        except WeirError as error:
            return [Refused(error=error)] * len(failures)

    async def _queue_together(self, verb: Verb, failures: Sequence[Failure]) -> Queued:
        operation_id = new_operation_id()
        queue = failures[0].lease.queue
        ticket = await self._overflow.add_alone(
            NewOperation(
                id=operation_id,
                queue=queue,
                key=None,
                type=OperationType.ACK_BATCH if len(failures) > 1 else OperationType.ACK_SINGLE,
                partition=partition_alone(operation_id),
                shard=self._reach.shard(queue),
                payload=encode_settle(Settle(verb=verb, failures=tuple(failures))),
                messages=len(failures),
                message_ids=(
                    min(one.lease.message_id for one in failures),
                    max(one.lease.message_id for one in failures),
                ),
            )
        )
        return Queued(
            operation_id=ticket.operation_id,
            position=ticket.position,
            estimated_wait_ms=ticket.estimated_wait_ms,
            reason=ticket.reason.value,
            lease_kept_ms=self._reach.leases_kept_ms(self._reach.shard(queue)),
        )


async def _by_group(
    names: Sequence[_Name],
    failures: Sequence[Failure],
    settle: Callable[[_Name, Sequence[Failure]], Coroutine[Any, Any, list[SettleAnswer]]],
) -> list[SettleAnswer]:
    """Settle those of each name together, and all names at the same time; answer for each in order."""
    groups: dict[_Name, list[int]] = {}
    for at, name in enumerate(names):
        groups.setdefault(name, []).append(at)
    if len(groups) == 1:
        return await settle(names[0], failures)
    done = await in_turns([settle(name, [failures[at] for at in group]) for name, group in groups.items()])
    answers: dict[int, SettleAnswer] = {}
    for group, settled in zip(groups.values(), done, strict=True):
        answers.update(zip(group, settled, strict=True))
    return [answers[at] for at in range(len(failures))]
