"""Syntax tree to IR: what each block means. Every mistake is noted; none stops the reading."""

from __future__ import annotations

from weir.spec.ir import (
    Action,
    AlertSpec,
    AppSpec,
    ChannelSpec,
    ConsumerSpec,
    DeliverTo,
    DeliveryPolicy,
    EnqueueTo,
    MapToCommand,
    MessageField,
    Ordering,
    QueueSpec,
    Retention,
    SignatureScheme,
    Verification,
    WebhookSpec,
)
from weir.spec.problems import nearest, one_of
from weir.spec.read import Notes, Path, Section, checked_name
from weir.spec.syntax import Condition, Entry, Kind, Scalar
from weir.spec.types import TYPE_NAMES, is_type

MAX_BODY_BYTES = 1024 * 1024


def build(app: Entry, notes: Notes) -> AppSpec:
    """The IR of an app; `notes` gathers what is wrong and where everything stands."""
    section = Section(app.body or (), what="app", path=(), notes=notes)
    spec = AppSpec(
        name=_label(app, "app", notes) or "app",
        concurrency=section.whole("concurrency", at_least=1),
        queues=tuple(_queue(entry, notes) for entry in _named(section, "queue")),
        webhooks=tuple(_webhook(entry, notes) for entry in _named(section, "webhook")),
        channels=tuple(_channel(entry, notes) for entry in _named(section, "channel")),
        alerts=tuple(_alert(entry, notes) for entry in _named(section, "alert")),
    )
    section.finish()
    return spec


def _named(section: Section, kind: str) -> list[Entry]:
    """The blocks of one kind, each with a name of its own."""
    seen: dict[str, Entry] = {}
    for entry in section.every(kind):
        name = _label(entry, kind, section.notes)
        if entry.body is None or entry.value is not None:
            section.notes.add(f"`{kind}` is a block; write `{kind} Name {{ … }}`", entry.key_span)
        elif name is not None and name in seen:
            first = seen[name].span.line
            section.notes.add(
                f"{kind} `{name}` is defined twice; the first one is in line {first}", entry.key_span
            )
        elif name is not None:
            seen[name] = entry
    return list(seen.values())


def _label(entry: Entry, kind: str, notes: Notes) -> str | None:
    if entry.label is None:
        notes.add(f"this {kind} has no name; write `{kind} Name {{ … }}`", entry.key_span)
        return None
    return checked_name(entry.label, what=kind, notes=notes)


def _section(entry: Entry, kind: str, notes: Notes, path: Path) -> tuple[str, Section]:
    label = entry.label
    name = str(label.value) if label is not None else ""
    notes.places[(*path, name)] = label.span if label is not None else entry.key_span
    return name, Section(entry.body or (), what=kind, path=(*path, name), notes=notes)


def _queue(entry: Entry, notes: Notes) -> QueueSpec:
    name, section = _section(entry, "queue", notes, ("queue",))
    default = QueueSpec(name=name)
    ordering = section.choice("ordering", list(Ordering))
    priority = section.whole("priority", at_most=9)
    window = section.duration_ms("idempotency_window", at_least_ms=1_000)
    spec = QueueSpec(
        name=name,
        ordering=Ordering(ordering) if ordering else default.ordering,
        retention=_retention(section),
        delivery=_delivery(section),
        concurrency=section.whole("concurrency", at_least=1),
        default_priority=default.default_priority if priority is None else priority,
        message_ttl_ms=section.duration_ms("message_ttl"),
        idempotency_window_ms=default.idempotency_window_ms if window is None else window,
        message_type=_message_type(section),
        action=_action(section),
    )
    section.finish()
    return spec


def _retention(parent: Section) -> Retention:
    section = parent.body("retention")
    if section is None:
        return Retention()
    age = section.duration_ms("max_age")
    spec = Retention(
        max_age_ms=Retention().max_age_ms if age is None else age,
        max_depth=section.whole("max_depth", at_least=1),
    )
    section.finish()
    return spec


