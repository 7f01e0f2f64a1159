"""Messages know their parents and parents their children: chained, redriven and copied."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import httpx2
from msgspec.structs import replace

from ingress.house import House
from support.waiting import until
from weir import AsyncWeir, OutgoingMessage
from weir.control.database import Database
from weir.exchange.admit import AnsweringPusher, AnswerTally
from weir.exchange.intake import Intake
from weir.exchange.lineage import ChainedMessages
from weir.exchange.seam import PushAnswer, PushItem, Queued
from weir.exchange.service import OperationService
from weir.lineage.children import KEPT_MS, MAX_CHILDREN, ChildMessage, Kinship, PostgresChildren, lineage_of
from weir.model.clock import SystemClock
from weir.model.ids import new_message_id
from weir.model.limits import MAX_HEADER_BYTES
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef
from weir.model.parents import WORKING_ON
from weir.outbox.row import outbox_row
from weir.testing.clocks import ManualClock

TRACE = "0af7651916cd43dd8448eb211c80319c"
CHAIN = """
app A {
  queue First { enqueue: Second { order: order } }
  queue Second { map_to: command Order.Ship { order: order } }
  queue Third { }
}
"""


async def push(house: House, queue: str, payload: Any, **item: Any) -> str:
    items = [{"queue": queue, "payload": payload, **item}]
    answer = await house.client.post("/api/v1/push", json={"items": items})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["items"][0]["id"])


async def shown(house: House, message_id: str) -> dict[str, Any]:
    answer = await house.client.get(f"/api/v1/messages/{message_id}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def children(house: House, message_id: str) -> list[tuple[str, str, str]]:
    found = (await shown(house, message_id))["children"]
    return [(child["kind"], child["queue"], child["message_id"]) for child in found]


async def wait_for_children(house: House, message_id: str, count: int) -> list[tuple[str, str, str]]:
    async def arrived() -> bool:
        # For a moment after its end nothing is recorded of a message.
        answer = await house.client.get(f"/api/v1/messages/{message_id}")
        return answer.status_code == 200 and len(answer.json()["children"]) == count

    await until(arrived)
    return await children(house, message_id)


def client_of(house: House) -> AsyncWeir:
    transport = httpx2.ASGITransport(app=house.app)
    token = house.client.headers["authorization"].removeprefix("Bearer ")
    http = httpx2.AsyncClient(transport=transport, base_url="http://weir")
    return AsyncWeir("http://weir", token=token, http=http)


async def test_a_chain_is_known_from_both_ends(house: House) -> None:
    await house.apply(CHAIN)
    handled: list[str] = []

    @house.commands.command("Order.Ship")
    async def ship(order: int, context: Any) -> None:
        handled.append(context.message_id)

    async with house.working():
        first = await push(house, "First", {"order": 1})
        await until(lambda: len(handled) == 1)
        found = await wait_for_children(house, first, 1)
    assert found == [("chained", "Second", handled[0])]
    parent = (await shown(house, handled[0]))["parent"]
    assert (parent["message_id"], parent["kind"]) == (first, "chained")
    assert parent["at_ms"] > 0
    assert (await shown(house, first))["parent"] is None


async def test_what_a_handler_pushes_is_chained_from_its_message(house: House) -> None:
    await house.apply(CHAIN)
    pushed: list[str] = []

    @house.commands.command("Order.Ship")
    async def ship(order: int) -> None:
        async with client_of(house) as weir:
            copied = {"weir-chained-from": new_message_id(), "kind": "copied by the handler"}
            pushed.append((await weir.push("Third", {"order": order}, headers=copied)).id or "")
            many = [OutgoingMessage(queue="Third", payload=number) for number in range(2)]
            pushed.extend([result.id or "" for result in await weir.push_many(many)])

    async with house.working():
        parent = await push(house, "Second", {"order": 1})
        await until(lambda: len(pushed) == 3)
        found = await wait_for_children(house, parent, 3)
    assert sorted(found) == sorted(("chained", "Third", one) for one in pushed)
    waiting = await shown(house, pushed[0])
    assert waiting["parent"]["message_id"] == parent
    assert waiting["message"]["headers"]["weir-chained-from"] == parent


async def test_a_handler_in_a_thread_knows_its_message_too(house: House) -> None:
    await house.apply(CHAIN)
    seen: list[str | None] = []

    @house.commands.command("Order.Ship")
    def ship(order: int) -> None:
        seen.append(WORKING_ON.get())

    async with house.working():
        message_id = await push(house, "Second", {"order": 1})
        await until(lambda: len(seen) == 1)
    assert seen == [message_id]
    assert WORKING_ON.get() is None


def test_a_row_of_the_outbox_is_chained_from_the_message_that_is_worked_on() -> None:
    def headers(given: dict[str, str] | None) -> str | None:
        row = outbox_row("q", 1, key=None, headers=given, delay=None, priority=None, idempotency_key=None)
        return None if row["headers"] is None else json.loads(row["headers"])

    assert headers(None) is None
    token = WORKING_ON.set("the parent")
    try:
        assert headers({"a": "b"}) == {"a": "b", "weir-chained-from": "the parent"}
        full = {"x": "é" * (MAX_HEADER_BYTES // 2 - 1)}
        assert headers(full) == full
    finally:
        WORKING_ON.reset(token)


async def test_a_parent_that_nothing_else_is_known_of_is_shown_with_its_children(house: House) -> None:
    await house.apply(CHAIN)
    parent = new_message_id()
    child = await push(house, "Third", 1, headers={"weir-chained-from": parent})
    assert house.children is not None
    await house.children.flush()
    found = await shown(house, parent)
    assert (found["state"], found["message"]) == ("unknown", None)
    assert [one["message_id"] for one in found["children"]] == [child]


async def test_the_parent_of_a_waiting_message_is_read_from_its_header_before_it_is_recorded(
    house: House,
) -> None:
    await house.apply(CHAIN)
    parent = new_message_id()
    child = await push(house, "Third", 1, headers={"weir-chained-from": parent.upper()})
    assert (await shown(house, child))["parent"] == {
        "message_id": parent,
        "kind": "chained",
        "queue": None,
        "at_ms": None,
    }


async def test_a_header_that_names_no_message_makes_no_parent(house: House) -> None:
    await house.apply(CHAIN)
    child = await push(house, "Third", 1, headers={"weir-chained-from": "'; DROP TABLE"})
    assert (await shown(house, child))["parent"] is None


async def test_a_refused_message_and_a_repeated_one_add_no_child(house: House) -> None:
    await house.apply(CHAIN)
    headers = {"weir-chained-from": (parent := new_message_id())}
    first = await push(house, "Third", 1, headers=headers, idempotency_key="once")
    assert await push(house, "Third", 1, headers=headers, idempotency_key="once") == first
    refused = {"items": [{"queue": "absent", "payload": 1, "headers": headers}]}
    assert (await house.client.post("/api/v1/push", json=refused)).status_code == 404
    assert house.children is not None
    await house.children.flush()
    assert await children(house, parent) == [("chained", "Third", first)]


async def test_a_queued_push_under_a_known_key_makes_the_first_message_the_child(
    house: House, database: Database
) -> None:
    await house.apply(CHAIN)
    first = await push(house, "Third", 1, idempotency_key="once")
    recorder = PostgresChildren(database)
    chained = ChainedMessages(recorder, clock=SystemClock())
    service = OperationService(database=database, broker=house.broker, chained=chained.record_child)
    queued = PushesLater(service.intake)
    message = NewMessage(payload=b"1", idempotency_key="once")
    parent = new_message_id()
    item = PushItem(
        queue=house.environment.queue("Third"),
        message=replace(message, headers={"weir-chained-from": parent}),
    )
    [answer] = await AnsweringPusher(queued, AnswerTally(), chained=chained).push([item])
    assert isinstance(answer, Queued)
    await recorder.flush()
    assert (await lineage_of(database, house.environment, parent)).children == ()
    await until(service.processor.run_round)
    await recorder.flush()
    [child] = (await lineage_of(database, house.environment, parent)).children
    assert (child.message_id, child.queue) == (first, "Third")


class PushesLater:
    """A pusher that queues everything, as a busy process does."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake

    async def push(self, items: Sequence[PushItem]) -> list[PushAnswer]:
        return await self._intake.queue(items)


