"""What Weir ships for its users' tests: `from weir.testing import MemoryBroker, ManualClock`.

Each name is loaded when it is first asked for, so that the memory broker needs no server's driver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weir.testing.clocks import ManualClock
    from weir.testing.conformance import BrokerConformance
    from weir.testing.ledger import Ledger
    from weir.testing.memory import MemoryBroker

__all__ = ["BrokerConformance", "Ledger", "ManualClock", "MemoryBroker"]

_HOMES = {
    "BrokerConformance": "conformance",
    "Ledger": "ledger",
    "ManualClock": "clocks",
    "MemoryBroker": "memory",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module `weir.testing` has no attribute `{name}`")
    return getattr(import_module(f"weir.testing.{_HOMES[name]}"), name)
