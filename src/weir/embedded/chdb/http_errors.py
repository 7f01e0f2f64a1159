"""Errors as ClickHouse's HTTP interface reports them: a status, a code and a text."""

from __future__ import annotations

import re

_CODE = re.compile(r"Code: (\d+)\.")
_STATUS = {
    36: 400, 42: 400, 43: 400, 53: 400, 62: 400, 89: 415, 47: 404, 60: 404, 81: 404, 115: 404, 159: 408,
    164: 403, 192: 403, 193: 403, 194: 401, 202: 503, 291: 403, 372: 404, 373: 423, 497: 403, 516: 403,
}  # fmt: skip
_UNKNOWN = 1001


class RequestRefused(Exception):
    """A request that this server answers itself with one of ClickHouse's errors."""

    def __init__(self, code: int, name: str, text: str) -> None:
        super().__init__(f"Code: {code}. DB::Exception: {text}. ({name})")
        self.code = code


class Gone(Exception):
    """The client left before its request was complete."""


def describe_error(error: Exception) -> tuple[int, int, str]:
    """HTTP status, ClickHouse code and text of an error."""
    text = str(error)
    match = _CODE.search(text)
    if match is None:
        text = f"Code: {_UNKNOWN}. DB::Exception: {type(error).__name__}: {text}. (STD_EXCEPTION)"
        return 500, _UNKNOWN, text
    code = int(match[1])
    return _STATUS.get(code, 500), code, text[match.start() :]
