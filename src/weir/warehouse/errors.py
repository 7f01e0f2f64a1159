"""Translates ClickHouse's exceptions into errors of the tree; none of them leaves the warehouse."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from clickhouse_connect.driver import exceptions as ch
from urllib3.exceptions import HTTPError

from weir.errors import InvalidInput, WarehouseUnavailable, WeirError

_OVERLOADED_CODES = frozenset({159, 164, 202, 209, 210, 241, 242, 243, 252, 319, 425, 999})
"""Timeout, read-only, too many queries, network, memory, disk, too many parts, unknown insert outcome."""

_UNPREPARED_CODES = frozenset({16, 47, 60, 81})
"""No such column, identifier, table or database: the warehouse lacks a migration."""

_REFUSED_CODES = frozenset({192, 193, 194, 516})
"""Unknown user, wrong or missing password."""

_CODE = re.compile(r"Code: (\d+)\.")
_REASON = re.compile(r"DB::Exception: ([^(]+)\.?\s*\(")


def translated(error: Exception) -> WeirError:
    """The error of the tree for an exception of the driver."""
    text = str(error).strip().splitlines()[0][:500] if str(error).strip() else type(error).__name__
    code = _CODE.search(str(error))
    # By class first: the driver refuses such a value itself, so there is no code of the server.
    if isinstance(error, ch.DataError):
        return InvalidInput(f"ClickHouse cannot store that value ({text})")
    if code is not None and int(code[1]) in _REFUSED_CODES:
        reason = _REASON.search(str(error))
        why = reason[1].strip().rstrip(".") if reason else text
        return WarehouseUnavailable(
            f"ClickHouse refuses the user or password ({why}); correct `WEIR_CLICKHOUSE_URL`",
            retry_after_s=5,
        )
    if code is not None and int(code[1]) in _UNPREPARED_CODES:
        return WarehouseUnavailable(
            f"ClickHouse lacks a table of this version ({text}); run `weir migrate`", retry_after_s=5
        )
    if code is not None and int(code[1]) not in _OVERLOADED_CODES:
        return WeirError(f"ClickHouse failed ({text})")
    if isinstance(error, (ch.ProgrammingError, ch.NotSupportedError)):
        return WeirError(f"ClickHouse cannot do what it was asked ({text})")
    return WarehouseUnavailable(f"ClickHouse does not answer ({text}); try again", retry_after_s=1)


@contextmanager
def translating() -> Iterator[None]:
    """Let no exception of the driver out of the block."""
    try:
        yield
    except (ch.ClickHouseError, ch.StreamCompleteException, HTTPError, OSError) as error:
        raise translated(error) from error
