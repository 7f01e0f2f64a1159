"""Spans and metrics by the OpenTelemetry messaging conventions, if they are switched on."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

from weir.model.trace_context import MAX_LINKS, MESSAGING_SYSTEM

TraceModeName = Literal["link", "child"]
"""Whether a handler begins a trace that links to its message's trace, or is a child in that trace."""

DURATION = "messaging.client.operation.duration"
SENT = "messaging.client.sent.messages"
CONSUMED = "messaging.client.consumed.messages"
PROCESSED = "messaging.process.duration"
# The bucket boundaries that the conventions advise, in seconds.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)

NO_HEADERS: Mapping[str, str] = {}

_TYPES = {"send": "send", "receive": "receive", "ack": "settle", "nack": "settle", "process": "process"}


class Silent:
    """Reports nothing."""

    @contextmanager
    def operation(
        self,
        name: str,
        *,
        queue: str | None = None,
        messages: int = 0,
        origin: Mapping[str, str] = NO_HEADERS,
        mode: TraceModeName = "link",
    ) -> Iterator[dict[str, str]]:
        yield {}

    def note_consumed(self, origins: Sequence[Mapping[str, str]], *, queue: str | None) -> None: ...


class OpenTelemetry:
    """Reports through the SDK that the application has set up."""

    def __init__(self) -> None:
        # Imported here, because `opentelemetry-api` is optional.
        from opentelemetry import metrics, propagate, trace
        from opentelemetry.context import Context

        self._trace = trace
        self._inject = propagate.inject
        # From an empty context: headers without a trace must not lead to the span that runs now.
        self._extract = partial(propagate.extract, context=Context())
        self._tracer = trace.get_tracer("weir.client")
        meter = metrics.get_meter("weir.client")
        self._durations = {
            name: meter.create_histogram(name, unit="s", explicit_bucket_boundaries_advisory=BUCKETS)
            for name in (DURATION, PROCESSED)
        }
        self._sent = meter.create_counter(SENT, unit="{message}")
        self._consumed = meter.create_counter(CONSUMED, unit="{message}")

    @contextmanager
    def operation(
        self,
        name: str,
        *,
        queue: str | None = None,
        messages: int = 0,
        origin: Mapping[str, str] = NO_HEADERS,
        mode: TraceModeName = "link",
    ) -> Iterator[dict[str, str]]:
        """Report one operation that sends `messages`; yields the headers that carry its trace.

        `origin` has the headers of the message that it is about.
        """
        attributes = _attributes(name, queue)
        started = time.perf_counter()
        is_child = mode == "child" and bool(self._links([origin]))
        with self._tracer.start_as_current_span(
            f"{name} {queue or MESSAGING_SYSTEM}",
            context=self._extract(origin) if is_child else None,
            kind=self._kind(name),
            attributes=attributes,
            links=() if is_child else self._links([origin]),
        ) as span:
            headers: dict[str, str] = {}
            if name == "send":
                self._inject(headers)
            try:
                yield headers
            except Exception as error:
                attributes["error.type"] = type(error).__name__
                span.set_attribute("error.type", attributes["error.type"])
                raise
            finally:
                duration = self._durations[PROCESSED if name == "process" else DURATION]
                duration.record(time.perf_counter() - started, attributes)
                if messages:
                    self._sent.add(messages, attributes)

    def note_consumed(self, origins: Sequence[Mapping[str, str]], *, queue: str | None) -> None:
        """Count the messages of the `receive` that runs, and link its span to the spans in their headers."""
        if origins:
            self._consumed.add(len(origins), _attributes("receive", queue))
        span = self._trace.get_current_span()
        for link in self._links(origins[:MAX_LINKS]):
            span.add_link(link.context)

    def _links(self, origins: Sequence[Mapping[str, str]]) -> list[Any]:
        carried = [self._extract(origin) for origin in origins if origin]
        contexts = [self._trace.get_current_span(one).get_span_context() for one in carried]
        return [self._trace.Link(context) for context in contexts if context.is_valid]

    def _kind(self, name: str) -> Any:
        kinds = self._trace.SpanKind
        return {"send": kinds.PRODUCER, "process": kinds.CONSUMER}.get(name, kinds.CLIENT)


def _attributes(name: str, queue: str | None) -> dict[str, Any]:
    attributes = {
        "messaging.system": MESSAGING_SYSTEM,
        "messaging.operation.name": name,
        "messaging.operation.type": _TYPES[name],
    }
    return attributes if queue is None else {**attributes, "messaging.destination.name": queue}


Telemetry = Silent | OpenTelemetry


def telemetry(enabled: bool) -> Telemetry:
    """The reporter: OpenTelemetry if it is enabled, else one that reports nothing."""
    return OpenTelemetry() if enabled else Silent()
