"""One blocking connection to ClickHouse over HTTP, for the pipeline, migrations and audits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from clickhouse_connect.driver import create_client
from clickhouse_connect.driver.client import Client

from weir.errors import Misconfigured
from weir.warehouse.errors import translating

INSERT_SETTINGS: Mapping[str, Any] = {
    # An answer must mean that the rows are stored, and a repeated token must change no tier.
    "async_insert": 0,
    "deduplicate_blocks_in_dependent_materialized_views": 1,
    "insert_deduplicate": 1,
    # One thread numbers the blocks of an insert alike every time; the number is part of the deduplication id.
    "max_insert_threads": 1,
    # No bound on partitions: events from many days must not stop the pipeline.
    "max_partitions_per_insert_block": 0,
    # Run the views in parallel: an insert of 100,000 rows of queues takes about half the time (0014).
    "parallel_view_processing": 1,
    # Sorting on insert cost a third more processor time per event (0010).
    "optimize_on_insert": 0,
    # A view over many groups answers in 256 pieces. These sizes join them to one block and one part again:
    # 2 s of processor time for a batch of 100,000 queues instead of more than 30 s (0011).
    "max_insert_block_size": 4_000_000,
    "min_insert_block_size_rows": 4_000_000,
    "min_insert_block_size_bytes": 1 << 32,
}
"""The settings of every insert: one record batch is one block, so a token always means the same rows."""


class ClickHouseConnection:
    """ClickHouse by URL (`http://user:password@host:port/database`); it raises errors of the tree."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 30,
        connect_timeout_s: float = 5,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`settings` go with every statement; those that the server lacks or has locked are left out."""
        self._client = _client(url, timeout_s=timeout_s, connect_timeout_s=connect_timeout_s)
        for name, value in (settings or {}).items():
            known = self._client.server_settings.get(name)
            if known is not None and not known.readonly:
                self._client.set_client_setting(name, value)

    def command(self, sql: str, parameters: Mapping[str, Any] | None = None) -> None:
        """Run a statement that returns no rows."""
        with translating():
            self._client.command(sql, parameters=dict(parameters or {}))

    def rows(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Run a query and return its rows by column name."""
        with translating():
            result = self._client.query(sql, parameters=dict(parameters or {}))
            return [dict(zip(result.column_names, row, strict=True)) for row in result.result_rows]

    def columns(self, sql: str, parameters: Mapping[str, Any] | None = None) -> dict[str, Sequence[Any]]:
        """Run a query and return its columns by name; a result without rows has no columns."""
        with translating():
            result = self._client.query(sql, parameters=dict(parameters or {}))
            columns = result.result_columns
            return dict(zip(result.column_names, columns, strict=True)) if columns and columns[0] else {}

    def insert(self, table: str, rows: pa.Table, *, token: str) -> None:
        """Insert one block exactly once: a second insert with the same token changes nothing.

        The deduplication id is the token and the block's number, so the rows go as one record batch.
        """
        block = rows.combine_chunks()
        if block.num_rows:
            settings = {**INSERT_SETTINGS, "insert_deduplication_token": token}
            with translating():
                self._client.insert_arrow(table, block, settings=settings)

    def insert_rows(self, table: str, rows: Sequence[Mapping[str, Any]], *, token: str) -> None:
        """Insert a few rows, given as mappings with equal keys, exactly once."""
        if rows:
            self.insert(table, pa.Table.from_pylist([dict(row) for row in rows]), token=token)

    def close(self) -> None:
        self._client.close()


def _client(url: str, *, timeout_s: float, connect_timeout_s: float) -> Client:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Misconfigured(f"expected a ClickHouse URL like `http://host:8123/weir`, got `{url:.80}`")
    with translating():
        return create_client(
            host=parts.hostname,
            port=parts.port or (8443 if parts.scheme == "https" else 8123),
            secure=parts.scheme == "https",
            username=unquote(parts.username) if parts.username else None,
            password=unquote(parts.password or ""),
            database=unquote(parts.path.lstrip("/")) or "default",
            connect_timeout=connect_timeout_s,
            send_receive_timeout=timeout_s,
            # Callers repeat by themselves, and with a token where it matters; a hidden retry would double
            # waits.
            query_retries=0,
            compress=False,
            # A session allows one statement at a time, and readers share a connection between threads.
            autogenerate_session_id=False,
        )
