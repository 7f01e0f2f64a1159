"""Spans of messages: how they are named, what they say, and the traces that messages carry in headers.

This module imports OpenTelemetry, so only processes that write spans import it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from msgspec.structs import replace
from opentelemetry import trace
from opentelemetry.context import Context, get_current
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from weir.model.message import NewMessage, headers_fit
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.trace_context import MAX_LINKS, MESSAGING_SYSTEM, TRACE_HEADERS, TRACEPARENT, TRACESTATE

MAX_ERROR_CHARACTERS = 1_000
ROOT = Context()
"""The context without a span: a span that begins in it begins a trace."""
_KINDS = {
    "create": SpanKind.PRODUCER,
    "send": SpanKind.PRODUCER,
    "receive": SpanKind.CLIENT,
    "process": SpanKind.CONSUMER,
    "settle": SpanKind.CLIENT,
}
_PROPAGATOR = TraceContextTextMapPropagator()


def context_of(headers: Mapping[str, str]) -> Context | None:
    """The context that headers carry; None if they carry none."""
    traceparent = headers.get(TRACEPARENT)
    return None if traceparent is None else _context(traceparent, headers.get(TRACESTATE, ""))


@lru_cache(maxsize=1_024)
def _context(traceparent: str, tracestate: str) -> Context | None:
    """Cached, because a worker asks three times per message, and reading a context takes 10 to 20 us."""
    found = _PROPAGATOR.extract({TRACEPARENT: traceparent, TRACESTATE: tracestate}, context=ROOT)
    return found if trace.get_current_span(found).get_span_context().is_valid else None


def links_to(carriers: Sequence[Mapping[str, str]]) -> list[Link]:
    """Links to the contexts that messages were made in, as many as a span keeps."""
    found = [context for headers in carriers[:MAX_LINKS] if (context := context_of(headers)) is not None]
    return [Link(trace.get_current_span(context).get_span_context()) for context in found]


def ambient() -> Context | None:
    """The context of the span that runs now; None if none runs."""
    context = get_current()
    return context if trace.get_current_span(context).get_span_context().is_valid else None


def context_with(span: SpanContext) -> Context:
    """The context in which this span, which may have ended, is the current one."""
    return trace.set_span_in_context(trace.NonRecordingSpan(span), ROOT)


def headers_with(message_headers: Mapping[str, str], span: SpanContext) -> Mapping[str, str]:
    """The headers with the context of a span in place of an older context; unchanged if it does not fit."""
    carried: dict[str, str] = {}
    _PROPAGATOR.inject(carried, context=context_with(span))
    own = {name: value for name, value in message_headers.items() if name not in TRACE_HEADERS}
    both = {**own, **carried}
    # If the trace does not fit, the message goes without it: the message matters more.
    return both if headers_fit(both) else message_headers


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanAbout:
    """The name, the kind and the attributes of a span."""

    name: str
    kind: SpanKind
    attributes: Mapping[str, AttributeValue]


def about_messages(
    operation: str,
    *,
    type: str,  # noqa: A002 - the word of the conventions
    queue: QueueRef,
    ids: Sequence[str],
    more: Mapping[str, AttributeValue] | None = None,
) -> SpanAbout:
    """A span about some messages of one queue, by the conventions."""
    attributes: dict[str, AttributeValue] = {
        "messaging.system": MESSAGING_SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": type,
        "messaging.destination.name": queue.queue,
        "weir.environment": "/".join(queue.names[:3]),
        **(more or {}),
    }
    if len(ids) == 1:
        attributes["messaging.message.id"] = ids[0]
    else:
        attributes["messaging.batch.message_count"] = len(ids)
    return SpanAbout(name=f"{operation} {queue.queue}", kind=_KINDS[type], attributes=attributes)


def about_webhook(name: str, environment: EnvironmentRef) -> SpanAbout:
    """A span about a command that a webhook runs before it answers."""
    attributes: dict[str, AttributeValue] = {
        "messaging.system": MESSAGING_SYSTEM,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "weir.environment": "/".join(environment.names),
        "weir.webhook": name,
    }
    return SpanAbout(name=f"process {name}", kind=SpanKind.SERVER, attributes=attributes)


def about_request(url: str) -> SpanAbout:
    """A span about an outbound POST."""
    parts = urlsplit(url)
    attributes: dict[str, AttributeValue] = {
        "http.request.method": "POST",
        # Without user, password and query, which may be secrets.
        "url.full": f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}",
        "server.address": parts.hostname or "",
    }
    return SpanAbout(name="POST", kind=SpanKind.CLIENT, attributes=attributes)


def fail_span(span: Span, error_type: str, description: str = "") -> None:
    """Mark a span as failed."""
    span.set_attribute("error.type", error_type)
    span.set_status(Status(StatusCode.ERROR, description[:MAX_ERROR_CHARACTERS] or None))


def made_in(message: NewMessage, span: Span) -> NewMessage:
    """The message with the context of the span that made it."""
    return replace(message, headers=headers_with(message.headers, span.get_span_context()))
