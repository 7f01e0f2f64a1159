"""The holder of a request, whose fair share it takes: the scope of its verified credential (0023).

A name that a request merely claims does not make a holder. A token for several environments is one holder,
however many environments its requests name.
"""

from __future__ import annotations

from contextvars import ContextVar

Holder = tuple[str | None, str | None, str | None]
"""Organization, project and environment; None for a level that the credential leaves open."""

STRANGERS: Holder = ("", "", "")
"""The holder of all requests without a verified credential. No name is empty, so it is nobody else's."""

HOLDER: ContextVar[Holder] = ContextVar("weir_holder", default=STRANGERS)
"""The holder of the current request, set as soon as its credential is verified."""
