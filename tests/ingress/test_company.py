"""Requests share broker calls, so what one sender says must never spoil another's call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from support.secrets import fixed_secrets
from weir.errors import WeirError
from weir.exchange.seam import PushAnswer, Pushed, PushItem
from weir.ingress.receive import Receiver
from weir.model.limits import MAX_PAYLOAD_BYTES
from weir.model.message import check_messages
from weir.model.names import EnvironmentRef
from weir.spec.ir import MAX_WEBHOOK_BODY_BYTES, WebhookSpec
from weir.spec.snapshot import Hook

PLACE = EnvironmentRef(organization="o", project="p", environment="e")
HOOK = Hook(
    environment=PLACE,
    webhook=WebhookSpec(name="W" * 200, queue="Q", key="payload.account", verification=None),
)
HEADERS = ["content-type", "ce-specversion", "ce-id", "ce-source", "ce-type", "idempotency-key", "x-any"]
KINDS = ["application/json", "application/cloudevents+json", "text/plain"]


class Checking:
    """Takes what a broker would take, and fails on everything else."""

    taken = 0

    async def push(self, items: Sequence[PushItem]) -> list[PushAnswer]:
        try:
            check_messages([item.message for item in items])
        except WeirError as error:
            raise AssertionError("a request reached the broker that it refuses") from error
        self.taken += len(items)
        return [Pushed(message_id=item.message.id) for item in items]


def sent(headers: dict[str, str], body: bytes) -> int:
    """How many messages a request became; errors of the tree are the sender's own."""
    checking = Checking()
    receiver = Receiver(None, checking, secrets=fixed_secrets({}))  # type: ignore[arg-type]

    async def receive() -> None:
        await receiver.receive(HOOK, headers=headers, body=body, source_ip="::1")

    try:
        asyncio.run(receive())
    except WeirError:
        assert not checking.taken
    return checking.taken


@given(
    kind=st.sampled_from(KINDS),
    headers=st.dictionaries(
        st.sampled_from(HEADERS), st.binary(max_size=300).map(lambda data: data.decode("latin-1"))
    ),
    event_id=st.text(max_size=400),
    account=st.recursive(st.none() | st.integers() | st.text(max_size=300), st.lists),
)
def test_whatever_a_sender_says_the_broker_takes_it_or_it_is_refused_before(
    kind: str, headers: dict[str, str], event_id: str, account: Any
) -> None:
    event = {"specversion": "1.0", "id": event_id, "source": "s", "type": "t", "account": account}
    sent({**headers, "content-type": kind}, json.dumps(event).encode())


def test_a_plain_request_is_one_message() -> None:
    assert sent({"content-type": "application/json"}, b'{"account": "a"}') == 1


def test_no_webhook_takes_more_than_a_message_holds() -> None:
    assert MAX_WEBHOOK_BODY_BYTES <= MAX_PAYLOAD_BYTES
