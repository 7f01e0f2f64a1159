"""Every route of the API in one place: add a router here and it is served, documented and fuzzed."""

from __future__ import annotations

from fastapi import APIRouter

from weir.api.hot import HotRoute
from weir.api.routes import (
    alerts,
    apps,
    channels,
    compatibility,
    deadletters,
    direct,
    endpoints,
    fairness,
    groups,
    health,
    history,
    hooks,
    marks,
    message_cancellations,
    message_touches,
    message_waits,
    messages,
    moved,
    operations,
    outcome_streams,
    outcomes,
    overview,
    pipeline,
    pop,
    push,
    queue_log,
    queues,
    schedules,
    search,
    secrets,
    settle,
    specs,
    tenants,
    tokens,
    workers,
)

HOT: tuple[HotRoute, ...] = (
    *push.ROUTES,
    *pop.ROUTES,
    *settle.ROUTES,
    *outcomes.ROUTES,
    *compatibility.ROUTES,
)
"""Plain endpoints; their descriptions stand in `weir.api.openapi_hot`."""

ROUTERS: tuple[APIRouter, ...] = (
    queues.router,
    history.router,
    fairness.router,
    workers.router,
    overview.router,
    search.router,
    alerts.router,
    marks.router,
    operations.router,
    pipeline.router,
    deadletters.router,
    channels.router,
    schedules.router,
    specs.router,
    apps.router,
    messages.router,
    message_waits.router,
    outcome_streams.router,
    message_touches.router,
    message_cancellations.router,
    queue_log.router,
    endpoints.router,
    groups.router,
    hooks.router,
    secrets.router,
    tenants.router,
    tokens.router,
    direct.router,
    health.router,
    *compatibility.ROUTERS,
    moved.router,
)
"""The control plane."""

STREAMS = (overview.LIVE_PATH, outcome_streams.STREAM_PATH)
"""Answers that go on until one side ends them: they have a capacity of their own."""
