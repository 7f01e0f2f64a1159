"""Which scripts a broker ran, noted as it runs them: others use the same Redis."""

from __future__ import annotations

from typing import Any

import pytest

from weir.broker.redis import RedisBroker


def note_runs(broker: RedisBroker, patch: pytest.MonkeyPatch) -> list[str]:
    """The names of the scripts that the broker runs from now on."""
    names: list[str] = []
    send = broker._runner._send

    async def noted(verb: str, *args: Any) -> list[Any]:
        names.append(verb)
        return await send(verb, *args)

    patch.setattr(broker._runner, "_send", noted)
    return names
