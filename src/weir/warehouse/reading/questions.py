"""Builds every question to the warehouse; a question of a tenant is always limited to that tenant.

`tenant.sql` holds the queries about one environment. Each has the mark `$TENANT`, which becomes the three
comparisons below; a query without it cannot be loaded. `operator.sql` holds the queries across tenants, which
Weir asks about itself. A question about waits says whether its table has digests (`DigestReader`).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from weir.control.scopes import scope_names
from weir.control.sql import NamedQuery
from weir.model.names import EnvironmentRef
from weir.warehouse.queries import load_warehouse_queries
from weir.warehouse.reading.reader import Question

TENANT = " AND ".join(f"{name} = {{{name}:String}}" for name in ("organization", "project", "environment"))
_MARK = "$TENANT"


@cache
def tenant_queries(*, digests: bool = False) -> dict[str, NamedQuery]:
    """The queries about one environment; every part that reads a tenant's table is marked."""
    queries = load_warehouse_queries("weir.warehouse.reading", "tenant.sql", digests=digests)
    for query in queries.values():
        reads = query.text.count("FROM {")
        if not reads or query.text.count(_MARK) != reads:
            raise ValueError(f"query `{query.name}` reads {reads} tables and does not mark each `{_MARK}`")
    return queries


@cache
def operator_queries(*, digests: bool = False) -> dict[str, NamedQuery]:
    """The queries about Weir itself."""
    return load_warehouse_queries("weir.warehouse.reading", "operator.sql", digests=digests)


def ask_tenant(
    name: str, environment: EnvironmentRef, *, digests: bool = False, **parameters: Any
) -> Question:
    """A question about one environment, and about nothing outside it."""
    scope = scope_names(environment)
    # A parameter of that name would replace the tenant's own, and a query could leave its environment.
    if scope.keys() & parameters.keys():
        raise ValueError("the scope of a question comes from its environment alone")
    sql = tenant_queries(digests=digests)[name].text.replace(_MARK, TENANT)
    return Question(sql=sql, parameters={**parameters, **scope})


def ask_operator(name: str, *, digests: bool = False, **parameters: Any) -> Question:
    return Question(sql=operator_queries(digests=digests)[name].text, parameters=parameters)
