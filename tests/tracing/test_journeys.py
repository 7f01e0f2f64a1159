"""Traces from the way in to the last handler: over HTTP, webhooks, chains, deliveries, deaths, schedules."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from ingress.house import House, open_house
from outbound.receiver import plain, receiving
from support.waiting import until
from tracing.exported import Exported, context, is_child, is_linked, trace_id, traceparent
from weir.broker.broker import GateRule
from weir.control.database import Database
from weir.exchange.traced import TracedPusher
from weir.model.clock import SystemClock
from weir.model.limits import MAX_HEADER_BYTES
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef
from weir.model.trace_context import MAX_LINKS
from weir.schedules.register import Schedules
from weir.schedules.scheduler import Scheduler
from weir.spec.ir import ScheduleSpec, Timing
from weir.testing.clocks import ManualClock

PRODUCER_TRACE = "0af7651916cd43dd8448eb211c80319c"
PRODUCER = f"00-{PRODUCER_TRACE}-b7ad6b7169203331-01"


def chain(join: str) -> str:
    return f"""
    app A {{
      queue First {{ trace: {join}, enqueue: Second }}
      queue Second {{ trace: {join}, map_to: command Order.Ship {{ order: order }} }}
    }}
    """


async def push(house: House, queue: str, payload: Any, *, request: str | None = None, **item: Any) -> str:
    headers = {} if request is None else {"traceparent": request}
    items = [{"queue": queue, "payload": payload, **item}]
    answer = await house.client.post("/api/v1/push", json={"items": items}, headers=headers)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["items"][0]["id"])


async def shown(house: House, message_id: str) -> dict[str, Any]:
    answer = await house.client.get(f"/api/v1/messages/{message_id}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def about(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def ship(house: House) -> list[str]:
    """A handler that notes in which trace it runs."""
    seen: list[str] = []

    @house.commands.command("Order.Ship")
    async def handle(order: int) -> None:
        seen.append(f"{trace.get_current_span().get_span_context().trace_id:032x}")

    return seen


async def test_with_child_everything_from_a_push_to_a_chained_message_is_one_trace(
    house: House, exported: Exported
) -> None:
    await house.apply(chain("child"))
    seen = ship(house)
    async with house.working():
        await push(house, "First", {"order": 1}, request=PRODUCER)
        await until(lambda: exported.has("ack First", "ack Second"))
    sent, first = exported.span("send First"), exported.span("process First")
    chained, second = exported.span("send Second"), exported.span("process Second")
    assert sent.parent is not None
    assert sent.parent.span_id == 0xB7AD6B7169203331
    assert is_child(first, sent)
    assert is_child(chained, first)
    assert is_child(second, chained)
    assert is_child(exported.span("ack Second"), second)
    names = ("send First", "process First", "ack First", "send Second", "process Second", "ack Second")
    assert {trace_id(exported.span(name)) for name in names} == {PRODUCER_TRACE}
    assert seen == [PRODUCER_TRACE]


async def test_with_link_each_handler_begins_a_trace_that_links_to_what_made_its_message(
    house: House, exported: Exported
) -> None:
    await house.apply(chain("link"))
    seen = ship(house)
    async with house.working():
        await push(house, "First", {"order": 1})
        await until(lambda: exported.has("ack First", "ack Second"))
    sent, first = exported.span("send First"), exported.span("process First")
    chained, second = exported.span("send Second"), exported.span("process Second")
    assert sent.parent is None
    assert is_linked(first, sent)
    assert is_child(chained, first)
    assert is_linked(second, chained)
    assert seen == [trace_id(second)]
    assert is_linked(exported.span("receive Second"), chained)
    assert [link.context.span_id for link in exported.span("ack Second").links] == [
        link.context.span_id for link in second.links
    ]


async def test_spans_say_what_the_messaging_conventions_ask_for(house: House, exported: Exported) -> None:
    await house.apply(chain("link"))
    ship(house)
    async with house.working():
        message_id = await push(house, "First", {"order": 1})
        await until(lambda: exported.has("ack First", "receive First"))
    scope = house.environment
    wanted = {
        "send First": (SpanKind.PRODUCER, "send", "send"),
        "receive First": (SpanKind.CLIENT, "receive", "receive"),
        "process First": (SpanKind.CONSUMER, "process", "process"),
        "ack First": (SpanKind.CLIENT, "ack", "settle"),
    }
    for name, (kind, operation, type_) in wanted.items():
        span = exported.span(name)
        attributes = about(span)
        assert span.kind is kind
        assert attributes["messaging.system"] == "weir"
        assert attributes["messaging.operation.name"] == operation
        assert attributes["messaging.operation.type"] == type_
        assert attributes["messaging.destination.name"] == "First"
        assert attributes["messaging.message.id"] == message_id
        assert attributes["weir.environment"] == "/".join(scope.names)
        assert span.status.status_code is StatusCode.UNSET
    assert about(exported.span("receive First"))["messaging.client.id"] == "worker-1"


async def test_a_message_that_carries_a_trace_keeps_it_and_the_server_joins_it(
    house: House, exported: Exported
) -> None:
    await house.apply(chain("child"))
    ship(house)
    async with house.working():
        await push(house, "Second", {"order": 1}, headers={"traceparent": PRODUCER})
        await until(lambda: exported.has("ack Second"))
    assert exported.named("send Second") == []
    for name in ("enqueue Second", "process Second"):
        span = exported.span(name)
        assert span.parent is not None
        assert (trace_id(span), span.parent.span_id) == (PRODUCER_TRACE, 0xB7AD6B7169203331)
    assert exported.span("enqueue Second").kind is SpanKind.SERVER


@pytest.mark.parametrize("bad", ["", "00-zz", "00-" + "0" * 32 + "-b7ad6b7169203331-01", "ff" + PRODUCER[2:]])
async def test_a_trace_that_cannot_be_read_is_replaced(house: House, exported: Exported, bad: str) -> None:
    await house.apply("app A { queue Q {} }")
    message_id = await push(house, "Q", 1, headers={"traceparent": bad})
    span = exported.span("send Q")
    assert span.parent is None
    assert (await shown(house, message_id))["message"]["headers"]["traceparent"] == traceparent(span)


async def test_each_message_of_a_batch_is_created_and_the_send_links_to_all(
    house: House, exported: Exported
) -> None:
    await house.apply("app A { queue Q {} }")
    items = [{"queue": "Q", "payload": number} for number in range(3)]
    headers = {"traceparent": PRODUCER}
    answer = await house.client.post("/api/v1/push", json={"items": items}, headers=headers)
    ids = [item["id"] for item in answer.json()["items"]]
    created, sent = exported.named("create Q"), exported.span("send Q")
    assert [about(span)["messaging.message.id"] for span in created] == ids
    assert {trace_id(span) for span in (*created, sent)} == {PRODUCER_TRACE}
    assert [link.context.span_id for link in sent.links] == [span.context.span_id for span in created]
    assert about(sent)["messaging.batch.message_count"] == 3
    carried = [(await shown(house, one))["message"]["headers"]["traceparent"] for one in ids]
    assert carried == [traceparent(span) for span in created]


async def test_a_batch_that_no_span_can_link_to_shares_one_context(house: House, exported: Exported) -> None:
    await house.apply("app A { queue Q {} }")
    items = [{"queue": "Q", "payload": number} for number in range(129)]
    answer = await house.client.post("/api/v1/push", json={"items": items})
    assert exported.named("create Q") == []
    last = (await shown(house, answer.json()["items"][-1]["id"]))["message"]
    assert last["headers"]["traceparent"] == traceparent(exported.span("send Q"))


async def test_each_replay_of_a_large_batch_stays_in_the_trace_of_its_message(
    house: House, exported: Exported
) -> None:
    await house.apply("app A { queue Q {} }")
    traces = [f"{number:032x}" for number in range(1, 131)]
    replays = [
        NewMessage(payload=b"1", headers={"traceparent": f"00-{one}-b7ad6b7169203331-01"}) for one in traces
    ]
    await house.broker.enqueue(house.environment.queue("Q"), replays, entry=GateRule.PASS)
    found = await house.broker.dequeue(house.environment.queue("Q"), consumer="c", limit=200)
    assert [delivery.headers["traceparent"].split("-")[1] for delivery in found] == traces
    assert [trace_id(span) for span in exported.named("create Q")] == traces
    assert len(exported.span("send Q").links) == MAX_LINKS


async def test_a_refused_push_is_a_failed_span(house: House, exported: Exported) -> None:
    answer = await house.client.post("/api/v1/push", json={"items": [{"queue": "absent", "payload": 1}]})
    assert answer.status_code == 404
    span = exported.span("send absent")
    assert (span.status.status_code, about(span)["error.type"]) == (StatusCode.ERROR, "not_found")


async def test_headers_without_room_go_without_the_trace(house: House, exported: Exported) -> None:
    await house.apply("app A { queue Q {} }")
    full = {f"header-{number:02}": "x" * (4_096 - 9) for number in range(MAX_HEADER_BYTES // 4_096)}
    message_id = await push(house, "Q", 1, headers=full)
    assert (await shown(house, message_id))["message"]["headers"] == full
    assert exported.has("send Q")


async def test_a_pop_and_an_ack_over_http_are_spans_of_the_request_s_trace(
    house: House, exported: Exported
) -> None:
    await house.apply("app A { queue Q {} }")
    await push(house, "Q", 1)
    headers = {"traceparent": PRODUCER}
    popped = await house.client.post("/api/v1/pop", json={"queue": "Q"}, headers=headers)
    (message,) = popped.json()["messages"]
    lease = {name: message[name] for name in ("queue", "id", "lease")}
    assert (await house.client.post("/api/v1/ack", json=lease, headers=headers)).status_code == 200
    for name in ("receive Q", "ack Q"):
        assert trace_id(exported.span(name)) == PRODUCER_TRACE
    (link,) = exported.span("receive Q").links
    assert link.context.span_id == exported.span("send Q").context.span_id
    foreign = {**lease, "lease": "0" * 32}
    assert (await house.client.post("/api/v1/ack", json=foreign)).status_code == 409
    assert [about(span).get("error.type") for span in exported.named("ack Q")] == [None, "lapsed"]


async def test_a_handler_that_fails_is_a_failed_span_with_the_class_of_its_error(
    house: House, exported: Exported
) -> None:
    await house.apply(
        "app A { queue Q { delivery { max_attempts: 1 }, map_to: command Order.Ship { order: order } } }"
    )

    @house.commands.command("Order.Ship")
    def handle(order: int) -> None:
        raise KeyError("gone")

    async with house.working():
        await push(house, "Q", {"order": 1})
        await until(lambda: exported.has("nack Q"))
    span = exported.span("process Q")
    assert about(span)["error.type"] == "KeyError"
    assert span.status.status_code is StatusCode.ERROR
    assert is_child(exported.span("nack Q"), span)


async def test_messages_of_one_claim_are_settled_in_the_traces_of_their_own_handlers(
    house: House, exported: Exported
) -> None:
    await house.apply("app A { queue Q { map_to: command Order.Ship { order: order } } }")
    ship(house)
    ids = [await push(house, "Q", {"order": number}) for number in range(3)]
    async with house.working():
        await until(lambda: len(exported.named("ack Q")) == 3)
    assert len(exported.span("receive Q").links) == 3
    handlers = {about(span)["messaging.message.id"]: span for span in exported.named("process Q")}
    assert set(handlers) == set(ids)
    for settled in exported.named("ack Q"):
        assert is_child(settled, handlers[about(settled)["messaging.message.id"]])


async def test_a_handler_in_a_thread_runs_in_the_span_of_its_message(
    house: House, exported: Exported
) -> None:
    await house.apply("app A { queue Q { map_to: command Order.Ship { order: order } } }")
    seen: list[int] = []

    @house.commands.command("Order.Ship")
    def handle(order: int) -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)

    async with house.working():
        await push(house, "Q", {"order": 1})
        await until(lambda: exported.has("ack Q"))
    assert seen == [exported.span("process Q").context.span_id]


HOOKS = """
app A {{
  queue Q {{ trace: {join}, map_to: command Order.Ship {{ order: payload.order }} }}
  webhook Orders {{ queue: Q, verify_hmac {{ header: "X-Sig", secret: "HOOK" }} }}
}}
"""


@pytest.mark.parametrize("join", ["link", "child"])
async def test_a_webhook_continues_the_trace_of_its_sender(
    house: House, exported: Exported, join: str
) -> None:
    await house.apply(HOOKS.format(join=join))
    ship(house)
    async with house.working():
        answer = await house.hook("Orders", {"order": 1}, traceparent=PRODUCER)
        assert answer.status_code == 202
        await until(lambda: exported.has("ack Q"))
    sent, handled = exported.span("send Q"), exported.span("process Q")
    assert sent.parent is not None
    assert (trace_id(sent), sent.parent.span_id) == (PRODUCER_TRACE, 0xB7AD6B7169203331)
    assert is_child(handled, sent) if join == "child" else is_linked(handled, sent)
    assert (await shown(house, answer.json()["id"]))["trace_id"] == PRODUCER_TRACE


@pytest.mark.parametrize("works", [True, False])
async def test_a_webhook_that_runs_at_once_is_a_span_in_the_trace_of_its_sender(
    house: House, exported: Exported, works: bool
) -> None:
    await house.apply(
        """
        app A {
          webhook Now {
            verify_hmac { header: "X-Sig", secret: "HOOK" }
            map_to: command Order.Ship { order: payload.order }
          }
        }
        """
    )
    seen: list[int] = []

    @house.commands.command("Order.Ship")
    async def handle(order: int) -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)
        if not works:
            raise RuntimeError("closed")

    answer = await house.hook("Now", {"order": 1}, traceparent=PRODUCER)
    span = exported.span("process Now")
    assert trace_id(span) == PRODUCER_TRACE
    assert seen == [context(span).span_id]
    assert (answer.status_code, about(span).get("error.type")) == (
        (200, None) if works else (503, "unavailable")
    )
    assert about(span)["weir.webhook"] == "Now"


@pytest.mark.parametrize("status", [200, 500])
async def test_an_endpoint_gets_the_trace_of_the_request_to_it(
    house: House, exported: Exported, status: int
) -> None:
    async with receiving() as receiver:
        receiver.answer = plain(status)
        queue = f"trace: child, delivery {{ max_attempts: 1 }}, deliver: {receiver.url}"
        await house.apply(f"app A {{ queue Out {{ {queue} }} }}")
        async with house.working():
            await push(house, "Out", {"order": 1}, request=PRODUCER)
            await until(lambda: exported.has("ack Out" if status == 200 else "nack Out"))
        request = exported.span("POST")
        assert is_child(request, exported.span("process Out"))
        assert receiver.requests[0][0]["traceparent"] == traceparent(request)
        attributes = about(request)
        assert attributes["http.response.status_code"] == status
        assert attributes.get("error.type") == (None if status == 200 else "500")
        assert trace_id(request) == PRODUCER_TRACE


async def test_a_replay_and_the_copy_of_a_death_stay_in_the_trace_of_their_message(
    house: House, exported: Exported
) -> None:
    await house.apply(
        """
        app A {
          queue Q { trace: child, delivery { max_attempts: 1, dead_letter_queue: Dead },
                    map_to: command Order.Ship { order: order } }
          queue Dead { trace: child, map_to: command Order.Bury { } }
        }
        """
    )
    failing = [True]

    @house.commands.command("Order.Ship")
    async def handle(order: int) -> None:
        if failing[0]:
            raise RuntimeError("closed")

    @house.commands.command("Order.Bury")
    async def bury() -> None: ...

    async with house.working():
        message_id = await push(house, "Q", {"order": 1}, request=PRODUCER)
        await until(lambda: exported.has("nack Q", "ack Dead"))
        failing[0] = False
        path = f"/api/v1/dlq/letters/{message_id}/redrive"
        answer = await house.client.post(path, params={"queue": "Q"})
        assert answer.status_code == 200, answer.text
        await until(lambda: exported.has("ack Q"))
    copied, (first, again) = exported.span("send Dead"), exported.named("send Q")
    assert trace_id(copied) == PRODUCER_TRACE
    assert is_child(again, first)
    assert is_child(exported.named("process Q")[1], again)
    assert is_child(exported.span("process Dead"), copied)


async def test_a_tick_of_a_schedule_begins_a_trace(house: House, exported: Exported) -> None:
    await house.apply("app A { queue Q { trace: child, map_to: command Order.Ship { order: order } } }")
    seen, clock = ship(house), ManualClock(SystemClock().now_ms())
    assert house.front is not None
    assert house.tracer is not None
    timing, schedules = Timing(every_ms=60_000), Schedules(house.database, house.broker, clock=clock)
    await schedules.create(
        house.environment, ScheduleSpec(name="Every", queue="Q", timing=timing, payload={"order": 1})
    )
    clock.advance(60_000)
    pusher = TracedPusher(house.front, house.tracer)
    async with house.working():
        await Scheduler(house.database, house.broker, pusher, clock=clock).run_round()
        await until(lambda: exported.has("ack Q"))
    sent = exported.span("send Q")
    assert sent.parent is None
    assert is_child(exported.span("process Q"), sent)
    assert seen == [trace_id(sent)]


async def test_without_a_tracer_the_trace_of_a_message_is_handed_on_unchanged(
    environment: EnvironmentRef, database: Database, redis_url: str
) -> None:
    async with receiving() as receiver, open_house(environment, database, redis_url) as house:
        await house.apply(
            f"""
            app A {{
              queue First {{ enqueue: Out {{ order: order }} }}
              queue Out {{ deliver: {receiver.url} }}
            }}
            """
        )
        async with house.working():
            await push(house, "First", {"order": 1}, headers={"traceparent": PRODUCER})
            await until(lambda: len(receiver.requests) == 1)
        assert receiver.requests[0][0]["traceparent"] == PRODUCER
        assert (await shown(house, await push(house, "First", {"order": 2})))["trace_id"] is None
