"""The promises of every broker as tests: a backend conforms if a subclass like this passes.

    class TestMyBroker(BrokerConformance):
        @pytest.fixture
        def broker(self, manual_clock): return MyBroker(clock=manual_clock)

The module of the subclass needs a `manual_clock` fixture (a clock that only moves when it is told to), from
which the broker takes its time, an `environment` fixture (a new `EnvironmentRef` per test), and two fixtures
with async functions: `read_lives` returns the lives (`Life`) of a queue's messages, in order of their ends,
and `read_log` the messages in its log (`LoggedMessage`), in the same order.
"""

from __future__ import annotations

from weir.testing.conformance.accounts import Accounts
from weir.testing.conformance.capacity import CapacityPromises
from weir.testing.conformance.deaths import Deaths
from weir.testing.conformance.gates import GatePromises
from weir.testing.conformance.leases import Leases
from weir.testing.conformance.lives import LifePromises
from weir.testing.conformance.log import LogPromises
from weir.testing.conformance.looking import Looking
from weir.testing.conformance.order import Order
from weir.testing.conformance.reasons import Reasons
from weir.testing.conformance.refusals import Refusals
from weir.testing.conformance.results import Results
from weir.testing.conformance.touching import Touching
from weir.testing.conformance.turns import TurnPromises
from weir.testing.conformance.waiting import Waiting


class BrokerConformance(
    Leases,
    Deaths,
    Order,
    CapacityPromises,
    TurnPromises,
    GatePromises,
    Waiting,
    Accounts,
    LifePromises,
    LogPromises,
    Looking,
    Touching,
    Reasons,
    Refusals,
    Results,
):
    """All promises together."""
