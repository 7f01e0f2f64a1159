"""Syntax tree to IR, first part: apps and queues. Every mistake is noted, and reading goes on."""

from __future__ import annotations

from weir.model.limits import MAX_DELAY_MS, MAX_LEASE_MS, MAX_PRIORITY, MIN_LOG_MS
from weir.spec.build_actions import read_action
from weir.spec.build_schedules import read_schedule
from weir.spec.build_webhooks import read_alert, read_channel, read_webhook
from weir.spec.history import log_needs_lives, read_history
from weir.spec.ir import (
    AppSpec,
    DeliveryPolicy,
    MessageField,
    Ordering,
    QueueSpec,
    Retention,
    TraceMode,
)
from weir.spec.read import MAX_NUMBER, Notes, SpecSection, label_of, named_blocks, open_block
from weir.spec.spec_problems import one_of
from weir.spec.syntax import Scalar, SyntaxEntry, ValueKind
from weir.spec.types import TYPE_NAMES, is_type


def build(app: SyntaxEntry, notes: Notes) -> AppSpec:
    """The IR of an app. `notes` collects the mistakes and the source position of each part."""
    section = SpecSection(app.body or (), what="app", path=(), notes=notes)
    spec = AppSpec(
        name=label_of(app, "app", notes) or "app",
        concurrency=section.whole("concurrency", at_least=1),
        queues=tuple(_queue(entry, notes) for entry in named_blocks(section, "queue")),
        webhooks=tuple(read_webhook(entry, notes) for entry in named_blocks(section, "webhook")),
        channels=tuple(read_channel(entry, notes) for entry in named_blocks(section, "channel")),
        alerts=tuple(read_alert(entry, notes) for entry in named_blocks(section, "alert")),
        schedules=tuple(read_schedule(entry, notes) for entry in named_blocks(section, "schedule")),
    )
    section.finish()
    return spec


def _queue(entry: SyntaxEntry, notes: Notes) -> QueueSpec:
    name, section = open_block(entry, "queue", notes, ("queue",))
    default = QueueSpec(name=name)
    ordering = section.choice("ordering", list(Ordering))
    priority = section.whole("priority", at_most=MAX_PRIORITY)
    trace = section.choice("trace", list(TraceMode))
    window = section.duration_ms("idempotency_window", at_least_ms=1_000)
    history = _history(section, default.history)
    spec = QueueSpec(
        name=name,
        ordering=Ordering(ordering) if ordering else default.ordering,
        retention=_retention(section),
        delivery=_delivery(section),
        concurrency=section.whole("concurrency", at_least=1),
        priority=default.priority if priority is None else priority,
        message_ttl_ms=section.duration_ms("message_ttl"),
        idempotency_window_ms=default.idempotency_window_ms if window is None else window,
        trace=TraceMode(trace) if trace else default.trace,
        history=history,
        log_ms=_log_ms(section, history),
        message_type=_message_type(section),
        action=read_action(section),
    )
    section.finish()
    return spec


def _history(section: SpecSection, default: int) -> int:
    """N if one in N lives is kept: 1 for `all`, 0 for `none`."""
    kinds = (ValueKind.WORD, ValueKind.STRING, ValueKind.SHARE)
    value = section.scalar("history", kinds, expected="`all`, `none` or a share such as `1 in 10`")
    if value is None:
        return default
    found = read_history(str(value.value))
    if found is None:
        section.notes.add(
            f"`history` is {value.text or value.value}; expected `all`, `none` or a share from `1 in 2` to "
            f"`1 in {MAX_NUMBER}`",
            value.span,
        )
    return default if found is None else found


def _log_ms(section: SpecSection, history: int) -> int | None:
    """How long the log keeps messages; a log needs the life of every message."""
    log_ms = section.duration_ms("log", at_least_ms=MIN_LOG_MS)
    if log_ms is not None and history != 1:
        section.notes.add(log_needs_lives(history), section.notes.spans[(*section.path, "log")])
    return log_ms


def _retention(parent: SpecSection) -> Retention:
    section = parent.body("retention")
    if section is None:
        return Retention()
    spec = Retention(
        max_age_ms=section.duration_ms("max_age"),
        max_depth=section.whole("max_depth", at_least=1),
    )
    section.finish()
    return spec


def _delivery(parent: SpecSection) -> DeliveryPolicy:
    section = parent.body("delivery")
    default = DeliveryPolicy()
    if section is None:
        return default
    attempts = section.whole("max_attempts", at_least=1, at_most=1_000)
    initial = section.duration_ms("initial_backoff", at_least_ms=0, at_most_ms=MAX_DELAY_MS)
    longest = section.duration_ms("max_backoff", at_least_ms=0, at_most_ms=MAX_DELAY_MS)
    jitter = section.ratio("jitter")
    lease = section.duration_ms("lease", at_least_ms=100, at_most_ms=MAX_LEASE_MS)
    spec = DeliveryPolicy(
        max_attempts=default.max_attempts if attempts is None else attempts,
        initial_backoff_ms=default.initial_backoff_ms if initial is None else initial,
        max_backoff_ms=default.max_backoff_ms if longest is None else longest,
        jitter=default.jitter if jitter is None else jitter,
        lease_ms=default.lease_ms if lease is None else lease,
        handler_timeout_ms=section.duration_ms("handler_timeout"),
        dead_letter_queue=section.name("dead_letter_queue"),
    )
    section.finish()
    return spec


def _message_type(parent: SpecSection) -> tuple[MessageField, ...]:
    section = parent.body("message_type", what="message type")
    if section is None:
        return ()
    entry = parent.take("message_type")
    fields: dict[str, MessageField] = {}
    for item in (entry.body if entry else None) or ():
        field = _field(item, parent.notes)
        parent.notes.spans[(*section.path, item.key)] = item.value.span if item.value else item.key_span
        if item.key in fields:
            parent.notes.add(f"field `{item.key}` stands twice; keep one", item.key_span)
        elif field is not None:
            fields[item.key] = field
    return tuple(fields.values())


def _field(item: SyntaxEntry, notes: Notes) -> MessageField | None:
    value = item.value
    if (
        not isinstance(value, Scalar)
        or value.kind not in (ValueKind.TYPE, ValueKind.WORD, ValueKind.STRING)
        or item.body
    ):
        notes.add(f"field `{item.key}` needs a type, such as `string`", item.key_span)
        return None
    text = str(value.value)
    plain = text.removesuffix("?")
    if not is_type(plain):
        notes.add(
            f"`{plain}` is not a type; expected {one_of(TYPE_NAMES)}",
            value.span,
            near=(plain.partition("<")[0], TYPE_NAMES),
        )
        return None
    return MessageField(name=item.key, type=plain, optional=text.endswith("?"))
