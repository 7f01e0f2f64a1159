"""The parent of a chained message: the message whose handler made it, named in a header."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from uuid import UUID

from weir.model.message_headers import CHAINED_FROM

WORKING_ON: ContextVar[str | None] = ContextVar("weir_working_on", default=None)
"""The id of the message whose handler runs now. Messages that the handler pushes are chained from it."""


def chained_headers() -> dict[str, str]:
    """The header of a message that is pushed now; empty if no handler runs."""
    working_on = WORKING_ON.get()
    return {} if working_on is None else {CHAINED_FROM: working_on}


def chained_from(headers: Mapping[str, str]) -> str | None:
    """The message that a message is chained from. Producers write headers, so any text may stand there."""
    claimed = headers.get(CHAINED_FROM)
    if claimed is None:
        return None
    try:
        return str(UUID(claimed))
    except ValueError:
        return None
