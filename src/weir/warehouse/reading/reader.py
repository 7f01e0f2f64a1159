"""Asking ClickHouse without stopping the event loop: the driver works in threads of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar

from weir.warehouse.connection import Connection
from weir.warehouse.reading.series import Columns

T = TypeVar("T")
Answer = list[dict[str, Any]]
READING = {"use_statistics": 0}
"""The primary key finds what is asked for; column statistics would be loaded anew for every question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One query and its parameters, which ClickHouse binds itself."""

    sql: str
    parameters: Mapping[str, Any]


class Reader:
    """A warehouse by URL; it connects at the first question and again after an outage.

    The driver's connection is thread-safe and keeps its own pool of sockets.
    """

    def __init__(
        self, url: str, *, timeout_s: float = 10, connect_timeout_s: float = 2, threads: int = 8
    ) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="weir-warehouse")
        self._lock = Lock()
        self._connection: Connection | None = None

    async def ask(self, question: Question) -> Answer:
        """The rows of the answer by column name; WarehouseUnavailable if there is none."""
        return await self._threaded(self._rows, question)

    async def ask_columns(self, question: Question) -> Columns:
        """The same by columns, which is cheaper for many rows that are only handed on."""
        return await self._threaded(self._columns, question)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)
        if self._connection is not None:
            self._connection.close()

    async def _threaded(self, work: Callable[[Question], T], question: Question) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, question)

    def _rows(self, question: Question) -> Answer:
        return self._connected().rows(question.sql, question.parameters)

    def _columns(self, question: Question) -> Columns:
        return self._connected().columns(question.sql, question.parameters)

    def _connected(self) -> Connection:
        with self._lock:
            if self._connection is None:
                self._connection = Connection(
                    self._url,
                    timeout_s=self._timeout_s,
                    connect_timeout_s=self._connect_timeout_s,
                    settings=READING,
                )
            return self._connection
