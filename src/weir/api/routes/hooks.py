"""Webhooks: list them, and receive them at their short and long addresses.

A sender of webhooks has no token: the signature of the body authenticates it. An unknown webhook is answered
like a bad signature. The addresses are the sources' and stand in `weir.api.routes.compatibility`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import Response

from weir.api.auth import App, Reader, note_served
from weir.api.hot import HotRequest, decoded
from weir.api.limits import Limits
from weir.api.schemas.webhooks import WebhookList, WebhookView
from weir.api.services import Services, present
from weir.api.wire import Reply, note_holder
from weir.ingress.handshakes import permission
from weir.ingress.receive import ReceivedHook, Receiver
from weir.model.names import EnvironmentRef
from weir.spec.ir import MAX_WEBHOOK_BODY_BYTES
from weir.spec.snapshot import Hook

router = APIRouter(tags=["webhooks"])


@router.get("/api/v1/webhooks", operation_id="list_webhooks")
async def list_webhooks(access: Reader, services: App) -> WebhookList:
    """The webhooks of the environment, and which of their secrets are missing."""
    receiver: Receiver = present(services.receiver, "webhooks")
    found = [hook for hook in receiver.hooks() if hook.environment == access.environment]
    return WebhookList(items=[_view(receiver, hook) for hook in sorted(found, key=_name)])


def _name(hook: Hook) -> str:
    return hook.webhook.name


def _view(receiver: Receiver, hook: Hook) -> WebhookView:
    webhook, scope = hook.webhook, hook.environment
    is_short = receiver.find(webhook.name) == hook
    long = (scope.organization, scope.project, scope.environment, webhook.name)
    names = (webhook.name,) if is_short else long
    verification = webhook.verification
    return WebhookView(
        name=webhook.name,
        path="/".join(("/hook", *(quote(name, safe="") for name in names))),
        queue=webhook.queue,
        scheme=None if verification is None else verification.scheme.value,
        secrets=[] if verification is None else list(verification.secrets),
        missing_secrets=list(receiver.secrets.missing(hook)),
        accepts=receiver.secrets.can_verify(hook),
    )


async def receive(call: HotRequest) -> Reply:
    """Receive a webhook at its short address, on the hot path."""
    receiver: Receiver = present(call.services.receiver, "webhooks")
    hook = receiver.find(decoded(call.parameters["name"]))
    body = await call.body(_limits(call.services, hook))
    client = call.scope.get("client")
    found = await receiver.receive(
        hook,
        headers=call.headers,
        body=body,
        source_ip=client[0] if client else "",
        verified=partial(note_holder, call.scope),
    )
    if hook is not None:
        note_served(call.services, hook.environment)
    return Reply(body=found.body, status=found.status, headers=_headers(found))


async def handshake(call: HotRequest) -> Reply:
    """Answer the CloudEvents handshake: this address takes signed events from any sender."""
    call.enter()
    return Reply(body=b"", headers=permission(call.headers))


async def handshake_long(request: Request) -> Response:
    """Answer the CloudEvents handshake at the long address."""
    found = permission(request.headers)
    return Response(headers={name.decode("latin-1"): value.decode("latin-1") for name, value in found})


async def receive_long(
    organization: str, project: str, environment: str, name: str, request: Request, services: App
) -> Response:
    """Receive a signed webhook at its long address, which no other environment shares."""
    receiver: Receiver = present(services.receiver, "webhooks")
    scope = EnvironmentRef(organization=organization, project=project, environment=environment)
    headers = dict(request.headers.items())
    body = await request.body()
    source_ip = request.client.host if request.client else ""
    hook = receiver.find_in(scope, name)
    found = await receiver.receive(
        hook,
        headers=headers,
        body=body,
        source_ip=source_ip,
        verified=partial(note_holder, request.scope),
    )
    if hook is not None:
        note_served(services, hook.environment)
    return Response(
        found.body,
        status_code=found.status,
        media_type="application/json",
        headers={key.decode(): value.decode() for key, value in _headers(found)},
    )


def _limits(services: Services, hook: Hook | None) -> Limits:
    """How much of a body to read. For an open webhook it is the webhook's own limit. All others, unknown ones
    too, share one limit; their own is checked after the signature. So a limit does not tell a stranger which
    webhooks exist."""
    is_open = hook is not None and hook.webhook.verification is None
    most = hook.webhook.max_body_bytes if hook is not None and is_open else MAX_WEBHOOK_BODY_BYTES
    limits = services.limits
    return limits if most == limits.max_body_bytes else replace(limits, max_body_bytes=most)


def _headers(found: ReceivedHook) -> tuple[tuple[bytes, bytes], ...]:
    headers: list[tuple[bytes, bytes]] = []
    if found.replayed:
        headers.append((b"idempotency-replayed", b"true"))
    if found.location is not None:
        headers.append((b"location", found.location.encode()))
    return tuple(headers)
