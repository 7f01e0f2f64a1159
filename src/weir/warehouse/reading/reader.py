"""Asking ClickHouse without stopping the event loop: the driver works in threads of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Any

from weir.warehouse.connection import Connection

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
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._ask, question)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)
        if self._connection is not None:
            self._connection.close()

    def _ask(self, question: Question) -> Answer:
        return self._connected().rows(question.sql, question.parameters)

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
