"""Spans and metrics by the OpenTelemetry messaging conventions, if they are switched on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SYSTEM = "weir"
DURATION = "messaging.client.operation.duration"
SENT = "messaging.client.sent.messages"
CONSUMED = "messaging.client.consumed.messages"
PROCESSED = "messaging.process.duration"
# The bucket boundaries that the conventions advise, in seconds.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)

_TYPES = {"send": "send", "receive": "receive", "ack": "settle", "nack": "settle", "process": "process"}


class Silent:
    """Reports nothing."""

    @contextmanager
    def operation(
        self, name: str, *, queue: str | None = None, messages: int = 0
    ) -> Iterator[dict[str, str]]:
        yield {}

    def count_consumed(self, messages: int, *, queue: str | None) -> None: ...


class OpenTelemetry:
    """Reports through the SDK that the application has set up."""

    def __init__(self) -> None:
        # Imported here, because `opentelemetry-api` is optional.
        from opentelemetry import metrics, propagate, trace

        self._trace = trace
        self._inject = propagate.inject
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
        self, name: str, *, queue: str | None = None, messages: int = 0
    ) -> Iterator[dict[str, str]]:
        """Report one operation that sends `messages`; yields the headers that carry its trace."""
        attributes = _attributes(name, queue)
        started = time.perf_counter()
        with self._tracer.start_as_current_span(
            f"{name} {queue or SYSTEM}", kind=self._kind(name), attributes=attributes
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

    def count_consumed(self, messages: int, *, queue: str | None) -> None:
        """Count the messages of a `receive`. Their number is known only after it."""
        if messages:
            self._consumed.add(messages, _attributes("receive", queue))

    def _kind(self, name: str) -> Any:
        kinds = self._trace.SpanKind
        return {"send": kinds.PRODUCER, "process": kinds.CONSUMER}.get(name, kinds.CLIENT)


def _attributes(name: str, queue: str | None) -> dict[str, Any]:
    attributes = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": name,
        "messaging.operation.type": _TYPES[name],
    }
    return attributes if queue is None else {**attributes, "messaging.destination.name": queue}


Telemetry = Silent | OpenTelemetry


def telemetry(enabled: bool) -> Telemetry:
    """The reporter: OpenTelemetry if it is enabled, else one that reports nothing."""
    return OpenTelemetry() if enabled else Silent()
