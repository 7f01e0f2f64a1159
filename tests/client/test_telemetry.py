"""The client's spans and metrics, as an exporter of OpenTelemetry's own SDK gets them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from client.test_client import ACCEPTED, Script, client, document, problem
from weir import ApiError, AsyncWeir, Consumer, ReceivedMessage

ACKED = {"status": "acked"}


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What reached the exporters."""

    spans: InMemorySpanExporter
    reader: InMemoryMetricReader

    def span(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.spans.get_finished_spans() if span.name == name]
        return found

    def points(self) -> dict[str, list[tuple[Any, dict[str, Any]]]]:
        """Values or counts, with their attributes, by the name of the metric."""
        data = self.reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: [(_figure(point), dict(point.attributes)) for point in metric.data.data_points]
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


def _figure(point: Any) -> Any:
    return point.count if hasattr(point, "count") else point.value


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Exported:
    """An SDK for this test alone: what is set up for a whole process cannot be taken back."""
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(), MeterProvider(metric_readers=[reader])
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: tracers)
    monkeypatch.setitem(metrics.get_meter.__globals__, "get_meter_provider", lambda: meters)
    return Exported(spans=spans, reader=reader)


def answering(*documents: dict[str, Any]) -> AsyncWeir:
    answers = [httpx2.Response(201 if "items" in one else 200, json=one) for one in documents]
    return client(Script(*answers), telemetry=True)


async def test_a_push_is_a_producer_span_and_counts_what_it_sent(exported: Exported) -> None:
    async with answering(ACCEPTED) as weir:
        await weir.push("q", 1)
    span = exported.span("send q")
    assert span.kind is SpanKind.PRODUCER
    attributes = {
        "messaging.system": "weir",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "q",
    }
    assert dict(span.attributes or {}) == attributes
    points = exported.points()
    assert points["messaging.client.sent.messages"] == [(1, attributes)]
    assert points["messaging.client.operation.duration"] == [(1, attributes)]


async def test_the_message_carries_the_trace_of_its_push(exported: Exported) -> None:
    script = Script(httpx2.Response(201, json=ACCEPTED))
    async with client(script, telemetry=True) as weir:
        await weir.push("q", 1, headers={"mine": "kept"})
    context = exported.span("send q").context
    assert context is not None
    (body,) = script.bodies()
    (item,) = body["items"]
    assert item["headers"]["mine"] == "kept"
    assert item["headers"]["traceparent"].split("-")[1:3] == [
        f"{context.trace_id:032x}",
        f"{context.span_id:016x}",
    ]


async def test_a_pop_counts_the_messages_that_it_got(exported: Exported) -> None:
    async with answering({"messages": [document("m1"), document("m2")]}) as weir:
        assert len(await weir.pop("q", limit=10)) == 2
    assert exported.span("receive q").kind is SpanKind.CLIENT
    ((count, attributes),) = exported.points()["messaging.client.consumed.messages"]
    assert count == 2
    assert attributes["messaging.operation.type"] == "receive"


async def test_a_pop_that_got_nothing_counts_nothing(exported: Exported) -> None:
    async with answering({"messages": []}) as weir:
        assert await weir.pop("q") == []
    assert exported.span("receive q").kind is SpanKind.CLIENT
    assert "messaging.client.consumed.messages" not in exported.points()


async def test_a_handler_is_a_consumer_span_with_a_duration_and_its_ack_settles(exported: Exported) -> None:
    handled = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        handled.set()

    async with answering({"messages": [document("m1")]}, ACKED, {"messages": []}) as weir:
        consumer = Consumer(weir, "q", handle, concurrency=1)
        running = asyncio.create_task(consumer.run())
        async with asyncio.timeout(5):
            await handled.wait()
            consumer.stop()
            await running
    assert exported.span("process q").kind is SpanKind.CONSUMER
    assert (exported.span("ack q").attributes or {})["messaging.operation.type"] == "settle"
    ((count, attributes),) = exported.points()["messaging.process.duration"]
    assert (count, attributes["messaging.operation.name"]) == (1, "process")


PRODUCER_TRACE = "0af7651916cd43dd8448eb211c80319c"
CARRIED = {"traceparent": f"00-{PRODUCER_TRACE}-b7ad6b7169203331-01"}


async def consume_one(message: dict[str, Any], **options: Any) -> None:
    """Let a consumer handle one message, which is popped, and whose handler pushes another."""
    handled = asyncio.Event()

    async def handle(received: ReceivedMessage) -> None:
        await weir.push("next", 1)
        handled.set()

    async with answering({"messages": [message]}, ACCEPTED, ACKED, {"messages": []}) as weir:
        consumer = Consumer(weir, "q", handle, concurrency=1, **options)
        running = asyncio.create_task(consumer.run())
        async with asyncio.timeout(5):
            await handled.wait()
            consumer.stop()
            await running


@pytest.mark.parametrize("join", ["link", "child"])
async def test_a_handler_is_joined_to_the_trace_of_its_message(exported: Exported, join: str) -> None:
    await consume_one({**document("m1"), "headers": CARRIED}, trace=join)
    span, sent = exported.span("process q"), exported.span("send next")
    assert span.context is not None
    assert sent.context is not None
    links = [f"{link.context.trace_id:032x}" for link in span.links]
    if join == "child":
        assert (f"{span.context.trace_id:032x}", links) == (PRODUCER_TRACE, [])
    else:
        assert (span.parent, links) == (None, [PRODUCER_TRACE])
    assert sent.context.trace_id == span.context.trace_id


async def test_receiving_and_settling_link_to_what_made_the_message(exported: Exported) -> None:
    await consume_one({**document("m1"), "headers": CARRIED})
    (received, *_) = [span for span in exported.spans.get_finished_spans() if span.name == "receive q"]
    for span in (received, exported.span("ack q")):
        assert [f"{link.context.trace_id:032x}" for link in span.links] == [PRODUCER_TRACE]


async def test_a_message_without_a_trace_is_linked_to_nothing(exported: Exported) -> None:
    with trace.get_tracer("test").start_as_current_span("around"):
        await consume_one({**document("m1"), "headers": {"kind": "x"}}, trace="child")
    around, span = exported.span("around"), exported.span("process q")
    assert span.parent == around.context
    assert list(span.links) == []


async def test_another_word_for_the_join_is_refused() -> None:
    async with answering() as weir:
        with pytest.raises(ValueError, match="link, child"):
            Consumer(weir, "q", lambda message: asyncio.sleep(0), trace="parent")  # type: ignore[arg-type]


async def test_an_operation_that_failed_says_so_in_its_span_and_its_duration(exported: Exported) -> None:
    async with client(Script(problem(403, "forbidden")), telemetry=True) as weir:
        with pytest.raises(ApiError):
            await weir.push("q", 1)
    span = exported.span("send q")
    assert span.status.status_code is trace.StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "ApiError"
    ((_, attributes),) = exported.points()["messaging.client.operation.duration"]
    assert attributes["error.type"] == "ApiError"


async def test_without_the_switch_nothing_is_exported(exported: Exported) -> None:
    async with client(Script(httpx2.Response(201, json=ACCEPTED))) as weir:
        await weir.push("q", 1)
    assert exported.spans.get_finished_spans() == ()
    assert exported.reader.get_metrics_data() is None
