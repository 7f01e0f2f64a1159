"""Workers that start at once all declare their app, however busy the server is with the others."""

from __future__ import annotations

from typing import Any

import pytest

from weir.cli.api import RefusedByApi
from weir.cli.declaring import declare_over_http
from weir.errors import Misconfigured
from weir.tasks.app import App

APP = App("Shop")


class BusyApi:
    """The session of a server that refuses the first requests."""

    def __init__(self, *refusals: dict[str, Any]) -> None:
        self.refusals = list(refusals)
        self.asked = 0

    async def put(self, *path: str, body: object) -> dict[str, Any]:
        self.asked += 1
        if self.refusals:
            raise RefusedByApi("no", problem=self.refusals.pop(0))
        return {"changes": [], "refusals": [], "warnings": [], "revision": 1}


async def test_a_busy_server_is_asked_again() -> None:
    busy = {"code": "overloaded", "retryable": True, "retry_after": 0.001}
    api = BusyApi(busy, {**busy, "code": "control_unavailable"}, busy)
    await declare_over_http(api, APP)  # type: ignore[arg-type]
    assert api.asked == 4


async def test_a_refusal_is_not_repeated() -> None:
    api = BusyApi({"code": "conflict", "retryable": False, "refusals": ["no"]})
    with pytest.raises(Misconfigured, match="cannot be declared: no"):
        await declare_over_http(api, APP)  # type: ignore[arg-type]
    assert api.asked == 1
