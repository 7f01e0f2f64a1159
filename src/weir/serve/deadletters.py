"""The analysis of dead letters in Spark, built from the settings."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from weir.embedded.java import find_java
from weir.pipeline.dead_letter_analysis import analyse
from weir.pipeline.session import open_session
from weir.serve.pipeline import session_options
from weir.settings import Settings
from weir.stores.urls import resolve_urls


def analyse_dead_letters(
    settings: Settings, *, partitions: int, limit: int, output: Path | None, master: str | None
) -> dict[str, Any]:
    """Group the dead letters of all tenants again, and find the trend of each group."""
    asyncio.run(find_java())
    session = open_session(session_options(settings, master=master))
    try:
        url = resolve_urls(settings).postgres
        return analyse(session, url=url, partitions=partitions, limit=limit, output=output)
    finally:
        session.stop()
