"""Whose share of a process a request takes: the scope of its verified credential.

What a request merely says about itself makes no holder. A token for several environments is one holder,
however many environments it names.
"""

from __future__ import annotations

from contextvars import ContextVar

Holder = tuple[str | None, str | None, str | None]
"""Organization, project and environment; None where the credential leaves it open."""

STRANGERS: Holder = ("", "", "")
"""Everyone without a verified credential. No name is empty, so nobody else is this holder."""

HOLDER: ContextVar[Holder] = ContextVar("weir_holder", default=STRANGERS)
"""The holder of the request that is being answered; set as soon as its credential is verified."""
