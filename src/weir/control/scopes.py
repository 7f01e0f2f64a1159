"""An environment as query parameters, and back from a row."""

from __future__ import annotations

from weir.control.database import Row
from weir.model.names import EnvironmentRef


def scope_names(environment: EnvironmentRef) -> dict[str, str]:
    """The three names of an environment as query parameters."""
    return {
        "organization": environment.organization,
        "project": environment.project,
        "environment": environment.environment,
    }


def scope_of(row: Row) -> EnvironmentRef:
    """The environment that a row with its three names belongs to."""
    return EnvironmentRef(
        organization=row["organization"], project=row["project"], environment=row["environment"]
    )
