"""Scopes as query parameters, and rows as environments and queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weir.control.database import Row
from weir.control.principals import Principal
from weir.model.names import EnvironmentRef, QueueRef


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


def queue_of_row(row: Mapping[str, Any]) -> QueueRef:
    """The queue that a row with its four names is about."""
    return QueueRef(
        organization=row["organization"],
        project=row["project"],
        environment=row["environment"],
        queue=row["queue"],
    )
