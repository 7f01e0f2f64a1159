"""Secrets of tests that need no store of them."""

from __future__ import annotations

from collections.abc import Mapping

from weir.control.secrets import SecretLookUp
from weir.model.names import EnvironmentRef


def fixed_secrets(values: Mapping[str, str], *, of: EnvironmentRef | None = None) -> SecretLookUp:
    """These values by name, in one environment or in every one. Later changes of the mapping count."""

    def look_up(environment: EnvironmentRef, name: str) -> tuple[str, ...]:
        return (values[name],) if name in values and of in (None, environment) else ()

    return look_up
