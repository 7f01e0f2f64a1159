"""Structured logs: one JSON object per line, with the request's id, without secrets."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

_SECRET = re.compile(r"(weir_[0-9A-Za-z]{1,16}_[0-9A-Za-z]{12})_[0-9A-Za-z]{32}_[0-9A-Za-z]{6}")

_TOLD_OTHERWISE = ("psycopg", "psycopg.pool")
"""These loggers warn of each connection that one of our deadlines closed. The caller gets an error anyway."""


def configure_logs(*, level: str = "INFO", json: bool = True) -> None:
    """Set up structlog for this process, and let the standard library's loggers follow its level."""
    number = logging.getLevelNamesMapping()[level.upper()]
    renderer: Any = structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            redact,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[_Forwarding()], force=True)
    for name in _TOLD_OTHERWISE:
        logging.getLogger(name).setLevel(logging.ERROR)


class _Forwarding(logging.Handler):
    """Writes the logs of other packages as lines of the same shape."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger().log(
            record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info
        )


def redact(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Cut the secret out of every token that got into a log line."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = _SECRET.sub(r"\1_…", value)
    return event
