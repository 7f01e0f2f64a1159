"""SQL kept as SQL: named queries in `.sql` files beside the code that uses them.

A file is a list of queries, each headed by its name and a sentence, which may take several lines:

    -- name: claim_operations
    -- Claim the oldest runnable operation of each partition.
    UPDATE …

A part that several queries of a file share stands before them once. It is inserted where its name is marked:

    -- part: POSITION
    coalesce(origin_id, id)

    -- name: oldest
    -- The oldest dead letter.
    SELECT … ORDER BY $POSITION

Parameters are psycopg's `%(name)s`. Three marks are known in every file. `$SCOPE` keeps the rows inside a
principal's scope; its parameters are those of `weir.control.scopes.principal_names`. `$ENVIRONMENT` keeps
them inside one environment; its parameters are those of `weir.control.scopes.scope_names`. `$HEAT_LEFT` is
the heat of a group `g` of dead letters at `at.last_ms`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from weir.model.durations import HOUR_MS

_LEVELS = ("organization", "project", "environment")
_SCOPE = " AND ".join(f"(%({name})s::text IS NULL OR {name} = %({name})s)" for name in _LEVELS)
_ENVIRONMENT = " AND ".join(f"{name} = %({name})s" for name in _LEVELS)
# Heat halves every hour without a death. It is not halved more than 200 times: nothing is left by then.
_HEAT_LEFT = (
    f"g.heat * 0.5 ^ (least(greatest(at.last_ms - g.last_seen_ms, 0), {200 * HOUR_MS}) / {HOUR_MS}.0)"
)
_PART = re.compile(r"^-- part: (?P<name>[A-Z][A-Z_]*)\n(?P<body>(?:(?!-- ).*\n)+)", re.MULTILINE)
_MARK = re.compile(r"\$([A-Z][A-Z_]*)\b")
Row = dict[str, Any]
"""A row of an answer, by column."""

_IGNORED = re.compile(r"--[^\n]*|'[^']*'")
_WRITES = re.compile(r"\b(?:INSERT|UPDATE|DELETE|MERGE|TRUNCATE|CREATE|ALTER|DROP|COPY)\b", re.IGNORECASE)
_HEAD = re.compile(
    r"^-- name: (?P<name>[a-z][a-z0-9_]*)\s*\n-- (?P<sentence>\S.*(?:\n-- (?!name:|part:).*)*)\n",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedQuery:
    """One named statement and the sentence that says what it is for."""

    name: str
    sentence: str
    text: str

    @property
    def writes(self) -> bool:
        """Whether it may change data. `FOR UPDATE` counts as a write, which does no harm."""
        return _writes(self.text)


@cache
def _writes(text: str) -> bool:
    return _WRITES.search(_IGNORED.sub(" ", text)) is not None


def parse_queries(text: str, *, origin: str) -> dict[str, NamedQuery]:
    """The queries of one file by name; a malformed file is a ValueError that names it."""
    parts = {part["name"]: part["body"].strip() for part in _PART.finditer(text)}
    written, text = text, _PART.sub("", text)
    heads = list(_HEAD.finditer(text))
    if not heads or text[: heads[0].start()].strip():
        raise ValueError(f"{origin}: expected `-- name: …` and a sentence before the first statement")
    ends = [head.start() for head in heads[1:]] + [len(text)]
    queries: dict[str, NamedQuery] = {}
    for head, end in zip(heads, ends, strict=True):
        name, body = head["name"], _filled(text[head.end() : end].strip(), parts)
        if name in queries or not body:
            raise ValueError(f"{origin}: query `{name}` is empty or named twice")
        queries[name] = NamedQuery(name=name, sentence=head["sentence"].replace("\n-- ", " "), text=body)
    if unused := parts.keys() - set(_MARK.findall(written)):
        raise ValueError(f"{origin}: no query uses the part `{min(unused)}`")
    return queries


def _filled(text: str, parts: Mapping[str, str]) -> str:
    """The text with each known mark replaced by its part, also inside parts."""
    known = {**parts, "SCOPE": _SCOPE, "ENVIRONMENT": _ENVIRONMENT, "HEAT_LEFT": _HEAT_LEFT}
    while found := known.keys() & set(_MARK.findall(text)):
        text = _MARK.sub(lambda mark: known[mark[1]] if mark[1] in found else mark[0], text)
    return text


@cache
def load_queries(package: str, file: str) -> dict[str, NamedQuery]:
    """Read the named queries of `file` in `package`."""
    return parse_queries(files(package).joinpath(file).read_text(), origin=f"{package}/{file}")
