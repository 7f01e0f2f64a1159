"""Health and metrics of a process: `/livez`, `/readyz`, `/metrics`."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable

from fastapi import APIRouter, Request
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.responses import JSONResponse, Response

from weir.api.auth import App, authenticate
from weir.api.prometheus import collect_metrics
from weir.api.responses import problems
from weir.api.schemas.health import Alive, Readiness
from weir.api.services import ReadinessProbe, Services
from weir.api.wire import Instruments
from weir.control.principals import Principal, Role
from weir.model.shared_results import SharedResults

router = APIRouter(tags=["operation"])
_PROBE_S = 2.0
Encoder = Callable[[Collector], bytes]
_SCRAPER = Principal(token_id="metrics", role=Role.OPERATOR, organization=None)
"""The principal of a request that sends the setting `metrics_token`."""


@router.get("/livez", operation_id="livez")
@router.get("/healthz", operation_id="healthz")
async def livez() -> Alive:
    """The process runs. Asks no store."""
    return Alive(status="alive")


@router.get(
    "/readyz", operation_id="readyz", responses={503: {"model": Readiness, "description": "Not ready."}}
)
async def readyz(request: Request, services: App) -> Response:
    """Whether this process should get traffic, and what is wrong if not."""
    shared: SharedResults[dict[str, str]] = request.app.state.readiness
    checks = await shared.get(None, lambda: _checks(services), keep_s=services.limits.kept_readiness_s)
    failed = any(probe.essential and checks[probe.name] != "ok" for probe in services.probes)
    ready = not failed and not services.stopping.is_set()
    document = Readiness(ready=ready, checks=checks).model_dump()
    return JSONResponse(document, status_code=200 if ready else 503)


@router.get(
    "/metrics",
    operation_id="metrics",
    responses={200: {"description": "Prometheus text.", "content": {"text/plain": {}}}, **problems()},
    response_class=Response,
)
async def metrics(request: Request, services: App) -> Response:
    """Prometheus metrics. Without a credential: this process alone. With a token: its tenant's queues too.
    With the operator's token: everyone's."""
    state, viewer = request.app.state, await _viewer(request, services)
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    shared: SharedResults[bytes] = state.scrapes
    key = (viewer and (viewer.role, viewer.holder), content_type)
    text = await shared.get(
        key,
        lambda: _scrape(services, state.instruments, viewer=viewer, encode=encode),
        keep_s=services.limits.kept_scrape_s,
    )
    return Response(text, headers={"content-type": content_type})


async def _scrape(
    services: Services, instruments: Instruments, *, viewer: Principal | None, encode: Encoder
) -> bytes:
    """The metrics that the viewer may see. Their text can be megabytes, so it is written in a thread."""
    return await asyncio.to_thread(encode, await collect_metrics(services, instruments, viewer=viewer))


async def _viewer(request: Request, services: Services) -> Principal | None:
    """Who asks for metrics; None without a credential, and then no tenant is shown."""
    value = request.headers.get("authorization")
    if value is None:
        return None
    if services.metrics_token is not None and _same(value, f"Bearer {services.metrics_token}"):
        return _SCRAPER
    return await authenticate(request.headers, services.authenticator)


def _same(sent: str, expected: str) -> bool:
    return hmac.compare_digest(sent.encode(), expected.encode())


async def _checks(services: Services) -> dict[str, str]:
    """What each probe found, by its name."""
    results = await asyncio.gather(*(_check(probe) for probe in services.probes))
    return {probe.name: text for probe, text in zip(services.probes, results, strict=True)}


async def _check(probe: ReadinessProbe) -> str:
    try:
        async with asyncio.timeout(_PROBE_S):
            await probe.check()
    except TimeoutError:
        return f"no answer within {_PROBE_S:g} s"
    except Exception as error:
        return str(error) or type(error).__name__
    return "ok"
