"""The named queries of this room."""

from __future__ import annotations

from weir.control.sql import load_queries

SQL = load_queries("weir.schedules", "schedules.sql")
