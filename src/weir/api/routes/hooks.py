"""Webhooks: `/hook/{name}`, and the long address when several environments use one name.

Nobody authenticates here with a token: the signature of the body does. The body is read under the
webhook's own limit, and an unknown webhook is answered like a bad signature.
"""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter, Request
from starlette.responses import Response

from weir.api.auth import App, note_served
from weir.api.bodies import read_body
from weir.api.hot import Call, HotRoute, decoded
from weir.api.limits import Limits
from weir.api.reply import Reply
from weir.api.responses import problems
from weir.api.services import Services, present
from weir.ingress.receive import Received, Receiver
from weir.model.names import EnvironmentRef
from weir.spec.book import Hook

router = APIRouter(tags=["webhooks"])


async def receive(call: Call) -> Reply:
    """The hot path: the short address."""
    receiver: Receiver = present(call.services.receiver, "webhooks")
    hook = receiver.find(decoded(call.parameters["name"]))
    body = await read_body(call.headers, call.receive, _limits(call.services, hook))
    client = call.scope.get("client")
    found = await receiver.receive(
        hook, headers=call.headers, body=body, source_ip=client[0] if client else ""
    )
    if hook is not None:
        note_served(call.services, hook.environment)
    return Reply(body=found.body, status=found.status, headers=_headers(found))


async def handshake(call: Call) -> Reply:
    """The CloudEvents handshake: this address takes events from whoever asks, if they are signed."""
    origin = call.headers.get("webhook-request-origin", "*")
    allowed = origin.encode("latin-1", errors="replace")[:255]
    return Reply(body=b"", headers=((b"webhook-allowed-origin", allowed), (b"allow", b"POST, OPTIONS")))


@router.post(
    "/hook/{organization}/{project}/{environment}/{name}",
    operation_id="receive_webhook",
    status_code=202,
    responses=problems(401, 413, 415),
)
async def receive_long(
    organization: str, project: str, environment: str, name: str, request: Request, services: App
) -> Response:
    """A signed webhook at its long address, which no other environment shares."""
    receiver: Receiver = present(services.receiver, "webhooks")
    scope = EnvironmentRef(organization=organization, project=project, environment=environment)
    headers = dict(request.headers.items())
    body = await request.body()
    source_ip = request.client.host if request.client else ""
    hook = receiver.find_in(scope, name)
    found = await receiver.receive(hook, headers=headers, body=body, source_ip=source_ip)
    if hook is not None:
        note_served(services, hook.environment)
    return Response(
        found.body,
        status_code=found.status,
        media_type="application/json",
        headers={key.decode(): value.decode() for key, value in _headers(found)},
    )


def _limits(services: Services, hook: Hook | None) -> Limits:
    limits = services.limits
    if hook is None or hook.webhook.max_body_bytes == limits.max_body_bytes:
        return limits
    return replace(limits, max_body_bytes=hook.webhook.max_body_bytes)


def _headers(found: Received) -> tuple[tuple[bytes, bytes], ...]:
    headers: list[tuple[bytes, bytes]] = []
    if found.replayed:
        headers.append((b"idempotency-replayed", b"true"))
    if found.location is not None:
        headers.append((b"location", found.location.encode()))
    return tuple(headers)


ROUTES = (HotRoute(path="/hook/{name}", endpoints={"POST": receive, "OPTIONS": handshake}),)
