"""Writes the spans of one process: sending, receiving, processing and settling messages.

A message carries the context that it was made in. By the OpenTelemetry conventions that is the span `send` if
it is sent alone. In a batch each message has a span `create`, and carries the context of that span.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from opentelemetry.context import Context, attach
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    TracerProvider,
    set_span_in_context,
    use_span,
)

from weir.errors import WeirError
from weir.model.message import NO_HEADERS, Delivery, NewMessage
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.trace_context import MAX_LINKS
from weir.spec.ir import TraceMode
from weir.tracing.spans import (
    ROOT,
    SpanAbout,
    about_messages,
    about_request,
    about_webhook,
    ambient,
    context_of,
    context_with,
    fail_span,
    headers_with,
    links_to,
    made_in,
)

_NS_PER_MS = 1_000_000


class SentMessages:
    """Messages that are being sent, with the contexts that they carry, and the span of sending them."""

    __slots__ = ("_span", "messages")

    def __init__(self, messages: list[NewMessage], span: Span) -> None:
        self.messages = messages
        self._span = span

    def refuse(self, error: WeirError) -> None:
        """Mark the span as failed, because a message was refused."""
        fail_span(self._span, error.code, error.message)


class Tracer:
    """Writes spans through a provider of OpenTelemetry's SDK. A process has one, or none."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("weir")
        self._processed: dict[tuple[str, str], SpanContext] = {}
        """The span of each handler whose message is not settled yet, by message and lease."""

    @contextmanager
    def sending(
        self, queue: QueueRef, messages: Sequence[NewMessage], *, request: Mapping[str, str] = NO_HEADERS
    ) -> Iterator[SentMessages]:
        """Write the spans of messages that a producer sends; `request` has the headers of its request.

        Messages that already carry a context keep it: their producer wrote the span that made them.
        """
        carried = [context for message in messages if (context := context_of(message.headers)) is not None]
        if not carried:
            parent = context_of(request) or ambient() or ROOT
            # If a span cannot link to so many messages, they share its context.
            parents = [parent] * len(messages) if len(messages) <= MAX_LINKS else None
            with self._making(queue, messages, parents, parent=parent) as sent:
                yield sent
            return
        about = about_messages("enqueue", type="send", queue=queue, ids=[one.id for one in messages])
        links = links_to([message.headers for message in messages]) if len(messages) > 1 else []
        with self._span(replace(about, kind=SpanKind.SERVER), carried[0], links=links) as span:
            yield SentMessages([_carrying(message, span) for message in messages], span)

    @contextmanager
    def forwarding(self, queue: QueueRef, messages: Sequence[NewMessage]) -> Iterator[SentMessages]:
        """Write the spans of messages that come from others: chained, redriven, copied, received by a hook.

        Each belongs to the trace of the handler that runs now, or else to the trace that it carries.
        """
        running = ambient()
        parents = [running or context_of(message.headers) or ROOT for message in messages]
        with self._making(queue, messages, parents, parent=running or ROOT) as sent:
            yield sent

    @contextmanager
    def _making(
        self,
        queue: QueueRef,
        messages: Sequence[NewMessage],
        parents: Sequence[Context] | None,
        *,
        parent: Context,
    ) -> Iterator[SentMessages]:
        """Write the span that sends messages. Each message then carries the context that it was made in.

        `parents` are the parents of the messages' spans, `parent` is the parent of the sending span. Without
        `parents`, and for a single message, the sending span is also the one that made the messages.
        """
        about = about_messages("send", type="send", queue=queue, ids=[one.id for one in messages])
        if parents is None or len(messages) == 1:
            with self._span(about, parent if parents is None else parents[0]) as span:
                yield SentMessages([made_in(message, span) for message in messages], span)
            return
        made = [self._create(queue, message, at) for message, at in zip(messages, parents, strict=True)]
        links = links_to([message.headers for message in made])
        with self._span(replace(about, kind=SpanKind.CLIENT), parent, links=links) as span:
            yield SentMessages(made, span)

    def _create(self, queue: QueueRef, message: NewMessage, parent: Context) -> NewMessage:
        with self._span(
            about_messages("create", type="create", queue=queue, ids=[message.id]), parent
        ) as span:
            return made_in(message, span)

    def note_received(
        self,
        deliveries: Sequence[Delivery],
        *,
        consumer: str,
        started_ns: int,
        request: Mapping[str, str] = NO_HEADERS,
    ) -> None:
        """Write a span per queue of messages that were handed out."""
        by_queue: dict[QueueRef, list[Delivery]] = {}
        for delivery in deliveries:
            by_queue.setdefault(delivery.queue, []).append(delivery)
        for queue, found in by_queue.items():
            ids = [delivery.message_id for delivery in found]
            more = {"messaging.client.id": consumer}
            about = about_messages("receive", type="receive", queue=queue, ids=ids, more=more)
            links = links_to([delivery.headers for delivery in found])
            self._start(about, context_of(request) or ROOT, links=links, start_ns=started_ns).end()

    @contextmanager
    def processing(self, delivery: Delivery, *, mode: TraceMode) -> Iterator[Span]:
        """Write the span of a handler. It is the current span from then on.

        The handler needs context variables of its own, because the span stays current in them.
        """
        more = {"weir.attempt": delivery.attempt, "messaging.message.body.size": len(delivery.payload)}
        ids = [delivery.message_id]
        about = about_messages("process", type="process", queue=delivery.queue, ids=ids, more=more)
        parent = context_of(delivery.headers) if mode is TraceMode.CHILD else None
        links = links_to([delivery.headers]) if parent is None else []
        with self._span(about, parent or ROOT, links=links) as span:
            self._processed[delivery.message_id, delivery.lease.token] = span.get_span_context()
            attach(set_span_in_context(span))
            yield span

    def note_settled(
        self, delivery: Delivery, verb: str | None, *, took_ms: int, error_type: str | None = None
    ) -> None:
        """Write the span of a settlement that has its answer now. Without a verb there was no settlement."""
        handler = self._processed.pop((delivery.message_id, delivery.lease.token), None)
        if verb is None:
            return
        about = about_messages(verb, type="settle", queue=delivery.queue, ids=[delivery.message_id])
        parent = ROOT if handler is None else context_with(handler)
        started_ns = time.time_ns() - took_ms * _NS_PER_MS
        span = self._start(about, parent, links=links_to([delivery.headers]), start_ns=started_ns)
        if error_type is not None:
            fail_span(span, error_type)
        span.end()

    @contextmanager
    def settling(
        self, queue: QueueRef, verb: str, message_ids: Sequence[str], *, request: Mapping[str, str]
    ) -> Iterator[Span]:
        """Write the span of settlements that a consumer asks for over HTTP."""
        about = about_messages(verb, type="settle", queue=queue, ids=message_ids)
        with self._span(about, context_of(request) or ROOT) as span:
            yield span

    @contextmanager
    def running_webhook(
        self, name: str, environment: EnvironmentRef, *, request: Mapping[str, str]
    ) -> Iterator[None]:
        """Write the span of a command that a webhook runs before it answers, in the trace of its sender."""
        with (
            self._span(about_webhook(name, environment), context_of(request) or ROOT) as span,
            use_span(span, record_exception=False, set_status_on_exception=False),
        ):
            yield

    @contextmanager
    def requesting(self, url: str) -> Iterator[tuple[Span, Mapping[str, str]]]:
        """Write the span of an outbound POST; yields it with the headers that carry its context."""
        with self._span(about_request(url), ambient() or ROOT) as span:
            yield span, headers_with(NO_HEADERS, span.get_span_context())

    def _start(
        self, about: SpanAbout, parent: Context, *, links: Sequence[Link] = (), start_ns: int | None = None
    ) -> Span:
        return self._tracer.start_span(
            about.name,
            context=parent,
            kind=about.kind,
            attributes=about.attributes,
            links=links,
            start_time=start_ns,
        )

    @contextmanager
    def _span(self, about: SpanAbout, parent: Context, *, links: Sequence[Link] = ()) -> Iterator[Span]:
        """A span that ends with the block. An error that leaves the block is the span's error."""
        span = self._start(about, parent, links=links)
        try:
            yield span
        except BaseException as error:
            fail_span(
                span, error.code if isinstance(error, WeirError) else type(error).__qualname__, str(error)
            )
            raise
        finally:
            span.end()


def _carrying(message: NewMessage, span: Span) -> NewMessage:
    """The message; if it carries no context, with the context of the span."""
    return message if context_of(message.headers) is not None else made_in(message, span)
