"""Checks the IR: references, rules across several parts, and the types of input expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from urllib.parse import urlsplit

from weir.errors import InvalidInput
from weir.model.durations import MINUTE_MS
from weir.model.names import check_name, check_secret_name
from weir.model.wording import duration
from weir.spec.cel import compile_expression
from weir.spec.dead_letters import DEATH, circles, spelled_circle, unfit_fields, written_types
from weir.spec.infer import TypeMistake, infer
from weir.spec.ir import (
    RESULT,
    AppSpec,
    ChannelSpec,
    DeliverTo,
    EnqueueTo,
    MapToCommand,
    QueueSpec,
    ScheduleSpec,
    SignatureScheme,
    Verification,
    WebhookSpec,
    chain_of,
)
from weir.spec.message_values import conformed
from weir.spec.read import Notes, Path
from weir.spec.syntax import NOWHERE, SourceSpan
from weir.spec.types import ANY, STRING, TIME, Type, compatible, map_of, parse_type

RECEIVED: Mapping[str, Type] = {
    "payload": ANY,
    "headers": map_of(STRING),
    "source_ip": STRING,
    "received_at": TIME,
    "webhook": STRING,
}
"""The fields of a message from a webhook."""
NO_VARIABLES: Mapping[str, Type] = MappingProxyType({})

# A process that takes over from one that died or froze pushes its ticks again within about half of this.
MIN_WINDOW_MS = MINUTE_MS

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")


PartCheck = Callable[[AppSpec], Iterable[tuple[Path, str]]]
"""What another room refuses in an app: the path of each mistake, and what is wrong."""


def check(app: AppSpec, notes: Notes, more: Iterable[PartCheck] = ()) -> None:
    """Note every mistake that spans several parts of the app, and what other rooms refuse."""
    for one in more:
        for path, message in one(app):
            notes.add(message, _span_at(notes, path))
    queues = {queue.name: queue for queue in app.queues}
    for queue in app.queues:
        _check_queue(queue, queues, notes)
    _check_dead_letter_queues(queues, notes)
    _check_webhooks(app.webhooks, queues, notes)
    _check_channels(app.channels, queues, notes)
    for alert in app.alerts:
        if alert.queue is not None:
            _check_reference(alert.queue, queues, ("alert", alert.name, "queue"), notes)
    for schedule in app.schedules:
        _check_schedule(schedule, queues, notes)
    _check_circles(queues, notes)


def _check_channels(channels: Iterable[ChannelSpec], queues: Mapping[str, QueueSpec], notes: Notes) -> None:
    holders: dict[str, str] = {}
    for channel in channels:
        _check_name(channel.name, "channel", ("channel", channel.id, "name"), notes)
        for consumer in channel.consumers:
            path = ("channel", channel.id, "consumer", consumer.id)
            _check_name(consumer.name, "consumer", (*path, "name"), notes)
            _check_reference(consumer.queue, queues, (*path, "queue"), notes, fallback=path)
            if consumer.queue in holders:
                notes.add(
                    f"the queue `{consumer.queue}` belongs to a consumer of channel "
                    f"`{holders[consumer.queue]}` already; each consumer has its own",
                    _span_at(notes, (*path, "queue"), path),
                )
            holders[consumer.queue] = channel.id


def _check_name(name: str, what: str, path: Path, notes: Notes) -> None:
    try:
        check_name(name, what=what)
    except InvalidInput as error:
        notes.add(error.message, _span_at(notes, path))


def _span_at(notes: Notes, path: Path, fallback: Path = ()) -> SourceSpan:
    return notes.spans.get(path) or notes.spans.get(fallback) or notes.spans.get(path[:-1]) or NOWHERE


def _check_reference(
    name: str, queues: Mapping[str, QueueSpec], path: Path, notes: Notes, *, fallback: Path = ()
) -> None:
    if name not in queues:
        notes.add(f"there is no queue `{name}`", _span_at(notes, path, fallback), near=(name, queues))


def _check_queue(queue: QueueSpec, queues: Mapping[str, QueueSpec], notes: Notes) -> None:
    path = ("queue", queue.name)
    delivery = queue.delivery
    if delivery.initial_backoff_ms > delivery.max_backoff_ms:
        notes.add(
            f"`initial_backoff` ({duration(delivery.initial_backoff_ms)}) is over `max_backoff` "
            f"({duration(delivery.max_backoff_ms)}); lower one or raise the other",
            _span_at(notes, (*path, "delivery", "initial_backoff"), (*path, "delivery", "max_backoff")),
        )
    match queue.action:
        case MapToCommand(inputs=inputs, then=chain):
            _check_inputs(inputs, queue, (*path, "map_to"), notes)
            if chain is not None:
                _check_chain(chain, queue, queues, notes, more={RESULT: ANY})
        case EnqueueTo() as chain:
            _check_chain(chain, queue, queues, notes)
        case DeliverTo() as target:
            _check_target(target, (*path, "deliver"), notes)
        case None:
            pass


def _check_dead_letter_queues(queues: Mapping[str, QueueSpec], notes: Notes) -> None:
    """Each dead letter queue must exist, and its message type must fit the copy of a death."""
    unfit: dict[str, list[str]] = {}
    for queue in queues.values():
        name = queue.delivery.dead_letter_queue
        if name is None:
            continue
        where = ("queue", queue.name, "delivery", "dead_letter_queue")
        _check_reference(name, queues, where, notes)
        # Once for each target: thousands of queues may share one that has thousands of fields.
        if name in queues and name not in unfit:
            unfit[name] = unfit_fields(DEATH, queues[name])
        for field in unfit.get(name, ()):
            notes.add(
                f"queue `{name}` needs `{field}`; a death gives {written_types(DEATH)}",
                _span_at(notes, where),
            )


def variables_of(queue: QueueSpec) -> dict[str, Type]:
    """The variables of this queue's expressions."""
    fields = {field.name: parse_type(field.type) or ANY for field in queue.message_type}
    return {"message": map_of(ANY), **fields}


