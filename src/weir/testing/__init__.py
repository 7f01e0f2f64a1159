"""Tools for users' tests: `from weir.testing import MemoryBroker, ManualClock`.

Each name is loaded when it is first used, so that the memory broker does not need the driver of a server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weir.model.lazy import lazy_names

if TYPE_CHECKING:
    from weir.testing.clocks import ManualClock
    from weir.testing.conformance import BrokerConformance
    from weir.testing.ledger import Ledger
    from weir.testing.memory import MemoryBroker
    from weir.testing.tasks import MemoryTasks, eager

__all__ = ["BrokerConformance", "Ledger", "ManualClock", "MemoryBroker", "MemoryTasks", "eager"]

_HOMES = {
    "BrokerConformance": "conformance",
    "Ledger": "ledger",
    "ManualClock": "clocks",
    "MemoryBroker": "memory",
    "MemoryTasks": "tasks",
    "eager": "tasks",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names("weir.testing", _HOMES)
