"""What the HTTP server and the parts of the application tell each other about a request, in its scope."""

from __future__ import annotations

from typing import Protocol

from starlette.types import Scope

from weir.api.slots import RequestSlot
from weir.control.principals import Principal
from weir.errors import WeirError
from weir.model.holders import HOLDER, Holder

ENDED_BY = "weir.ended_by"
"""The error with which the server ended a request that did not become complete. It has been answered."""
ADMITTED = "weir.admitted"
"""The holder for whom a push counts as arriving until the application begins with it."""
PRINCIPAL = "weir.principal"
"""Who asks, if the credential is verified already."""
ARRIVAL = "weir.arrival"
"""The request on its way in."""
SLOT = "weir.slot"
"""The part of the process's capacity that the request takes."""


class Arrival(Protocol):
    """A request of which some may still be on its way."""

    def belongs_to(self, holder: Holder) -> None:
        """The credential is verified: count what is missing of the request for its holder."""


CLIENT_LEFT = 499
"""The status under which a request is counted that nobody waits for any more."""


def status_of_loss(scope: Scope) -> int:
    """What to note for a request whose client left, or was told by the server that it was too slow."""
    error: WeirError | None = scope.get(ENDED_BY)
    return CLIENT_LEFT if error is None else error.status


def note_principal(scope: Scope, principal: Principal) -> None:
    """The credential of a request is verified."""
    scope[PRINCIPAL] = principal
    note_holder(scope, principal.holder)


def note_holder(scope: Scope, holder: Holder) -> None:
    """From now on the request takes this holder's share of the process."""
    HOLDER.set(holder)
    slot: RequestSlot | None = scope.get(SLOT)
    if slot is not None:
        slot.belongs_to(holder)
    arrival: Arrival | None = scope.get(ARRIVAL)
    if arrival is not None:
        arrival.belongs_to(holder)
