"""Something else answers where Weir was: a page of a proxy, a captive portal, another server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from client.test_client import ACCEPTED, Script, client, document
from weir import AsyncWeir, OutgoingMessage, ReceivedMessage, Unreachable

MESSAGE = ReceivedMessage.of(document("m1"))
PAGES = {
    "a page": {"text": "<html>Weir is being serviced</html>"},
    "nothing": {},
    "a list": {"json": []},
    "somebody else's object": {"json": {"hello": "I am another server"}},
    "fewer items": {"json": {"items": []}},
}
CALLS: dict[str, Callable[[AsyncWeir], Any]] = {
    "push": lambda weir: weir.push("q", 1),
    "push_many": lambda weir: weir.push_many([OutgoingMessage(queue="q", payload=1)]),
    "pop": lambda weir: weir.pop("q"),
    "ack": lambda weir: weir.ack(MESSAGE),
    "ack_many": lambda weir: weir.ack_many([MESSAGE]),
    "nack": lambda weir: weir.nack(MESSAGE),
    "extend": lambda weir: weir.extend(MESSAGE, lease=1),
    "revoked": lambda weir: weir.revoked([MESSAGE]),
    "progress": lambda weir: weir.progress(MESSAGE, 1),
    "outcome": lambda weir: weir.outcome("m1"),
    "finish_member": lambda weir: weir.finish_member("g", member=0, of=1),
    "cancel": lambda weir: weir.cancel("m1"),
    "operation": lambda weir: weir.operation("o1"),
    "ping": lambda weir: weir.ping(),
    "message": lambda weir: weir.message("m1"),
    "find_message": lambda weir: weir.find_message("q", idempotency_key="k"),
    "log_replay": lambda weir: weir.log_replay("t1"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
async def test_a_2xx_that_is_not_of_weir_is_no_answer(page: Any, call: Callable[[AsyncWeir], Any]) -> None:
    async with client(lambda request: httpx2.Response(200, **page), retry_attempts=2) as weir:
        with pytest.raises(Unreachable, match="not one of Weir"):
            await call(weir)


async def test_after_a_page_the_request_is_sent_again() -> None:
    script = Script(httpx2.Response(200, text="<html>"), httpx2.Response(201, json=ACCEPTED))
    async with client(script) as weir:
        assert (await weir.push("q", 1)).accepted
    assert len(script.requests) == 2
