"""The parts of this room that routes use, built once over one database and one broker."""

from __future__ import annotations

from dataclasses import dataclass

from weir.broker.broker import Broker
from weir.control.database import Database
from weir.deadletters.bulk_action_store import BulkActionStore
from weir.deadletters.store import DeadLetterStore
from weir.model.clock import Clock, SystemClock


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterServices:
    """The parts that a process needs to answer requests about dead letters."""

    database: Database
    letters: DeadLetterStore
    bulk_actions: BulkActionStore
    clock: Clock


def open_dead_letters(
    database: Database, broker: Broker, *, clock: Clock | None = None
) -> DeadLetterServices:
    """Connect the parts. It starts none of the loops."""
    clock = clock or SystemClock()
    return DeadLetterServices(
        database=database,
        letters=DeadLetterStore(database, broker, clock=clock),
        bulk_actions=BulkActionStore(database, broker, clock=clock),
        clock=clock,
    )