def _delivery(parent: Section) -> DeliveryPolicy:
    section = parent.body("delivery")
    default = DeliveryPolicy()
    if section is None:
        return default
    attempts = section.whole("max_attempts", at_least=1, at_most=1_000)
    initial = section.duration_ms("initial_backoff", at_least_ms=0)
    longest = section.duration_ms("max_backoff", at_least_ms=0)
    jitter = section.ratio("jitter")
    lease = section.duration_ms("lease", at_least_ms=100)
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


def _message_type(parent: Section) -> tuple[MessageField, ...]:
    section = parent.body("message_type", what="message type")
    if section is None:
        return ()
    entry = parent.take("message_type")
    fields: dict[str, MessageField] = {}
    for item in (entry.body if entry else None) or ():
        field = _field(item, parent.notes)
        parent.notes.places[(*section.path, item.key)] = item.value.span if item.value else item.key_span
        if item.key in fields:
            parent.notes.add(f"field `{item.key}` stands twice; keep one", item.key_span)
        elif field is not None:
            fields[item.key] = field
    return tuple(fields.values())


def _field(item: Entry, notes: Notes) -> MessageField | None:
    value = item.value
    if not isinstance(value, Scalar) or value.kind not in (Kind.TYPE, Kind.WORD, Kind.STRING) or item.body:
        notes.add(f"field `{item.key}` needs a type, such as `string`", item.key_span)
        return None
    text = str(value.value)
    plain = text.removesuffix("?")
    if not is_type(plain):
        notes.add(
            f"`{plain}` is not a type; expected {one_of(TYPE_NAMES)}",
            value.span,
            hint=nearest(plain.partition("<")[0], TYPE_NAMES),
        )
        return None
    return MessageField(name=item.key, type=plain, optional=text.endswith("?"))


def _action(section: Section) -> Action | None:
    """What workers do with each message: at most one of the three forms."""
    found: list[Action | None] = [_map_to(section), _enqueue_to(section), _deliver_to(section)]
    actions = [action for action in found if action is not None]
    if len(actions) > 1:
        section.notes.add(
            f"a {section.what} has one of `map_to`, `enqueue` and `deliver`; keep one",
            section.notes.places[(*section.path, "enqueue" if found[1] else "deliver")],
        )
    return actions[0] if actions else None


def _map_to(section: Section) -> MapToCommand | None:
    entry = section.take("map_to")
    if entry is None:
        return None
    value = entry.value
    if not isinstance(value, Scalar) or value.kind is not Kind.PATH:
        section.notes.add(
            "`map_to` names a command; write `map_to: command Entity.Name { … }`", entry.key_span
        )
        return None
    entity, _, command = str(value.value).partition(".")
    return MapToCommand(entity=entity, command=command, inputs=_inputs(entry, section, "map_to"))


def _enqueue_to(section: Section) -> EnqueueTo | None:
    entry = section.take("enqueue")
    if entry is None:
        return None
    if not isinstance(entry.value, Scalar):
        section.notes.add("`enqueue` names a queue; write `enqueue: OtherQueue`", entry.key_span)
        return None
    queue = checked_name(entry.value, what="queue", notes=section.notes)
    return None if queue is None else EnqueueTo(queue=queue, inputs=_inputs(entry, section, "enqueue"))


def _deliver_to(parent: Section) -> DeliverTo | None:
    entry = parent.take("deliver")
    if entry is None:
        return None
    if not isinstance(entry.value, Scalar):
        parent.notes.add("`deliver` names an endpoint; write `deliver: https://host/path`", entry.key_span)
        return None
    section = Section(entry.body or (), what="delivery", path=(*parent.path, "deliver"), notes=parent.notes)
    secrets = section.texts("secret_env")
    timeout = section.duration_ms("timeout", at_least_ms=100)
    section.finish()
    return DeliverTo(
        url=str(entry.value.value),
        secret_env=secrets[0] if secrets else None,
        previous_secret_envs=secrets[1:],
        timeout_ms=DeliverTo(url="").timeout_ms if timeout is None else timeout,
    )


def _inputs(entry: Entry, section: Section, key: str) -> dict[str, str]:
    inputs: dict[str, str] = {}
    for item in entry.body or ():
        if not isinstance(item.value, Scalar) or item.value.kind not in (Kind.EXPRESSION, Kind.STRING):
            section.notes.add(f"input `{item.key}` needs an expression", item.key_span)
            continue
        if item.key in inputs:
            section.notes.add(f"input `{item.key}` stands twice; keep one", item.key_span)
        section.notes.places[(*section.path, key, item.key)] = item.value.span
        inputs[item.key] = str(item.value.value)
    return inputs


