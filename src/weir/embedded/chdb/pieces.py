"""Reads rows from the engine in pieces, so that a large answer is never in memory as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from weir.embedded.chdb.request import Request
from weir.embedded.chdb.statement import named_formats, words

# The engine formats each piece by itself. These formats have no header and no footer, so pieces can be
# joined.
_JOINABLE = frozenset(
    "native tabseparated tsv tabseparatedraw tsvraw csv jsoneachrow jsoncompacteachrow rowbinary".split()  # noqa: SIM905
)


def can_be_joined(request: Request, statement: bytes) -> bool:
    """Whether the answer to a statement may be sent in pieces."""
    if words(statement, 1) not in ((b"SELECT",), (b"WITH",)):
        return False
    formats = named_formats(statement) or {request.format}
    return all(name.lower() in _JOINABLE for name in formats)


@contextmanager
def pieces(connection: Any, request: Request, statement: bytes) -> Iterator[Iterator[Any]]:
    """The results of a statement, as the engine produces them; leaving the block early stops it."""
    stream = connection.send_query(statement, request.format, params=dict(request.parameters))
    try:
        yield iter(stream)
    finally:
        with suppress(Exception):
            stream.cancel()
