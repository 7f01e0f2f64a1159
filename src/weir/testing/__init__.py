"""What Weir ships for its users' tests: `from weir.testing import MemoryBroker, ManualClock`.

Each name is loaded when it is first asked for, so that the memory broker needs no server's driver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weir.testing.clocks import ManualClock
    from weir.testing.conformance import BrokerConformance
    from weir.testing.memory import MemoryBroker
    from weir.testing.servers import TestServers
    from weir.testing.tcp_proxy import TcpProxy

__all__ = ["BrokerConformance", "ManualClock", "MemoryBroker", "TcpProxy", "TestServers"]

_HOMES = {
    "BrokerConformance": "conformance",
    "ManualClock": "clocks",
    "MemoryBroker": "memory",
    "TcpProxy": "tcp_proxy",
    "TestServers": "servers",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module `weir.testing` has no attribute `{name}`")
    return getattr(import_module(f"weir.testing.{_HOMES[name]}"), name)
