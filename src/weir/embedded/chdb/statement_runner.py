"""Runs a request: chooses the connection, separates the statement from its rows, and returns the answer."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from weir.embedded.chdb.cancel import HangUps
from weir.embedded.chdb.engine import Engine, configure, load, use
from weir.embedded.chdb.http_errors import RequestRefused
from weir.embedded.chdb.pieces import can_be_joined, pieces
from weir.embedded.chdb.request import Request
from weir.embedded.chdb.sessions import Sessions
from weir.embedded.chdb.spool import Spool
from weir.embedded.chdb.statement import Insert, find_insert, keeps_state, quoted, reads, words


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    name: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineAnswer:
    body: bytes
    format: str | None
    summary: dict[str, int] = field(default_factory=dict)
    more: Iterator[bytes] | None = None
    """The rest of the answer, if the body is only its beginning."""


class Runner:
    """Runs requests against the engine, a limited number at a time."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.sessions = Sessions(engine.connect)
        self._hang_ups = HangUps(engine.kill)

    @contextmanager
    def run(
        self, request: Request, body: Iterator[bytes], *, user: User, client: socket.socket
    ) -> Iterator[EngineAnswer]:
        """Run a request; yields its answer, which can be read inside the block."""
        started = time.perf_counter_ns()
        statement, insert, rows = _assemble(request.query, body)
        if insert is None and not statement.strip():
            raise RequestRefused(62, "SYNTAX_ERROR", "Empty query")
        with ExitStack() as stack:
            stack.enter_context(self.engine.running)
            connection = stack.enter_context(self._connection(request, user, statement))
            if insert is not None:
                answer = _insert(connection, request, insert, rows)
            elif reads(statement):
                mark = stack.enter_context(self._hang_ups.watched(client))
                answer = _read(stack, connection, request, f"/* {mark} */ ".encode() + statement)
            else:
                answer = _query(connection, request, statement)
            answer.summary["elapsed_ns"] = time.perf_counter_ns() - started
            yield answer

    @contextmanager
    def _connection(self, request: Request, user: User, statement: bytes) -> Iterator[Any]:
        key = (user.name, request.session_id or "")
        known = bool(request.session_id) and self.sessions.is_open(key)
        if request.session_must_exist and not known:
            raise RequestRefused(372, "SESSION_NOT_FOUND", "Session not found")
        if request.session_id and not user.read_only and (known or keeps_state(statement)):
            with self.sessions.connection(key, timeout_s=request.session_timeout_s) as connection:
                use(connection, request.database)
                with _borrowed(connection, request):
                    yield connection
            return
        with self.engine.connection() as connection:
            use(connection, request.database)
            configure(connection, request.settings)
            for table in request.external:
                load(connection, table)
            if user.read_only:
                # Last, because nothing else can be set after it.
                configure(connection, {"readonly": "1"})
            yield connection


@contextmanager
def _borrowed(connection: Any, request: Request) -> Iterator[None]:
    """Apply the settings and external tables of one request to a session, and undo them after it."""
    before = _values(connection, list(request.settings))
    configure(connection, request.settings)
    try:
        for table in request.external:
            load(connection, table)
        yield
    finally:
        for table in request.external:
            connection.query(f"DROP TEMPORARY TABLE IF EXISTS `{table.name}`")
        configure(connection, before)


def _values(connection: Any, names: list[str]) -> dict[str, str]:
    if not names:
        return {}
    wanted = ", ".join(quoted(name) for name in names)
    rows = connection.query(f"SELECT name, value FROM system.settings WHERE name IN ({wanted})", "TSVRaw")
    return dict(line.split("\t", 1) for line in rows.bytes().decode().splitlines())


def _assemble(query: bytes, body: Iterator[bytes]) -> tuple[bytes, Insert | None, Iterator[bytes]]:
    """The statement and, for an insert, its rows, which may begin in the query or anywhere in the body."""
    if query and (insert := find_insert(query)):
        return query, insert, _chain(query[insert.data_at :], body)
    head = b"\n".join(part for part in (query, next(body, b"")) if part)
    if words(head, 1) == (b"INSERT",):
        # A chunk may end in the middle of the statement.
        while (insert := find_insert(head)) is None or insert.data_at >= len(head):
            more = next(body, None)
            if more is None:
                break
            head += more
        if insert is not None:
            return head, insert, _chain(head[insert.data_at :], body)
    return head + b"".join(body), None, iter(())


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _insert(connection: Any, request: Request, insert: Insert, rows: Iterator[bytes]) -> EngineAnswer:
    """Insert rows from a file."""
    # The engine's own insert interface reports success even if a view failed, and it cuts inline rows at the
    # first blank line (0002). From a file it does neither.
    with Spool() as spool:
        for data in rows:
            spool.write(data)
        statement = f"{insert.head} FROM INFILE {quoted(spool.path)} {insert.settings} FORMAT {insert.format}"
        result = connection.query(statement, "Null", params=dict(request.parameters))
    written = {"written_rows": result.rows_written(), "written_bytes": result.bytes_written()}
    return EngineAnswer(body=b"", format=None, summary=written)


def _read(stack: ExitStack, connection: Any, request: Request, statement: bytes) -> EngineAnswer:
    """Read an answer, in pieces if its format allows."""
    # The first two pieces are fetched before the status is sent, so that most errors can still change it.
    if not can_be_joined(request, statement):
        return _query(connection, request, statement)
    results = stack.enter_context(pieces(connection, request, statement))
    begun = list(islice(results, 2))
    body = b"".join(one.bytes() for one in begun)
    if len(begun) == 2:
        return EngineAnswer(body=body, format=request.format, more=(one.bytes() for one in results))
    return EngineAnswer(body=body, format=request.format, summary=_summary(begun[0]) if begun else {})


def _query(connection: Any, request: Request, statement: bytes) -> EngineAnswer:
    result = connection.query(statement, request.format, params=dict(request.parameters))
    shown = request.format if reads(statement) else None
    return EngineAnswer(body=result.bytes() or b"", format=shown, summary=_summary(result))


def _summary(result: Any) -> dict[str, int]:
    return {
        "read_rows": result.storage_rows_read(),
        "read_bytes": result.storage_bytes_read(),
        "result_rows": result.rows_read(),
        "result_bytes": result.size(),
    }
