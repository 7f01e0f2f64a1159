"""Scopes as query parameters, and rows as environments."""

from __future__ import annotations

from weir.control.database import Row
from weir.control.principals import Principal
from weir.model.names import EnvironmentRef


def scope_names(environment: EnvironmentRef) -> dict[str, str]:
    """The three names of an environment as query parameters."""
    return {
        "organization": environment.organization,
        "project": environment.project,
        "environment": environment.environment,
    }


def principal_names(principal: Principal) -> dict[str, str | None]:
    """The scope of a principal as the parameters of `$SCOPE`; None matches every name."""
    return {
        "organization": principal.organization,
        "project": principal.project,
        "environment": principal.environment,
    }


def scope_of(row: Row) -> EnvironmentRef:
    """The environment that a row with its three names belongs to."""
    return EnvironmentRef(
        organization=row["organization"], project=row["project"], environment=row["environment"]
    )
