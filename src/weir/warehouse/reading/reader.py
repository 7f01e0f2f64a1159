"""Asks ClickHouse in threads, so that the blocking driver does not stop the event loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol, TypeVar

from weir.errors import InvalidInput, WarehouseUnavailable, WeirError
from weir.model.bounded_threads import BoundedThreads
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.reading.series import Columns

T = TypeVar("T")
Answer = list[dict[str, Any]]
# The longest question over 100,000 queues takes less than a second.
ANSWER_S = 5.0
# As many statements as the embedded engine runs at a time (`--max-concurrent`).
THREADS = 8
# The primary key already finds the rows. Loading column statistics for every question took more processor
# time than it saved: 24 ms per question instead of 15 (0041).
READING = {"use_statistics": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One query and its parameters, which ClickHouse binds itself."""

    sql: str
    parameters: Mapping[str, Any]


class ReaderActivity(Protocol):
    """Counts questions without an answer; `telemetry.process_counts` implements it."""

    def count_error(self) -> None: ...


class Reader:
    """Asks one warehouse; it connects at the first question and again after an outage.

    No caller waits longer than `answer_s`, however many ask a ClickHouse that hangs. The driver's connection
    is thread-safe and keeps its own pool of sockets.
    """

    def __init__(
        self, url: str, *, answer_s: float = ANSWER_S, activity: ReaderActivity | None = None
    ) -> None:
        self._url = url
        self._activity = activity
        self._answer_s = answer_s
        self._threads = BoundedThreads(THREADS, patience_s=answer_s, name="weir-warehouse")
        self._lock = Lock()
        self._connection: ClickHouseConnection | None = None

    async def ask(self, question: Question) -> Answer:
        """The rows of the answer by column name; raises `WarehouseUnavailable` without an answer."""
        return await self._run_in_thread(self._rows, question)

    async def ask_columns(self, question: Question) -> Columns:
        """The answer as columns, which costs less than rows if the values are only passed on."""
        return await self._run_in_thread(self._columns, question)

    async def aclose(self) -> None:
        await self._threads.aclose()
        if self._connection is not None:
            self._connection.close()

    async def _run_in_thread(self, work: Callable[[Question], T], question: Question) -> T:
        try:
            return await self._threads.run(work, question)
        except TimeoutError as error:
            self._count_error()
            raise WarehouseUnavailable(
                f"ClickHouse does not answer ({error}); try again", retry_after_s=1
            ) from None
        except InvalidInput:
            raise
        except WeirError:
            self._count_error()
            raise

    def _count_error(self) -> None:
        if self._activity is not None:
            self._activity.count_error()

    def _rows(self, question: Question) -> Answer:
        return self._connect().rows(question.sql, question.parameters)

    def _columns(self, question: Question) -> Columns:
        return self._connect().columns(question.sql, question.parameters)

    def _connect(self) -> ClickHouseConnection:
        with self._lock:
            if self._connection is None:
                # Half of the time, because connecting asks the server two questions.
                self._connection = ClickHouseConnection(
                    self._url,
                    timeout_s=self._answer_s,
                    connect_timeout_s=self._answer_s / 2,
                    settings=READING,
                )
            return self._connection
