"""SQL kept as SQL: named queries in `.sql` files beside the code that uses them.

A file is a list of queries, each headed by its name and one sentence:

    -- name: claim_operations
    -- Claim the oldest runnable operation of each partition.
    UPDATE …

Parameters are psycopg's `%(name)s`. The mark `$SCOPE` keeps the rows inside a principal's scope; its
parameters are those of `weir.control.scopes.principal_names`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_SCOPE = " AND ".join(
    f"(%({name})s::text IS NULL OR {name} = %({name})s)"
    for name in ("organization", "project", "environment")
)
_HEAD = re.compile(r"^-- name: (?P<name>[a-z][a-z0-9_]*)\s*\n-- (?P<sentence>\S.*)\n", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One named statement and the sentence that says what it is for."""

    name: str
    sentence: str
    text: str


def parse_queries(text: str, *, origin: str) -> dict[str, Query]:
    """The queries of one file by name; a malformed file is a ValueError that names it."""
    heads = list(_HEAD.finditer(text))
    if not heads or text[: heads[0].start()].strip():
        raise ValueError(f"{origin}: expected `-- name: …` and a sentence before the first statement")
    ends = [head.start() for head in heads[1:]] + [len(text)]
    queries: dict[str, Query] = {}
    for head, end in zip(heads, ends, strict=True):
        name, body = head["name"], text[head.end() : end].strip().replace("$SCOPE", _SCOPE)
        if name in queries or not body:
            raise ValueError(f"{origin}: query `{name}` is empty or named twice")
        queries[name] = Query(name=name, sentence=head["sentence"], text=body)
    return queries


@cache
def load_queries(package: str, file: str) -> dict[str, Query]:
    """Read the named queries of `file` in `package`."""
    return parse_queries(files(package).joinpath(file).read_text(), origin=f"{package}/{file}")
