"""The keeper: decides until when processes may write to the broker directly, and closes open gates.

An operation that was queued while the broker was out of reach stands behind a gate that nobody could
close. Until a keeper has closed it, no process may write directly to that shard. So direct writing needs an
allowance that lapses: a keeper grants it in PostgreSQL, where the same row counts the operations whose gates
are open, and then in the broker, in absolute time of the broker's own clock that was read *before* the
grant. The broker's allowance has therefore lapsed when PostgreSQL says that it has.

A keeper that gets no answer from PostgreSQL extends its last allowance in the broker. That is safe:

- Nobody can queue an operation without PostgreSQL, so no new operation comes to stand behind an open gate.
- If an operation was queued before, PostgreSQL refuses the keeper, which then has no allowance to extend.
- An operation that no keeper knows of is not answered before all allowances have lapsed that held when it
  was queued. `lapse` waits longer if PostgreSQL was silent in that time, unless the broker closes the gate.
- If PostgreSQL answered the process that waits and did not answer a keeper, that keeper may have extended its
  allowance beyond that. It takes the allowance back in its next round that PostgreSQL answers.

In the same round it lets leases lapse. A settlement that was queued while the broker was out of reach
holds its lease, so a lease may lapse only if no such settlement can be waiting. The keeper reads the
broker's clock and then asks PostgreSQL since when the oldest settlement of the shard waits. Leases that ended
before both may lapse: a settlement that came while they ran was queued earlier than that, and is done.
While a store was away no lease lapsed. So a settlement that was queued then holds its lease even if that had
ended: until all of them are done, nothing lapses.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import structlog

from weir.broker.broker import Broker, Gated
from weir.broker.layout import LATE_MS
from weir.control.database import Database, Row, execute, fetch
from weir.control.scopes import queue_of_row
from weir.errors import Unavailable, WeirError
from weir.model.durations import SECOND_MS
from weir.model.item_loops import text_of
from weir.model.names import QueueRef
from weir.operations.gates import BROKER_ANSWER_S, Reach, is_unknown
from weir.operations.model import ALLOWANCE_MS
from weir.operations.queue import QUERIES

log = structlog.get_logger(__name__)
T = TypeVar("T")

PATIENCE_S = 0.4
"""How long either store may take. The allowance must outlast a round and the pause before it: 0.4 s for the
clocks, 0.4 s for the grant and 0.5 s to the next round leave a busy process 0.7 s of an allowance of 2 s."""
_CLOSING_S = 5.0
"""After this long PostgreSQL takes the locks from a keeper that froze while it closed gates."""
_BATCH = 1_000
_NO_HORIZON = 1 << 52
"""A time that no clock reaches: leases lapse when they end."""
_REQUEST_MS = int((BROKER_ANSWER_S + PATIENCE_S) * SECOND_MS)
"""A settlement waits about so long for the broker before it is queued; its lease may end meanwhile."""


class Keeper:
    """Renews the direct allowance of every shard, lets leases lapse, and closes gates that are still open."""

    def __init__(
        self,
        *,
        database: Database,
        broker: Broker,
        reach: Reach,
        allowance_ms: int = ALLOWANCE_MS,
    ) -> None:
        self._database = database
        self._broker = broker
        self._reach = reach
        self._allowance_ms = allowance_ms
        self._every_s = allowance_ms / 4_000
        self._granted: dict[int, int] = {}
        self._refused: set[int] = set()
        self._extended: set[int] = set()
        """Shards whose allowance this keeper extended since PostgreSQL last answered."""
        self._some_refused = asyncio.Event()
        self._seen_s: dict[int, float] = {}
        """When both stores last answered, for each shard."""
        self._returned_ms: dict[int, int] = {}
        """When they were both back, by the clock of each shard, and other processes had noticed as well."""
        self._settled: set[int] = set()
        """Shards in which no settlement waited in the last round."""
        self._alone = False
        """Whether the last round did without PostgreSQL."""

    async def run(self) -> None:
        """Renew allowances and close gates at the same time, so that closing many gates lets none lapse."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._renew_again_and_again())
                tasks.create_task(self._close_again_and_again())
        finally:
            await self._leave()

    async def _leave(self) -> None:
        """Let leases lapse when they end, where no settlement waits: nobody moves the time on from here.

        Another keeper takes it up again in its next round.
        """
        await self._ask_each(self._settled, lambda shard: self._broker.let_lapse(shard, until_ms=_NO_HORIZON))

    async def run_round(self) -> None:
        """Renew every allowance; where a gate is still open, close it first."""
        await self.renew()
        if self._refused:
            await self.close_open_gates()
            await self.renew()

    async def _renew_again_and_again(self) -> None:
        while True:
            try:
                await self.renew()
            except Exception:
                log.exception("direct allowances are not renewed for now")
            await asyncio.sleep(self._every_s)

    async def _close_again_and_again(self) -> None:
        while True:
            await self._some_refused.wait()
            self._some_refused.clear()
            try:
                await self.close_open_gates()
                await self.renew()
            except WeirError as error:
                log.warning("gates are left open for now", error=str(error))
            except Exception:
                log.exception("gates are left open for now")

    async def renew(self) -> None:
        """Extend the allowance of every shard that can be reached, unless PostgreSQL refuses it."""
        began_s = time.monotonic()
        clocks = await self._read_clocks()
        if not clocks:
            return
        horizons: dict[int, int] = {}
        try:
            granted, waiting_ms = await self._grant(clocks)
        except WeirError as error:
            self._go_alone(error)
            granted = {shard for shard, now_ms in clocks.items() if self._granted.get(shard, 0) > now_ms}
            self._extended |= granted
        else:
            self._alone = False
            refused = clocks.keys() - granted
            self._take_refusals(refused)
            await self._ask_each(self._extended & refused, self._broker.forbid_direct)
            self._extended.clear()
            horizons = self._horizons(clocks, waiting_ms, began_s)
        await asyncio.gather(
            self._allow({shard: clocks[shard] + self._allowance_ms for shard in granted}),
            self._let_lapse(horizons, began_s),
        )

    def _go_alone(self, error: WeirError) -> None:
        if not self._alone:
            log.warning("direct allowances are extended without PostgreSQL", error=str(error))
        self._alone = True

    def _take_refusals(self, shards: set[int]) -> None:
        self._refused = shards
        for shard in shards:
            self._granted.pop(shard, None)
        if shards:
            self._some_refused.set()

    async def _read_clocks(self) -> dict[int, int]:
        """The broker's clock in each shard that answers."""
        answers = await self._ask_each(range(self._broker.shards), self._broker.now_ms)
        for shard in answers:
            self._reach.regain(shard)
        return answers

    async def _grant(self, shards: Iterable[int]) -> tuple[set[int], dict[int, int]]:
        """The shards that are allowed to write directly, and how long their oldest settlements wait."""
        async with self._database.connection(within_s=PATIENCE_S) as connection:
            rows = await fetch(
                connection, QUERIES["grant_direct"], shards=list(shards), allowance_ms=self._allowance_ms
            )
            waiting = await fetch(connection, QUERIES["oldest_settlements"], shards=list(shards))
        return {row["shard"] for row in rows}, {row["shard"]: row["waiting_ms"] for row in waiting}

    async def _allow(self, until: dict[int, int]) -> None:
        async def allow(shard: int) -> None:
            await self._broker.allow_direct(shard, until_ms=until[shard])

        for shard in await self._ask_each(until, allow):
            self._granted[shard] = until[shard]

    def _horizons(self, clocks: dict[int, int], waiting_ms: dict[int, int], began_s: float) -> dict[int, int]:
        """Until when leases may lapse, where that may be moved on."""
        horizons: dict[int, int] = {}
        self._settled = clocks.keys() - waiting_ms.keys()
        for shard, now_ms in clocks.items():
            if began_s - self._seen_s.get(shard, -math.inf) > LATE_MS / SECOND_MS:
                self._returned_ms[shard] = now_ms + LATE_MS
            self._seen_s[shard] = began_s
            if shard not in waiting_ms:
                horizons[shard] = now_ms
            elif now_ms - waiting_ms[shard] > self._returned_ms[shard]:
                horizons[shard] = now_ms - waiting_ms[shard] - _REQUEST_MS
        return horizons

    async def _let_lapse(self, horizons: dict[int, int], began_s: float) -> None:
        async def let_lapse(shard: int) -> None:
            await self._broker.let_lapse(shard, until_ms=horizons[shard])

        for shard in await self._ask_each(horizons, let_lapse):
            self._reach.keep_leases(shard, since_s=began_s)

    async def _ask_each(self, shards: Iterable[int], ask: Callable[[int], Awaitable[T]]) -> dict[int, T]:
        """Ask all shards at the same time; a shard that does not answer soon is out of reach."""

        async def ask_one(shard: int) -> tuple[int, T] | None:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    return shard, await ask(shard)
            except WeirError as error:
                if is_unknown(error):
                    self._reach.lose(shard)
                return None
            except TimeoutError:
                self._reach.lose(shard)
                return None

        answers = await asyncio.gather(*map(ask_one, shards))
        return dict(answer for answer in answers if answer is not None)

    async def close_open_gates(self) -> None:
        """Close the gates of every operation that was queued without one in the shards that were refused."""
        shards = set(self._refused)
        while shards:
            count, away = await self._close_some(shards)
            if count < _BATCH and not away:
                return
            shards -= away

    async def _close_some(self, shards: set[int]) -> tuple[int, set[int]]:
        """Close some gates; return how many were open, and the shards that did not answer."""
        async with self._database.transaction(idle_s=_CLOSING_S) as connection:
            wanted = sorted(shards)
            rows = await fetch(connection, QUERIES["ungated_operations"], shards=wanted, limit=_BATCH)
            away = await self._close(rows)
            if closed := [row["id"] for row in rows if row["shard"] not in away]:
                await execute(connection, QUERIES["mark_gated"], id=closed)
        return len(rows), away

    async def _close(self, rows: Sequence[Row]) -> set[int]:
        """Close the gates of these operations; return the shards that did not answer."""
        gates: dict[tuple[int, QueueRef], list[Gated]] = defaultdict(list)
        for row in rows:
            gate = Gated(key=row["partition"], operation=str(row["id"]), messages=row["messages"])
            gates[row["shard"], queue_of_row(row)].append(gate)
        away: set[int] = set()
        for (shard, queue), closing in gates.items():
            if shard not in away and not await self._close_gates(queue, closing):
                away.add(shard)
        return away

    async def _close_gates(self, queue: QueueRef, gates: Sequence[Gated]) -> bool:
        """Close gates of one queue, unless the broker refuses them for good; return whether it answered.

        It refuses them if the queue was deleted since, for example. Nobody else's allowance waits for it: the
        processor runs these operations, and then they say themselves why they fail.
        """
        try:
            async with asyncio.timeout(BROKER_ANSWER_S):
                await self._broker.close_gates(queue, gates)
        except TimeoutError:
            return False
        except Unavailable as error:
            log.debug("gates are left open for now", error=str(error))
            return False
        except Exception as error:
            log.warning("operations get no gate", queue=queue.queue, error=text_of(error))
        return True