def _check_inputs(
    inputs: Mapping[str, str],
    queue: QueueSpec,
    path: Path,
    notes: Notes,
    more: Mapping[str, Type] = NO_VARIABLES,
) -> dict[str, Type]:
    open_world = not queue.message_type
    variables = {**variables_of(queue), **more}
    return {
        name: _check_type(text, variables, (*path, name), notes, open_world=open_world)
        for name, text in inputs.items()
    }


def _check_type(
    text: str, variables: Mapping[str, Type], path: Path, notes: Notes, *, open_world: bool = False
) -> Type:
    span = _span_at(notes, path)
    try:
        compile_expression(text)
        return infer(text, variables, open_world=open_world)
    except InvalidInput as error:
        place = _inside(span, text, error.extra.get("offset", 0), error.extra.get("length", 1))
        notes.add(error.message, place)
    except TypeMistake as mistake:
        notes.add(mistake.message, _inside(span, text, mistake.offset, mistake.length), near=mistake.near)
    return ANY


def _inside(span: SourceSpan, text: str, offset: int, length: int) -> SourceSpan:
    """The span of a part of an expression, or of all of it if it was written over several lines."""
    if span.end - span.start != len(text):
        return span
    start = span.start + offset
    return SourceSpan(span.line, span.column + offset, start, start + length)


def _check_chain(
    chain: EnqueueTo,
    queue: QueueSpec,
    queues: Mapping[str, QueueSpec],
    notes: Notes,
    more: Mapping[str, Type] = NO_VARIABLES,
) -> None:
    path = ("queue", queue.name, "enqueue")
    _check_reference(chain.queue, queues, path, notes)
    if more and any(field.name == RESULT for field in queue.message_type):
        notes.add(
            f"in `enqueue` behind `map_to`, `{RESULT}` is what the command returned; give the field of queue "
            f"`{queue.name}` another name",
            _span_at(notes, path),
        )
    given = _check_inputs(chain.inputs, queue, path, notes, more) if chain.inputs else variables_of(queue)
    target = queues.get(chain.queue)
    if target is None or not target.message_type or (not chain.inputs and not queue.message_type):
        return
    for field in target.message_type:
        if field.name not in given:
            if not field.optional:
                notes.add(
                    f"queue `{target.name}` needs `{field.name}`, which is not given", _span_at(notes, path)
                )
        elif not compatible(given[field.name], wanted := parse_type(field.type) or ANY):
            where = (*path, field.name)
            notes.add(
                f"`{field.name}` is {given[field.name]}; queue `{target.name}` takes {wanted}",
                _span_at(notes, where),
            )
    if chain.inputs:
        names = {field.name: field.type for field in target.message_type}
        for name in chain.inputs:
            if name not in names:
                notes.add(
                    f"queue `{target.name}` has no field `{name}`",
                    _span_at(notes, (*path, name)),
                    near=(name, names),
                )


