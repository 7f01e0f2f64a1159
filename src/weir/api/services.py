"""Everything that the routes use, built once by the composition and typed by protocols.

A field that is None belongs to a room that this process does without; its routes answer 503.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from prometheus_client.metrics_core import Metric

from weir.alerts.services import AlertServices
from weir.api.idempotency import Idempotency
from weir.api.limits import Limits
from weir.api.open_requests import OpenRequests
from weir.broker.broker import Broker
from weir.broker.direct_users import DirectUsers
from weir.channels.channels import Channels
from weir.control.annotations import Annotations
from weir.control.app_register import AppRegister
from weir.control.audit_log import AuditLog
from weir.control.authentication import Authenticator
from weir.control.changes import Changes
from weir.control.database import PoolState
from weir.control.queue_definitions import QueueDefinitions
from weir.control.secrets import Secrets
from weir.control.spec_register import SpecRegister
from weir.control.system_events import SystemEventKind, SystemEvents
from weir.control.tenants import Tenants
from weir.control.tokens import Tokens
from weir.deadletters.services import DeadLetterServices
from weir.errors import ControlUnavailable, Unavailable
from weir.exchange.seam import Pusher, Settler
from weir.exchange.service import OperationService
from weir.ingress.receive import Receiver
from weir.model.clock import Clock, SystemClock
from weir.model.names import EnvironmentRef
from weir.pipeline.status import PipelineView
from weir.pipeline.switching import MetricsSwitching
from weir.schedules.register import Schedules
from weir.telemetry.presence import Presence, ServingProcess
from weir.warehouse.reading.warehouse import Warehouse
from weir.workers.timeline import Timelines

T = TypeVar("T")

MetricSource = Callable[[], AsyncIterator[Metric]]
"""Metric families that are computed when Prometheus asks."""


class Servers(Protocol):
    """The processes that served an environment; `telemetry.presence` implements it."""

    async def of(self, environment: EnvironmentRef, *, since_ms: int) -> list[ServingProcess]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessProbe:
    """One thing that must work before this process takes traffic; `check` raises if it does not."""

    name: str
    check: Callable[[], Awaitable[None]]
    essential: bool = True
    """False: reported, but its failure does not make the process unready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Everything that a process of the API uses."""

    broker: Broker
    authenticator: Authenticator
    pusher: Pusher
    settler: Settler
    limits: Limits = field(default_factory=Limits)
    clock: Clock = field(default_factory=SystemClock)
    idempotency: Idempotency = field(default_factory=Idempotency)
    tokens: Tokens | None = None
    direct_users: DirectUsers | None = None
    """The users of Redis for clients in direct mode."""
    tenants: Tenants | None = None
    definitions: QueueDefinitions | None = None
    changes: Changes | None = None
    """Changes the queues of an environment, in PostgreSQL and then in the broker."""
    audit: AuditLog | None = None
    annotations: Annotations | None = None
    warehouse: Warehouse | None = None
    alerts: AlertServices | None = None
    channels: Channels | None = None
    schedules: Schedules | None = None
    dead_letters: DeadLetterServices | None = None
    operations: OperationService | None = None
    events: SystemEvents | None = None
    """Tells every process what was changed here."""
    receiver: Receiver | None = None
    specs: SpecRegister | None = None
    secrets: Secrets | None = None
    apps: AppRegister | None = None
    timelines: Timelines | None = None
    presence: Presence | None = None
    servers: Servers | None = None
    probes: tuple[ReadinessProbe, ...] = ()
    metric_sources: tuple[MetricSource, ...] = ()
    pools: Mapping[str, Callable[[], PoolState]] = field(default_factory=dict)
    """The state of each pool of connections to PostgreSQL, by the name of the pool."""
    pipeline: Callable[[], Awaitable[PipelineView]] | None = None
    metrics_switching: MetricsSwitching | None = None
    trace_url: str | None = None
    """The page of a trace, with `{trace_id}` in it."""
    writes_spans: bool = False
    """Whether this process writes spans; only then does it note the trace of a request."""
    metrics_token: str | None = None
    """A credential of the operator: with it `/metrics` shows every tenant."""
    open_requests: OpenRequests = field(default_factory=OpenRequests)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the process shuts down: long polls answer at once."""


async def announce(
    services: Services, kind: SystemEventKind, environment: EnvironmentRef, **payload: object
) -> None:
    """Tell every process about a change, this one included.

    The change is already made, and every process looks for changes itself every half second. So a request
    does not fail if the event cannot be published.
    """
    if services.events is not None:
        with suppress(ControlUnavailable):
            await services.events.publish(kind, environment=environment, payload=payload)


def all_or_nothing(services: Services) -> AbstractAsyncContextManager[None]:
    """One transaction for everything that the block changes in PostgreSQL, its audit record included.

    What the block does elsewhere comes last, so that a refusal there undoes the rest.
    """
    return nullcontext() if services.audit is None else services.audit.together()


def present(service: T | None, name: str) -> T:
    """The service, or 503 if this process runs without it."""
    if service is None:
        raise Unavailable(f"this process runs without {name}; ask another one")
    return service
