"""The spans of a worker: one per handler and one per settlement. Only workers that write spans use it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from weir.model.message import Delivery, Settlement, Verb
from weir.model.trace_context import TRACE_HEADERS
from weir.outbound.delivery import DeliveryOutcome, DeliveryVerdict, OutboundRequest
from weir.spec.ir import QueueSpec
from weir.workers.held import HeldMessage
from weir.workers.outcome import Ending, HandlerOutcome

if TYPE_CHECKING:
    from weir.tracing.tracer import Tracer

_VERBS = {Ending.DONE: Verb.ACK, Ending.FAILED: Verb.NACK, Ending.REJECTED: Verb.DEAD_LETTER}
_ERROR_CLASS = re.compile(r"[^\W\d][\w.]*(?=:|$| \(in )")


async def trace_run(
    acting: Coroutine[Any, Any, HandlerOutcome], delivery: Delivery, spec: QueueSpec, *, tracer: Tracer
) -> HandlerOutcome:
    """Run the action of a message inside a span. Each message needs context variables of its own."""
    # Imported here, because OpenTelemetry is an extra.
    from weir.tracing.spans import fail_span

    try:
        with tracer.processing(delivery, mode=spec.trace) as span:
            outcome = await acting
            if outcome.ending is not Ending.DONE:
                fail_span(span, error_type_of(outcome), outcome.error)
            return outcome
    finally:
        # This has an effect only if the span could not begin, so that nobody awaited the coroutine.
        acting.close()


async def trace_request(
    tracer: Tracer,
    request: OutboundRequest,
    send: Callable[[OutboundRequest], Awaitable[DeliveryOutcome]],
) -> DeliveryOutcome:
    """Send a request inside a span, with the headers that carry the span."""
    from weir.tracing.spans import fail_span

    with tracer.requesting(request.url) as (span, headers):
        others = {name: value for name, value in request.headers.items() if name not in TRACE_HEADERS}
        outcome = await send(replace(request, headers={**others, **headers}))
        if outcome.status is not None:
            span.set_attribute("http.response.status_code", outcome.status)
        if outcome.verdict is not DeliveryVerdict.DELIVERED:
            error_type = outcome.verdict.value if outcome.status is None else str(outcome.status)
            fail_span(span, error_type, outcome.error or "")
        return outcome


def error_type_of(outcome: HandlerOutcome) -> str:
    """The class of the error that a handler raised; if there is none, how the handler ended."""
    found = _ERROR_CLASS.match(outcome.error)
    return found[0] if found else outcome.ending.value


def trace_settlement(
    tracer: Tracer, held: HeldMessage, outcome: HandlerOutcome, *, ending: str, now_ms: int
) -> None:
    """Write the span of a settlement that has its answer now."""
    tracer.note_settled(
        held.delivery,
        # Nothing was sent for a lost lease.
        None if outcome.ending is Ending.LOST else _VERBS[outcome.ending].value,
        took_ms=max(now_ms - held.finished_at_ms, 0),
        error_type=Settlement.LAPSED.value if ending == "lost" else None,
    )
