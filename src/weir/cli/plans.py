"""Plans of specs and apps, as the API answers with them."""

from __future__ import annotations

from typing import Any

from weir.spec.plan import Effect, Plan, PlannedChange


def plan_of(document: dict[str, Any]) -> Plan:
    """The plan that an answer describes."""
    changes = (
        {**change, "effect": Effect(change["effect"]), "path": tuple(change["path"])}
        for change in document["changes"]
    )
    return Plan(
        changes=tuple(PlannedChange(**change) for change in changes),
        refusals=tuple(document["refusals"]),
        warnings=tuple(document["warnings"]),
        revision=document.get("revision", 0),
    )
