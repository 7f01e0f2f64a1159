"""Spans that a process wrote, as an exporter of OpenTelemetry's own SDK gets them."""

from __future__ import annotations

from dataclasses import dataclass, field

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext

from weir.tracing.tracer import Tracer


@dataclass(frozen=True)
class Exported:
    """The spans of a tracer."""

    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)

    def tracer(self) -> Tracer:
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        return Tracer(provider)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def span(self, name: str) -> ReadableSpan:
        (found,) = self.named(name)
        return found

    def has(self, *names: str) -> bool:
        """Whether all these spans have ended."""
        return all(self.named(name) for name in names)


def context(span: ReadableSpan) -> SpanContext:
    assert span.context is not None
    return span.context


def trace_id(span: ReadableSpan) -> str:
    return f"{context(span).trace_id:032x}"


def traceparent(span: ReadableSpan) -> str:
    found = context(span)
    return f"00-{trace_id(span)}-{found.span_id:016x}-{found.trace_flags:02x}"


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return (
        span.parent is not None
        and span.parent.span_id == context(parent).span_id
        and trace_id(span) == trace_id(parent)
    )


def is_linked(span: ReadableSpan, made: ReadableSpan) -> bool:
    """Whether it begins a trace of its own, with one link to the span that made its message."""
    return (
        span.parent is None
        and trace_id(span) != trace_id(made)
        and [link.context.span_id for link in span.links] == [context(made).span_id]
    )
