"""Receives a webhook: checks its signature, reads its events, and pushes them or runs its command."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Protocol

import orjson
from msgspec.structs import replace

from weir.control.secrets import SecretLookUp
from weir.errors import InvalidInput, TooLarge, Unauthenticated, Unavailable, WeirError
from weir.exchange.seam import PushAnswer, Pushed, Pusher, PushItem, Queued, Refused
from weir.ingress.handshakes import challenge_answer
from weir.ingress.incoming_events import IncomingEvent, events_of
from weir.ingress.outcome_counts import HookOutcomeCounts
from weir.ingress.push_batches import HookCoalescer
from weir.ingress.recent import RecentAnswers
from weir.ingress.signatures import verify
from weir.ingress.webhook_secrets import WebhookSecrets
from weir.model.beside_loop import beside_loop
from weir.model.clock import Clock, SystemClock
from weir.model.holders import Holder
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.receipts import HOOK, RECEIVED_AT, SOURCE_IP
from weir.spec.cel import compile_expression
from weir.spec.evaluation import evaluated, size_named
from weir.spec.ir import SignatureScheme, Verification
from weir.spec.snapshot import Hook, SpecReader
from weir.workers.variables import received_key

if TYPE_CHECKING:
    from weir.tracing.tracer import Tracer

# A stranger chooses the headers, and every message stores them.
MAX_HEADERS = 64
MAX_HEADER_CHARACTERS = 16_384
# Headers of the connection mean nothing later, and credentials and signatures must not reach consumers.
_NOT_KEPT = frozenset(
    (
        "accept",
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "cookie",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "stripe-signature",
        "te",
        "transfer-encoding",
        "upgrade",
        "webhook-signature",
        "x-hub-signature",
        "x-hub-signature-256",
        "x-pagerduty-signature",
        "x-slack-signature",
    )
)
_UNKNOWN = Verification(scheme=SignatureScheme.GITHUB, secrets=("unknown",))
_NOBODYS_SECRET = token_hex(32)
_STRANGER = "the webhook is unknown, or its signature does not hold"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedHook:
    """The answer to the sender."""

    status: int
    body: bytes
    replayed: bool = False
    location: str | None = None
    handshake: bool = False

    @property
    def outcome(self) -> str:
        """The outcome in one word, for the counts."""
        if self.handshake:
            return "handshake"
        if self.replayed:
            return "repeated"
        if self.location is not None:
            return "queued"
        return "accepted" if self.status == 202 else "processed"


class CommandRunner(Protocol):
    """Runs the command of a webhook that has no queue."""

    async def run(self, hook: Hook, event: IncomingEvent, about: Mapping[str, Any]) -> ReceivedHook: ...


class Receiver:
    """Receives webhooks. Whatever is sent, it raises only errors of the tree."""

    def __init__(
        self,
        specs: SpecReader,
        pusher: Pusher,
        *,
        secrets: SecretLookUp,
        commands: CommandRunner | None = None,
        clock: Clock | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self._specs = specs
        self._tracer = tracer
        self._coalescer = HookCoalescer(pusher)
        self.secrets = WebhookSecrets(secrets)
        self._commands = commands
        self._clock = clock or SystemClock()
        self.counts = HookOutcomeCounts()
        # A queued operation reaches the broker later; until then only this process knows the id of its
        # message.
        self._recent: RecentAnswers[PushAnswer] = RecentAnswers(
            keep=lambda answer: isinstance(answer, Queued)
        )

    def find(self, name: str) -> Hook | None:
        """The webhook at the short address."""
        return self._specs.snapshot.hooks.get(name)

    def find_in(self, environment: EnvironmentRef, name: str) -> Hook | None:
        """The webhook at the long address."""
        return self._specs.snapshot.hooks_by_environment.get((environment, name))

    def hooks(self) -> Iterable[Hook]:
        """Every webhook of every environment."""
        return self._specs.snapshot.hooks_by_environment.values()

    async def receive(
        self,
        hook: Hook | None,
        *,
        headers: Mapping[str, str],
        body: bytes,
        source_ip: str,
        verified: Callable[[Holder], None] = lambda _: None,
    ) -> ReceivedHook:
        """Answer one request. Unknown webhooks and bad signatures get the same refusal.

        `verified` is called with the holder of the webhook as soon as the signature is verified.
        """
        try:
            known = self._verify(hook, headers=headers, body=body)
            if known.webhook.verification is not None:
                verified(known.environment.holder)
            found = await self._receive(known, headers=headers, body=body, source_ip=source_ip)
        except WeirError as error:
            self.counts.count(hook, error.code)
            raise
        self.counts.count(hook, found.outcome)
        return found

    def _verify(self, hook: Hook | None, *, headers: Mapping[str, str], body: bytes) -> Hook:
        """The webhook, if this request may use it."""
        now_ms = self._clock.now_ms()
        if not self._authentic(hook, headers=headers, body=body, now_ms=now_ms) or hook is None:
            raise Unauthenticated(_STRANGER)
        return hook

    async def _receive(
        self, hook: Hook, *, headers: Mapping[str, str], body: bytes, source_ip: str
    ) -> ReceivedHook:
        now_ms = self._clock.now_ms()
        # After the signature: a stranger must not learn the limit of a webhook, or that it exists.
        if len(body) > hook.webhook.max_body_bytes:
            raise TooLarge(
                f"the body is over the limit of {hook.webhook.max_body_bytes} bytes here; send less at once"
            )
        # Before the events: a handshake is not work and must not reach the queue.
        challenge = await beside_loop(challenge_answer, len(body), hook.webhook, body)
        if challenge is not None:
            return ReceivedHook(status=200, body=challenge, handshake=True)
        events = await beside_loop(events_of, len(body), hook.webhook, headers, body)
        kept = _kept(headers)
        if hook.webhook.queue is None:
            return await self._run_command(hook, events, kept=kept, source_ip=source_ip, now_ms=now_ms)
        kept[HOOK] = hook.webhook.name
        kept[SOURCE_IP] = source_ip
        kept[RECEIVED_AT] = str(now_ms)
        items = [await self._item(hook, event, kept, source_ip=source_ip, now_ms=now_ms) for event in events]
        if len(items) == 1:
            return _accepted(events[0], *await self._push(hook, events[0], items[0]))
        return await self._push_batch(hook, events, items)

    def _authentic(self, hook: Hook | None, *, headers: Mapping[str, str], body: bytes, now_ms: int) -> bool:
        """Whether the signature is right."""
        # A webhook that does not exist or has no secret is checked like any other, with a secret that nobody
        # knows. So neither the answer nor the time tells a stranger which webhooks exist.
        verification = hook.webhook.verification if hook is not None else _UNKNOWN
        if verification is None:
            return True
        secrets = self.secrets.of(hook) if hook is not None else []
        holds = verify(
            verification, secrets=secrets or [_NOBODYS_SECRET], headers=headers, body=body, now_ms=now_ms
        )
        return holds and bool(secrets)

    async def _item(
        self, hook: Hook, event: IncomingEvent, headers: Mapping[str, str], *, source_ip: str, now_ms: int
    ) -> PushItem:
        webhook = hook.webhook
        assert webhook.queue is not None
        key = None
        if webhook.key is not None:
            about = _about(webhook.name, headers, source_ip=source_ip, now_ms=now_ms)
            key = await _ordering_key(webhook.key, hook, event.payload, about)
        return PushItem(
            queue=_queue(hook.environment, webhook.queue),
            message=NewMessage(
                payload=event.payload,
                headers=_typed(headers, event.media_type),
                key=key,
                idempotency_key=_key(webhook.name, event.id),
            ),
        )

    async def _push(self, hook: Hook, event: IncomingEvent, item: PushItem) -> tuple[PushAnswer, bool]:
        if event.id is None:
            return await self._send(item), False
        key = (hook.environment, hook.webhook.name, event.id)
        digest = hashlib.sha256(item.message.payload).digest()
        return await self._recent.run_once(key, digest=digest, first=lambda: self._push_first(item))

    async def _push_first(self, item: PushItem) -> PushAnswer:
        answer = await self._send(item)
        if isinstance(answer, Refused):
            # Raised, so that it is not kept: a retry may succeed.
            raise answer.error
        return answer

    async def _send(self, item: PushItem) -> PushAnswer:
        if self._tracer is None:
            return await self._coalescer.push(item)
        with self._tracer.forwarding(item.queue, [item.message]) as sent:
            answer = await self._coalescer.push(replace(item, message=sent.messages[0]))
            if isinstance(answer, Refused):
                sent.refuse(answer.error)
            return answer

    async def _push_batch(
        self, hook: Hook, events: list[IncomingEvent], items: list[PushItem]
    ) -> ReceivedHook:
        """Push each event by itself. One failure fails the request, but accepted events stay accepted."""
        answers = await asyncio.gather(
            *(self._push(hook, event, item) for event, item in zip(events, items, strict=True)),
            return_exceptions=True,
        )
        documents = []
        for event, answer in zip(events, answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            documents.append(_document(event, answer[0]))
        replayed = all(not isinstance(answer, BaseException) and _repeats(*answer) for answer in answers)
        body = orjson.dumps({"status": "accepted", "queued": True, "items": documents})
        return ReceivedHook(status=202, body=body, replayed=replayed)

    async def _run_command(
        self, hook: Hook, events: list[IncomingEvent], *, kept: Mapping[str, str], source_ip: str, now_ms: int
    ) -> ReceivedHook:
        if self._commands is None:
            raise Unavailable(
                f"webhook `{hook.webhook.name}` runs a command at once, and this server has none; start it "
                "with `--app`, or name a queue",
                retry_after_s=30,
            )
        if len(events) != 1:
            raise InvalidInput(
                "a webhook that runs at once takes one event at a time; name a queue for batches"
            )
        about = _about(hook.webhook.name, kept, source_ip=source_ip, now_ms=now_ms)
        if self._tracer is None:
            return await self._commands.run(hook, events[0], about)
        with self._tracer.running_webhook(hook.webhook.name, hook.environment, request=kept):
            return await self._commands.run(hook, events[0], about)


def _accepted(event: IncomingEvent, answer: PushAnswer, repeat: bool) -> ReceivedHook:
    document = {**_document(event, answer), "status": "accepted", "queued": True}
    location = f"/api/v1/operations/{answer.operation_id}" if isinstance(answer, Queued) else None
    return ReceivedHook(
        status=202, body=orjson.dumps(document), replayed=_repeats(answer, repeat), location=location
    )


def _document(event: IncomingEvent, answer: PushAnswer) -> dict[str, Any]:
    """The document of an answer, which is the same for the first request and for every repeat."""
    if isinstance(answer, Refused):
        raise answer.error
    document: dict[str, Any] = {} if answer.message_id is None else {"id": answer.message_id}
    return document if event.id is None else {**document, "idempotency_key": event.id}


def _repeats(answer: PushAnswer, repeat: bool) -> bool:
    return repeat or (isinstance(answer, Pushed) and answer.duplicate)


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that a message keeps, without credentials, signatures and headers of the connection."""
    kept: dict[str, str] = {}
    size = 0
    for name, value in headers.items():
        if name in _NOT_KEPT or name.startswith("weir-"):
            continue
        size += len(name) + len(value)
        if len(kept) == MAX_HEADERS or size > MAX_HEADER_CHARACTERS:
            break
        kept[name] = value
    return kept


