"""The definition of a queue as PostgreSQL keeps it. Pure."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter

from weir.spec.ir import QueueSpec

_SPEC = TypeAdapter(QueueSpec)


def stored_queue(spec: QueueSpec) -> str:
    """The JSON of a definition."""
    return _SPEC.dump_json(spec).decode()


def read_stored_queue(stored: str | dict[str, Any]) -> QueueSpec:
    """The definition in stored JSON, or in the data that was read from it."""
    return _SPEC.validate_python(_renamed(json.loads(stored) if isinstance(stored, str) else stored))


def _renamed(spec: dict[str, Any]) -> dict[str, Any]:
    """A stored spec with today's names.

    In older releases `priority` was `default_priority`, and a delivery's `secrets` were `secret_env` and
    `previous_secret_envs`.
    """
    if "default_priority" in spec:
        kept = {name: value for name, value in spec.items() if name != "default_priority"}
        spec = {"priority": spec["default_priority"], **kept}
    action = spec.get("action") or {}
    if action.get("secret_env"):
        secrets = [action["secret_env"], *action.get("previous_secret_envs", ())]
        spec = {**spec, "action": {"secrets": secrets, **action}}
    return spec
