"""Builds the embedded stack that the settings describe."""

from __future__ import annotations

from collections.abc import Callable

from weir.embedded.stack import Ports, Stack
from weir.settings import Settings


def stack_from(settings: Settings, *, report: Callable[[str], None]) -> Stack:
    """The embedded servers, on the ports and in the directory that the settings name."""
    embedded = settings.embedded
    ports = Ports(
        redis=embedded.redis_port or None,
        postgres=embedded.postgres_port or None,
        clickhouse=embedded.clickhouse_port or None,
        reserved=frozenset(port for port in (settings.api.port, settings.pipeline.metrics_port) if port),
    )
    return Stack(
        embedded.data_dir,
        ports=ports,
        durable=settings.durable,
        redis_program=embedded.redis_server,
        report=report,
    )