def _typed(headers: Mapping[str, str], media_type: str) -> Mapping[str, str]:
    """The headers with the content type of this event, which in a batch differs from that of the request."""
    if headers.get("content-type") == media_type:
        return headers
    return {**headers, "content-type": media_type}


def _key(webhook: str, sender_id: str | None) -> str | None:
    """The idempotency key of an event; it names the webhook, because several may feed one queue."""
    if sender_id is None:
        return None
    key = f"{webhook}:{sender_id}"
    # 60 characters have at most 240 bytes, so most keys need no encoding here.
    if len(key) <= 60 or len(key.encode()) <= 255:
        return key
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


@lru_cache(maxsize=4_096)
def _queue(environment: EnvironmentRef, name: str) -> QueueRef:
    return environment.queue(name)


def _about(name: str, headers: Mapping[str, str], *, source_ip: str, now_ms: int) -> dict[str, Any]:
    """What expressions may know of a request beside its body."""
    return {"headers": dict(headers), "source_ip": source_ip, "received_at_ms": now_ms, "webhook": name}


async def _ordering_key(text: str, hook: Hook, body: bytes, about: Mapping[str, Any]) -> str:
    """The value of a webhook's `key` as the text that orders its queue."""
    compiled = compile_expression(text)
    return await evaluated(
        received_key,
        text,
        body,
        about,
        compiled=compiled,
        size=len(body) + size_named(compiled, about),
        owner=hook.environment.organization,
        what=f"the key of webhook `{hook.webhook.name}`",
    )