async def test_a_replay_and_a_copy_are_children_of_the_message_that_died(house: House) -> None:
    await house.apply(
        """
        app A {
          queue Q { delivery { max_attempts: 1, dead_letter_queue: Dead }, map_to: command Order.Ship { } }
          queue Dead { map_to: command Order.Bury { } }
        }
        """
    )
    buried: list[str] = []
    failing = [True]

    @house.commands.command("Order.Ship")
    async def ship() -> None:
        if failing[0]:
            raise RuntimeError("closed")

    @house.commands.command("Order.Bury")
    async def bury(context: Any) -> None:
        buried.append(context.message_id)

    async with house.working():
        traceparent = f"00-{TRACE}-b7ad6b7169203331-01"
        message_id = await push(house, "Q", {}, headers={"traceparent": traceparent})
        await until(lambda: len(buried) == 1)
        failing[0] = False
        path = f"/api/v1/dlq/letters/{message_id}/redrive"
        answer = await house.client.post(path, params={"queue": "Q"})
        assert answer.status_code == 200, answer.text
        found = await wait_for_children(house, message_id, 2)
        replay_id = found[0][2]

        async def is_done() -> bool:
            return (await shown(house, replay_id))["state"] == "done"

        await until(is_done)
    assert found == [("redriven", "Q", replay_id), ("copied", "Dead", buried[0])]
    for child, kind in ((replay_id, "redriven"), (buried[0], "copied")):
        parent = (await shown(house, child))["parent"]
        assert (parent["message_id"], parent["kind"]) == (message_id, kind)
    for one in (message_id, replay_id, buried[0]):
        about = await shown(house, one)
        assert (about["trace_id"], about["trace_url"]) == (TRACE, f"https://t/{TRACE}")


