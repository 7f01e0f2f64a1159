"""Notes the scripts that a broker runs. Redis cannot tell: other tests use the same server."""

from __future__ import annotations

from typing import Any

import pytest

from weir.broker.redis import RedisBroker


def note_runs(broker: RedisBroker, patch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the name of each script that the broker runs from now on."""
    names: list[str] = []
    send = broker._runner._send

    async def noted(verb: str, *args: Any) -> list[Any]:
        names.append(verb)
        return await send(verb, *args)

    patch.setattr(broker._runner, "_send", noted)
    return names