def _webhook(entry: Entry, notes: Notes) -> WebhookSpec:
    name, section = _section(entry, "webhook", notes, ("webhook",))
    limit = section.whole("max_body_bytes", at_least=1, at_most=MAX_BODY_BYTES)
    spec = WebhookSpec(
        name=name,
        queue=section.name("queue"),
        verification=_verification(section),
        action=_map_to(section),
        idempotency_header=section.text("idempotency_header"),
        key=section.text("key"),
        max_body_bytes=WebhookSpec(name="").max_body_bytes if limit is None else limit,
    )
    section.finish()
    return spec


def _verification(parent: Section) -> Verification | None:
    hmac = parent.body("verify_hmac")
    if hmac is not None:
        parent.take("verify")
        return _scheme(hmac, SignatureScheme.HMAC)
    entry = parent.take("verify")
    if entry is None:
        return None
    schemes = [scheme.value for scheme in SignatureScheme]
    label = entry.label
    if label is None or entry.body is None or label.value not in schemes:
        parent.notes.add(
            f"`verify` names a scheme; expected {one_of(schemes)}",
            label.span if label else entry.key_span,
            hint=nearest(str(label.value), schemes) if label else "",
        )
        return None
    section = Section(entry.body, what="verification", path=(*parent.path, "verify"), notes=parent.notes)
    return _scheme(section, SignatureScheme(str(label.value)))


def _scheme(section: Section, scheme: SignatureScheme) -> Verification:
    default = Verification(scheme=scheme, secret_envs=())
    tolerance = section.duration_ms("tolerance", at_least_ms=1_000)
    spec = Verification(
        scheme=scheme,
        secret_envs=section.texts("secret_env"),
        header=section.text("header"),
        prefix=section.text("prefix") or default.prefix,
        algorithm=section.choice("algorithm", ("sha256", "sha512", "sha1")) or default.algorithm,
        encoding=section.choice("encoding", ("hex", "base64")) or default.encoding,
        timestamp_header=section.text("timestamp_header"),
        tolerance_s=default.tolerance_s if tolerance is None else tolerance // 1_000,
    )
    section.finish()
    return spec


def _channel(entry: Entry, notes: Notes) -> ChannelSpec:
    name, section = _section(entry, "channel", notes, ("channel",))
    consumers = tuple(_consumer(item, section) for item in _named(section, "consumer"))
    spec = ChannelSpec(id=name, name=section.text("name") or name, consumers=consumers)
    section.finish()
    return spec


def _consumer(entry: Entry, parent: Section) -> ConsumerSpec:
    name, section = _section(entry, "consumer", parent.notes, (*parent.path, "consumer"))
    queue = section.name("queue")
    spec = ConsumerSpec(id=name, name=section.text("name") or name, queue=queue or name)
    section.finish()
    return spec


def _alert(entry: Entry, notes: Notes) -> AlertSpec:
    name, section = _section(entry, "alert", notes, ("alert",))
    condition = section.take("when")
    when = condition.value if condition else None
    if not isinstance(when, Condition):
        notes.add(f"alert `{name}` needs a condition; write `when: backlog > 1000`", entry.key_span)
    default = AlertSpec(name=name, metric="backlog", operator=">", threshold=0)
    window, cooldown = section.duration_ms("window"), section.duration_ms("cooldown", at_least_ms=0)
    resolve = section.flag("auto_resolve")
    spec = AlertSpec(
        name=name,
        metric=str(when.metric.value) if isinstance(when, Condition) else default.metric,
        operator=when.operator if isinstance(when, Condition) else default.operator,
        threshold=float(when.threshold.value) if isinstance(when, Condition) else default.threshold,
        queue=section.name("queue"),
        window_ms=default.window_ms if window is None else window,
        cooldown_ms=default.cooldown_ms if cooldown is None else cooldown,
        auto_resolve=default.auto_resolve if resolve is None else resolve,
        channels=section.texts("channels"),
    )
    section.finish()
    return spec
