"""Writes spans of pushes and settlements. Only a process that writes spans uses these wrappers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from msgspec.structs import replace

from weir.exchange.seam import (
    PushAnswer,
    Pusher,
    PushItem,
    Refused,
    SettleAnswer,
    Settled,
    SettleItem,
    Settler,
)
from weir.model.message import Settlement, Verb
from weir.model.names import QueueRef
from weir.tracing.requests import REQUEST_TRACE

if TYPE_CHECKING:
    from weir.tracing.tracer import SentMessages, Tracer


class TracedPusher:
    """A `Pusher` whose messages carry the trace that they were pushed in."""

    def __init__(self, inner: Pusher, tracer: Tracer) -> None:
        self._inner = inner
        self._tracer = tracer

    async def push(self, items: Sequence[PushItem]) -> list[PushAnswer]:
        places: dict[QueueRef, list[int]] = defaultdict(list)
        for at, item in enumerate(items):
            places[item.queue].append(at)
        traced = list(items)
        with ExitStack() as stack:
            sent: dict[QueueRef, SentMessages] = {}
            for queue, found in places.items():
                messages = [items[at].message for at in found]
                sending = self._tracer.sending(queue, messages, request=REQUEST_TRACE.get())
                sent[queue] = stack.enter_context(sending)
                for at, message in zip(found, sent[queue].messages, strict=True):
                    traced[at] = replace(items[at], message=message)
            answers = await self._inner.push(traced)
            for item, answer in zip(items, answers, strict=True):
                if isinstance(answer, Refused):
                    sent[item.queue].refuse(answer.error)
        return answers


class TracedSettler:
    """A `Settler` with a span per request, queue and verb."""

    def __init__(self, inner: Settler, tracer: Tracer) -> None:
        self._inner = inner
        self._tracer = tracer

    async def settle(self, items: Sequence[SettleItem]) -> list[SettleAnswer]:
        # Imported here, because OpenTelemetry is an extra.
        from weir.tracing.spans import fail_span

        groups: dict[tuple[QueueRef, Verb], list[str]] = defaultdict(list)
        for item in items:
            groups[item.lease.queue, item.verb].append(item.lease.message_id)
        with ExitStack() as stack:
            spans = {
                (queue, verb): stack.enter_context(
                    self._tracer.settling(queue, verb.value, ids, request=REQUEST_TRACE.get())
                )
                for (queue, verb), ids in groups.items()
            }
            answers = await self._inner.settle(items)
            for item, answer in zip(items, answers, strict=True):
                error_type = _error_type(answer)
                if error_type is not None:
                    fail_span(spans[item.lease.queue, item.verb], error_type)
        return answers


def _error_type(answer: SettleAnswer) -> str | None:
    if isinstance(answer, Refused):
        return answer.error.code
    lapsed = isinstance(answer, Settled) and answer.outcome is Settlement.LAPSED
    return Settlement.LAPSED.value if lapsed else None
