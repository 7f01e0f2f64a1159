"""The parts of this room that routes and commands use, built once over one database and one broker."""

from __future__ import annotations

from dataclasses import dataclass

from weir.broker.broker import Broker
from weir.control.database import Database
from weir.deadletters.channels import Channels
from weir.deadletters.desk import TaskDesk
from weir.deadletters.single import Letters
from weir.model.clock import Clock, SystemClock


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRoom:
    database: Database
    letters: Letters
    tasks: TaskDesk
    channels: Channels
    clock: Clock


def open_room(database: Database, broker: Broker, *, clock: Clock | None = None) -> DeadLetterRoom:
    """Connect the parts; nothing runs until the loops do."""
    clock = clock or SystemClock()
    return DeadLetterRoom(
        database=database,
        letters=Letters(database, broker, clock=clock),
        tasks=TaskDesk(database, broker, clock=clock),
        channels=Channels(database, clock=clock),
        clock=clock,
    )
