"""Parses a request into the query, its settings, its parameters and the options of the transport."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from weir.embedded.chdb.http_errors import RequestRefused

# Every other argument of the URL is a setting of the query, as in ClickHouse.
_TRANSPORT = frozenset(
    """
    query database default_format user password session_id session_timeout session_check query_id quota_key
    compress decompress wait_end_of_query buffer_size role client_protocol_version enable_http_compression
    send_progress_in_http_headers http_headers_progress_interval_ms stacktrace
    cancel_http_readonly_queries_on_client_close
    """.split()  # noqa: SIM905
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_DEFAULT_SESSION_S = 60
_EXTERNAL = re.compile(r"(?P<table>.+)_(?P<part>structure|types|format)\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalTable:
    """Rows that come with a query and exist as long as it runs."""

    name: str
    structure: str
    format: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    query: bytes
    database: str | None
    format: str
    settings: Mapping[str, str]
    parameters: Mapping[str, str]
    query_id: str | None = None
    session_id: str | None = None
    session_timeout_s: int = _DEFAULT_SESSION_S
    session_must_exist: bool = False
    external: tuple[ExternalTable, ...] = field(default=())


def parse_request(
    arguments: Mapping[str, str], headers: Mapping[str, str], files: Mapping[str, bytes]
) -> Request:
    """A request from its URL arguments, form fields, headers and files."""
    external = tuple(_external_table(name, data, arguments) for name, data in files.items())
    table_fields = {f"{table.name}_{part}" for table in external for part in ("structure", "types", "format")}
    plain = {name: value for name, value in arguments.items() if name not in table_fields}
    settings = {n: v for n, v in plain.items() if n not in _TRANSPORT and not n.startswith("param_")}
    for name in settings:
        if not _NAME.match(name):
            raise RequestRefused(115, "UNKNOWN_SETTING", f"Unknown setting {name!r}")
    return Request(
        query=plain.get("query", "").encode("utf-8", "surrogateescape"),
        database=plain.get("database") or headers.get("X-ClickHouse-Database"),
        format=plain.get("default_format") or headers.get("X-ClickHouse-Format") or "TabSeparated",
        settings=settings,
        parameters={name[6:]: value for name, value in plain.items() if name.startswith("param_")},
        query_id=plain.get("query_id"),
        session_id=plain.get("session_id"),
        session_timeout_s=_seconds(plain.get("session_timeout")),
        session_must_exist=plain.get("session_check") == "1",
        external=external,
    )


def _external_table(name: str, data: bytes, arguments: Mapping[str, str]) -> ExternalTable:
    structure = arguments.get(f"{name}_structure")
    if structure is None:
        types = arguments.get(f"{name}_types", "").split(",")
        structure = ", ".join(f"_{index} {kind}" for index, kind in enumerate(types, 1) if kind)
    if not structure or not _NAME.match(name):
        raise RequestRefused(36, "BAD_ARGUMENTS", f"External table {name!r} has no structure")
    return ExternalTable(
        name=name, structure=structure, format=arguments.get(f"{name}_format", "TabSeparated"), data=data
    )


def _seconds(text: str | None) -> int:
    return min(int(text), 3_600) if text and text.isdigit() else _DEFAULT_SESSION_S


def credentials(arguments: Mapping[str, str], headers: Mapping[str, str]) -> tuple[str, str]:
    """User and password, from ClickHouse's headers, Basic authentication or URL arguments."""
    if (user := headers.get("X-ClickHouse-User")) is not None:
        return user, headers.get("X-ClickHouse-Key") or ""
    scheme, _, value = (headers.get("Authorization") or "").partition(" ")
    if scheme.lower() == "basic":
        try:
            user, _, password = base64.b64decode(value).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return "", ""
        return user, password
    return arguments.get("user", "default"), arguments.get("password", "")
