"""Syntax tree to IR, third part: webhooks, channels and alerts."""

from __future__ import annotations

from weir.spec.build_actions import read_map_to
from weir.spec.ir import (
    MAX_WEBHOOK_BODY_BYTES,
    SCHEME_OPTIONS,
    AlertSpec,
    ChannelSpec,
    ConsumerSpec,
    SignatureScheme,
    Verification,
    WebhookSpec,
)
from weir.spec.read import Notes, SpecSection, named_blocks, open_block
from weir.spec.spec_problems import one_of
from weir.spec.syntax import Condition, SyntaxEntry


def read_webhook(entry: SyntaxEntry, notes: Notes) -> WebhookSpec:
    name, section = open_block(entry, "webhook", notes, ("webhook",))
    limit = section.whole("max_body_bytes", at_least=1, at_most=MAX_WEBHOOK_BODY_BYTES)
    spec = WebhookSpec(
        name=name,
        queue=section.name("queue"),
        verification=_verification(section),
        action=read_map_to(section),
        idempotency_header=section.text("idempotency_header"),
        key=section.text("key"),
        max_body_bytes=MAX_WEBHOOK_BODY_BYTES if limit is None else limit,
    )
    section.finish()
    return spec


def _verification(parent: SpecSection) -> Verification | None:
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
            near=(str(label.value), schemes) if label else None,
        )
        return None
    section = SpecSection(entry.body, what="verification", path=(*parent.path, "verify"), notes=parent.notes)
    return _scheme(section, SignatureScheme(str(label.value)))


def _scheme(section: SpecSection, scheme: SignatureScheme) -> Verification:
    default = Verification(scheme=scheme, secrets=())
    secrets, options = section.secret_names(), SCHEME_OPTIONS[scheme]
    header = section.text("header") if "header" in options else None
    algorithm = section.choice("algorithm", ("sha256", "sha512", "sha1")) if "algorithm" in options else None
    prefix = section.text("prefix") if "prefix" in options else None
    encoding = section.choice("encoding", ("hex", "base64")) if "encoding" in options else None
    stamp = section.text("timestamp_header") if "timestamp_header" in options else None
    tolerance = section.duration_ms("tolerance", at_least_ms=1_000) if "tolerance" in options else None
    section.finish()
    return Verification(
        scheme=scheme,
        secrets=secrets,
        header=header,
        prefix=prefix or default.prefix,
        algorithm=algorithm or default.algorithm,
        encoding=encoding or default.encoding,
        timestamp_header=stamp,
        tolerance_s=default.tolerance_s if tolerance is None else tolerance // 1_000,
    )


def read_channel(entry: SyntaxEntry, notes: Notes) -> ChannelSpec:
    name, section = open_block(entry, "channel", notes, ("channel",))
    consumers = tuple(_consumer(item, section) for item in named_blocks(section, "consumer"))
    spec = ChannelSpec(id=name, name=section.text("name") or name, consumers=consumers)
    section.finish()
    return spec


def _consumer(entry: SyntaxEntry, parent: SpecSection) -> ConsumerSpec:
    name, section = open_block(entry, "consumer", parent.notes, (*parent.path, "consumer"))
    queue = section.name("queue")
    spec = ConsumerSpec(id=name, name=section.text("name") or name, queue=queue or name)
    section.finish()
    return spec


def read_alert(entry: SyntaxEntry, notes: Notes) -> AlertSpec:
    name, section = open_block(entry, "alert", notes, ("alert",))
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
