"""Asking ClickHouse without stopping the event loop: the driver works in threads of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar

from weir.errors import WarehouseUnavailable
from weir.model.bounded_threads import BoundedThreads
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.reading.series import Columns

T = TypeVar("T")
Answer = list[dict[str, Any]]
ANSWER_S = 5.0
"""The longest question over 100,000 queues takes below a second."""
THREADS = 8
READING = {"use_statistics": 0}
"""The primary key finds what is asked for; column statistics would be loaded anew for every question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One query and its parameters, which ClickHouse binds itself."""

    sql: str
    parameters: Mapping[str, Any]


class Reader:
    """A warehouse by URL; it connects at the first question and again after an outage.

    Nobody waits longer than `answer_s`, however many ask a ClickHouse that hangs. The driver's connection is
    thread-safe and keeps its own pool of sockets.
    """

    def __init__(self, url: str, *, answer_s: float = ANSWER_S) -> None:
        self._url = url
        self._answer_s = answer_s
        self._threads = BoundedThreads(THREADS, patience_s=answer_s, name="weir-warehouse")
        self._lock = Lock()
        self._connection: ClickHouseConnection | None = None

    async def ask(self, question: Question) -> Answer:
        """The rows of the answer by column name; WarehouseUnavailable if there is none."""
        return await self._threaded(self._rows, question)

    async def ask_columns(self, question: Question) -> Columns:
        """The same by columns, which is cheaper for many rows that are only handed on."""
        return await self._threaded(self._columns, question)

    async def aclose(self) -> None:
        await self._threads.aclose()
        if self._connection is not None:
            self._connection.close()

    async def _threaded(self, work: Callable[[Question], T], question: Question) -> T:
        try:
            return await self._threads.run(work, question)
        except TimeoutError as error:
            raise WarehouseUnavailable(
                f"ClickHouse does not answer ({error}); try again", retry_after_s=1
            ) from None

    def _rows(self, question: Question) -> Answer:
        return self._connected().rows(question.sql, question.parameters)

    def _columns(self, question: Question) -> Columns:
        return self._connected().columns(question.sql, question.parameters)

    def _connected(self) -> ClickHouseConnection:
        with self._lock:
            if self._connection is None:
                # Half the time: making it takes two questions.
                self._connection = ClickHouseConnection(
                    self._url,
                    timeout_s=self._answer_s,
                    connect_timeout_s=self._answer_s / 2,
                    settings=READING,
                )
            return self._connection