async def test_children_are_those_of_one_environment(house: House, database: Database) -> None:
    await house.apply(CHAIN)
    parent = new_message_id()
    await push(house, "Third", 1, headers={"weir-chained-from": parent})
    assert house.children is not None
    await house.children.flush()
    other = EnvironmentRef(organization=uuid4().hex, project="p", environment="e")
    assert (await lineage_of(database, house.environment, parent)).children
    assert (await lineage_of(database, other, parent)).children == ()


async def test_a_bounded_number_of_children_is_shown_oldest_first(house: House, database: Database) -> None:
    recorder, parent = PostgresChildren(database), new_message_id()
    queue = house.environment.queue("Third")
    ids = [new_message_id() for _ in range(MAX_CHILDREN + 1)]
    for at_ms, one in enumerate(ids):
        recorder.record(
            ChildMessage(queue=queue, message_id=one, parent_id=parent, kind=Kinship.CHAINED, at_ms=at_ms)
        )
    await recorder.flush()
    found = await lineage_of(database, house.environment, parent)
    assert [child.message_id for child in found.children] == ids[:MAX_CHILDREN]
    assert found.more_children
    assert (await shown(house, parent))["more_children"]


async def test_children_are_forgotten_after_some_days(house: House, database: Database) -> None:
    clock = ManualClock(SystemClock().now_ms())
    recorder, parent = PostgresChildren(database, clock=clock), new_message_id()
    child = ChildMessage(
        queue=house.environment.queue("Third"),
        message_id=new_message_id(),
        parent_id=parent,
        kind=Kinship.CHAINED,
        at_ms=clock.now_ms(),
    )
    recorder.record(child)
    await recorder.flush()
    clock.advance(KEPT_MS)
    await recorder.clean()
    assert (await lineage_of(database, house.environment, parent)).children
    clock.advance(1)
    await recorder.clean()
    assert (await lineage_of(database, house.environment, parent)).children == ()


async def test_a_push_outside_of_a_handler_has_no_parent(house: House) -> None:
    await house.apply(CHAIN)
    async with client_of(house) as weir:
        result = await weir.push("Third", 1)
    assert (await shown(house, result.id or ""))["message"]["headers"] == {}
