"""Whatever happens in whatever order, the summary equals the count after every step."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from tests.deadletters.world import World

from weir.control.database import Database
from weir.deadletters.audit import DeadLetterAuditor
from weir.deadletters.bulk_action_runner import BulkActionRunner
from weir.deadletters.bulk_actions import BulkActionKind, NewBulkAction
from weir.deadletters.filters import Filter
from weir.deadletters.mover import Mover
from weir.deadletters.rates import SendLimits
from weir.errors import Conflict
from weir.model.message import Failure
from weir.model.names import EnvironmentRef, QueueRef

T = TypeVar("T")
ERRORS = ("refused by 10.0.0.1", "refused by 10.0.0.2", "no such order 17", "")
queues = st.sampled_from(("orders", "mails"))


class Crash(SystemExit):
    """As kill -9 does, it leaves no time for anything."""


class DeadLetterMachine(RuleBasedStateMachine):
    """Deaths, replays, requeues, purges, and crashes of those who do them, with their restarts."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        mark = uuid4().hex
        self.environment = EnvironmentRef(organization=mark, project="p", environment=mark)
        self.database = Database(self.url, max_size=4)
        self.run(self._open())
        self.pushed = 0
        self.finished = 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    async def _open(self) -> None:
        await self.database.open()
        self.world = World(self.database, self.environment, shards=1)
        for name in ("orders", "mails"):
            await self.world.define(name, max_attempts=2, max_depth=12)

    def queue(self, name: str) -> QueueRef:
        return self.environment.queue(name)

    @initialize(name=queues, count=st.integers(1, 6), error=st.sampled_from(ERRORS))
    def some_died_before(self, name: str, count: int, error: str) -> None:
        self.kill(name, count, error)

    @rule(name=queues, count=st.integers(1, 6), error=st.sampled_from(ERRORS))
    def kill(self, name: str, count: int, error: str) -> None:
        """The whole way, so that there is always something to replay and to purge."""
        self.push(name, count)
        for _ in range(2):
            self.die(name, 6, error)
        self.run(self.world.move())

    @rule(name=queues, count=st.integers(1, 6))
    def push(self, name: str, count: int) -> None:
        room = 12 - self.run(self.world.broker.state(self.queue(name))).depth
        ids = self.run(self.world.push(self.queue(name), *range(min(count, room)))) if room > 0 else []
        self.pushed += len(ids)

    @rule(name=queues, count=st.integers(1, 4), error=st.sampled_from(ERRORS))
    def die(self, name: str, count: int, error: str) -> None:
        self.run(self.world.die(self.queue(name), limit=count, error=error))
        self.world.clock.advance(120_000)

    @rule(name=queues, count=st.integers(1, 4))
    def reject(self, name: str, count: int) -> None:
        deliveries = self.run(self.world.broker.dequeue(self.queue(name), consumer="test", limit=count))
        failures = [Failure(lease=delivery.lease, error="rejected") for delivery in deliveries]
        self.run(self.world.broker.dead_letter(failures))

    @rule(name=queues, count=st.integers(1, 4))
    def finish(self, name: str, count: int) -> None:
        deliveries = self.run(self.world.broker.dequeue(self.queue(name), consumer="test", limit=count))
        self.run(self.world.broker.ack([delivery.lease for delivery in deliveries]))
        self.finished += len(deliveries)

    @rule(batch=st.integers(1, 5))
    def move(self, batch: int) -> None:
        self.run(Mover(self.world.broker, self.database, clock=self.world.clock, batch=batch).run_round())

    @rule(
        where=st.sampled_from(
            ("weir.deadletters.mover._insert", "weir.deadletters.mover._save_batch", "drop_dead")
        )
    )
    def mover_is_killed(self, where: str) -> None:
        self._killed(where, Mover(self.world.broker, self.database, clock=self.world.clock).run_round())

    @rule(name=queues, dry_run=st.booleans(), canary=st.integers(0, 2), by_error=st.booleans())
    def redrive(self, name: str, dry_run: bool, canary: int, by_error: bool) -> None:
        expression = "error.contains('refused')" if by_error else None
        new = NewBulkAction(
            kind=BulkActionKind.REDRIVE,
            filter=Filter(queue=name, expression=expression),
            dry_run=dry_run,
            limits=SendLimits(canary=canary),
        )
        self.run(self.world.start(new))

    @rule(name=queues, everything=st.booleans())
    def purge(self, name: str, everything: bool) -> None:
        new = NewBulkAction(
            kind=BulkActionKind.PURGE, filter=Filter(queue=name, include_unexhausted=everything)
        )
        self.run(self.world.start(new))

    @rule(steps=st.integers(1, 4))
    def work(self, steps: int) -> None:
        for _ in range(steps):
            self.run(self.world.runner.step())
        self.world.clock.advance(1_000)

    @rule(
        where=st.sampled_from(
            (
                "weir.deadletters.bulk_action_batch.settle",
                "weir.deadletters.replay.count_gone",
                "weir.deadletters.bulk_action_batch.send",
                "weir.deadletters.bulk_action_runner._save",
            )
        )
    )
    def runner_is_killed(self, where: str) -> None:
        self._killed(where, BulkActionRunner(self.world.broker, self.database, clock=self.world.clock).step())
        # The letters that it had in hand are free again; its action is taken over later.
        self.world.clock.advance(31_000)

    @rule(name=queues, which=st.integers(0, 5))
    def requeue_one(self, name: str, which: int) -> None:
        letters = self.run(self.world.newest(self.queue(name)))
        state = self.run(self.world.broker.state(self.queue(name)))
        if letters and state.depth < 12:
            self.run(self.world.letters.redrive(self.queue(name), letters[which % len(letters)].id, by="t"))

    @rule(name=queues, which=st.integers(0, 5))
    def delete_one(self, name: str, which: int) -> None:
        letters = self.run(self.world.newest(self.queue(name)))
        if letters:
            letter = letters[which % len(letters)]
            try:
                self.run(self.world.letters.delete(self.queue(name), letter.id, by="t"))
            except Conflict:
                assert not letter.exhausted

    @rule()
    def audit(self) -> None:
        audit = self.run(self.world.auditor.audit(force=True))
        assert audit is not None
        assert audit.drift == 0

    @rule(where=st.sampled_from(("weir.deadletters.audit.check_consumer", "weir.deadletters.audit._save")))
    def audit_is_killed(self, where: str) -> None:
        self._killed(where, DeadLetterAuditor(self.database, clock=self.world.clock).audit(force=True))

    @rule()
    def summary_is_lost_and_bootstrapped(self) -> None:
        async def lose() -> None:
            async with self.database.connection() as connection:
                await connection.execute(
                    "DELETE FROM weir.dlq_summary WHERE environment = %s", (self.environment.environment,)
                )

        self.run(lose())
        self.run(self.world.auditor.audit(force=True))

    def _killed(self, where: str, work: Coroutine[Any, Any, object]) -> None:
        """Run something that is killed when it reaches a place; it may never get there."""

        async def killed(*_: object, **__: object) -> None:
            raise Crash

        with pytest.MonkeyPatch.context() as patch:
            if where == "drop_dead":
                patch.setattr(self.world.broker, where, killed)
            else:
                patch.setattr(where, killed)
            try:
                self.run(work)
            except Crash:
                return

    @invariant()
    def the_summary_equals_the_count(self) -> None:
        self.run(self.world.check_exact())

    @invariant()
    def nothing_is_lost(self) -> None:
        """A pushed message waits, is in the outbox, is a letter, or was finished or purged."""
        self.run(self._check_none_vanished())

    async def _check_none_vanished(self) -> None:
        held = sum(
            len(self.world.broker._queues[self.queue(name)].entries)  # the model's own books
            for name in ("orders", "mails")
        )
        stored = {row["id"] for row in await self.world.rows(_STORED)}
        outbox = await self.world.broker.take_dead(0, limit=1000)
        pending = sum(1 for message in outbox if message.message_id not in stored)
        dead = sum((await self.world.counts()).values())
        purged = await self._purged()
        assert held + pending + dead + self.finished + purged >= self.pushed

    async def _purged(self) -> int:
        tasks = await self.world.bulk_actions.newest(self.environment, limit=1000)
        by_tasks = sum(action.done for action in tasks if action.kind is BulkActionKind.PURGE)
        rows = await self.world.rows(
            "SELECT count(*) AS n FROM weir.audit_log WHERE environment = %s AND action = 'dlq.delete'"
        )
        return by_tasks + int(rows[0]["n"])

    def teardown(self) -> None:
        self.run(self.database.aclose())
        self.loop.close()


_STORED = """
SELECT l.id::text FROM weir.dead_letters AS l JOIN weir.consumers AS c USING (consumer_key)
WHERE c.environment = %s
"""


@pytest.fixture
def machine(database_url: str) -> type[DeadLetterMachine]:
    DeadLetterMachine.url = database_url
    return DeadLetterMachine


def explore(machine: type[DeadLetterMachine], *, examples: int, steps: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_the_summary_equals_the_count_after_every_step(machine: type[DeadLetterMachine]) -> None:
    explore(machine, examples=10, steps=25)


@pytest.mark.slow
def test_the_summary_equals_the_count_after_every_step_at_length(machine: type[DeadLetterMachine]) -> None:
    explore(machine, examples=300, steps=60)
