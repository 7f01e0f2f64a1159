"""What the two lean clients of Redis share: which addresses they serve, their greeting and their reader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from hiredis import Reader
from redis import exceptions
from redis.connection import DefaultParser, parse_url

PENDING = object()
"""What a reader returns while the next reply is not complete."""
_KNOWN = frozenset({"host", "port", "db", "username", "password"})


def plain_address(url: str) -> Mapping[str, Any] | None:
    """The parts of a URL that a lean client serves: TCP without TLS and without options; else None."""
    if not url.startswith("redis://"):
        return None
    # The driver's function has no types.
    parts: dict[str, Any] = cast(Any, parse_url)(url)
    return parts if parts.keys() <= _KNOWN else None


def socket_address(address: Mapping[str, Any]) -> tuple[str, int]:
    return address.get("host", "localhost"), address.get("port", 6379)


def greeting(address: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """The commands that authenticate a new connection and select its database."""
    user, password, number = (address.get(name) for name in ("username", "password", "db"))
    commands: list[tuple[Any, ...]] = []
    if password is not None:
        commands.append(("AUTH", user, password) if user else ("AUTH", password))
    if number:
        commands.append(("SELECT", number))
    return commands


def new_reader() -> Any:
    return Reader(
        protocolError=exceptions.InvalidResponse,
        replyError=DefaultParser.parse_error,
        notEnoughData=PENDING,
    )
