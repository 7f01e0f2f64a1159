"""The parts of this room that routes and commands use, built once over one database and one broker."""

from __future__ import annotations

from dataclasses import dataclass

from weir.broker.broker import Broker
from weir.control.database import Database
from weir.deadletters.channels import Channels
from weir.deadletters.desk import BulkActionStore
from weir.deadletters.single import DeadLetterStore
from weir.model.clock import Clock, SystemClock


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterServices:
    database: Database
    letters: DeadLetterStore
    tasks: BulkActionStore
    channels: Channels
    clock: Clock


def open_room(database: Database, broker: Broker, *, clock: Clock | None = None) -> DeadLetterServices:
    """Connect the parts; nothing runs until the loops do."""
    clock = clock or SystemClock()
    return DeadLetterServices(
        database=database,
        letters=DeadLetterStore(database, broker, clock=clock),
        tasks=BulkActionStore(database, broker, clock=clock),
        channels=Channels(database, clock=clock),
        clock=clock,
    )
