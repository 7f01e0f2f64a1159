"""What every broker promises, as tests: a backend conforms when a three-line subclass of this passes.

    class TestMyBroker(BrokerConformance):
        @pytest.fixture
        def broker(self, manual_clock): return MyBroker(clock=manual_clock)

The subclass's module needs a `manual_clock` fixture (a clock that stands still until told otherwise) that
the broker takes its time from, and an `environment` fixture (a fresh `EnvironmentRef` a test).
"""

from __future__ import annotations

from weir.testing.conformance.accounts import Accounts
from weir.testing.conformance.capacity import CapacityPromises
from weir.testing.conformance.deaths import Deaths
from weir.testing.conformance.gates import GatePromises
from weir.testing.conformance.leases import Leases
from weir.testing.conformance.order import Order
from weir.testing.conformance.refusals import Refusals
from weir.testing.conformance.turns import TurnPromises
from weir.testing.conformance.waiting import Waiting


class BrokerConformance(
    Leases, Deaths, Order, CapacityPromises, TurnPromises, GatePromises, Waiting, Accounts, Refusals
):
    """Every promise."""