def _check_target(target: DeliverTo, path: Path, notes: Notes) -> None:
    try:
        parts = urlsplit(target.url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        notes.add(f"`{target.url:.80}` is not an HTTP URL; write `https://host/path`", _span_at(notes, path))
    elif parts.username is not None:
        notes.add("a URL holds no user name or password; sign the deliveries instead", _span_at(notes, path))
    _check_secrets(target.secrets, (*path, "secret"), notes)


def _check_webhooks(webhooks: Iterable[WebhookSpec], queues: Mapping[str, QueueSpec], notes: Notes) -> None:
    unfit: dict[str, list[str]] = {}
    for webhook in webhooks:
        _check_webhook(webhook, queues, notes)
        target = queues.get(webhook.queue or "")
        if target is None:
            continue
        # A queue with a message type must accept the fields of a message from a webhook.
        if target.name not in unfit:
            unfit[target.name] = unfit_fields(RECEIVED, target)
        for field in unfit[target.name]:
            notes.add(
                f"queue `{target.name}` needs `{field}`; a webhook gives {written_types(RECEIVED)}",
                _span_at(notes, ("webhook", webhook.name, "queue")),
            )


def _check_webhook(webhook: WebhookSpec, queues: Mapping[str, QueueSpec], notes: Notes) -> None:
    path = ("webhook", webhook.name)
    if (webhook.queue is None) == (webhook.action is None):
        notes.add(
            f"webhook `{webhook.name}` needs either `queue`, or `map_to` to run at once; give one of them",
            _span_at(notes, path),
        )
    if webhook.queue is not None:
        _check_reference(webhook.queue, queues, (*path, "queue"), notes)
    if webhook.action is not None:
        for name, text in webhook.action.inputs.items():
            _check_type(text, RECEIVED, (*path, "map_to", name), notes)
    if webhook.key is not None:
        _check_type(webhook.key, RECEIVED, (*path, "key"), notes)
    _check_header(webhook.idempotency_header, (*path, "idempotency_header"), notes)
    if webhook.verification is not None:
        _check_verification(webhook.verification, path, notes)


def _check_schedule(schedule: ScheduleSpec, queues: Mapping[str, QueueSpec], notes: Notes) -> None:
    path = ("schedule", schedule.name)
    _check_reference(schedule.queue, queues, (*path, "queue"), notes)
    if schedule.queue not in queues:
        return
    for check, key in ((check_remembers, "queue"), (check_takes_payload, "payload")):
        try:
            check(schedule, queues[schedule.queue])
        except InvalidInput as error:
            notes.add(error.message, _span_at(notes, (*path, key), (*path, "queue")))


def check_remembers(_: ScheduleSpec, queue: QueueSpec) -> None:
    """InvalidInput if a queue forgets idempotency keys too soon for a schedule."""
    if queue.idempotency_window_ms < MIN_WINDOW_MS:
        raise InvalidInput(
            f"queue `{queue.name}` remembers idempotency keys for {duration(queue.idempotency_window_ms)}; a "
            f"schedule needs an `idempotency_window` of at least {duration(MIN_WINDOW_MS)}, "
            "or a tick could come twice"
        )


def check_takes_payload(schedule: ScheduleSpec, queue: QueueSpec) -> None:
    """InvalidInput if the payload of a schedule does not fit the message type of its queue."""
    if queue.message_type:
        values = schedule.payload if isinstance(schedule.payload, dict) else {}
        conformed(queue.message_type, values, what=f"the payload for queue `{queue.name}`")


def _check_verification(verification: Verification, path: Path, notes: Notes) -> None:
    key = "verify_hmac" if verification.scheme is SignatureScheme.HMAC else "verify"
    where = (*path, key)
    if not verification.secrets:
        notes.add(
            f"`{key}` needs `secret`, the name of a secret that `weir secret set` stores",
            _span_at(notes, where, path),
        )
    _check_secrets(verification.secrets, (*where, "secret"), notes)
    if verification.scheme in (SignatureScheme.HMAC, SignatureScheme.GENERIC) and verification.header is None:
        notes.add(f"`{key}` needs `header`, where the signature stands", _span_at(notes, where, path))
    _check_header(verification.header, (*where, "header"), notes)
    _check_header(verification.timestamp_header, (*where, "timestamp_header"), notes)


def _check_secrets(names: Iterable[str], path: Path, notes: Notes) -> None:
    for name in names:
        try:
            check_secret_name(name)
        except InvalidInput as error:
            notes.add(error.message, _span_at(notes, path))


def _check_header(name: str | None, path: Path, notes: Notes) -> None:
    if name is not None and not _HEADER_NAME.fullmatch(name):
        notes.add(f"`{name:.80}` is not the name of a header", _span_at(notes, path))


def _check_circles(queues: Mapping[str, QueueSpec], notes: Notes) -> None:
    """Chains and dead letter queues must not form a circle, also not together."""
    for circle in circles(queues):
        first, second = circle[:2]
        chained = (chain := chain_of(queues[first].action)) is not None and chain.queue == second
        key = ("enqueue",) if chained else ("delivery", "dead_letter_queue")
        notes.add(spelled_circle(circle), _span_at(notes, ("queue", first, *key)))
