"""Metric families for Prometheus: the counts of this process, and the queues at the moment of the request.

The number of series is bounded. Of the queues that a viewer may see, the `MAX_QUEUES` busiest get series of
their own. The totals of an environment include all of its queues; at most `MAX_ENVIRONMENTS` have totals.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from weir.api.dead_letter_metrics import dead_letter_families
from weir.api.drift_metrics import drift_families
from weir.api.services import Services
from weir.api.wire import Instruments, build_info
from weir.control.database import PoolState
from weir.control.principals import Principal, Role
from weir.errors import WeirError
from weir.ingress.receive import Receiver
from weir.model.message import QueueState
from weir.model.names import EnvironmentRef

MAX_QUEUES = 500
MAX_ENVIRONMENTS = 200

_SCOPE = ("organization", "project", "environment")
_COUNTERS = {
    "enqueued": ("weir_messages_enqueued", "Messages accepted."),
    "dequeued": ("weir_messages_delivered", "Messages handed out."),
    "acked": ("weir_messages_acked", "Messages done."),
    "nacked": ("weir_messages_nacked", "Messages that failed and were tried again."),
    "dead": ("weir_messages_dead_lettered", "Messages that went to the dead letters, expiry excepted."),
    "expired": ("weir_messages_expired", "Messages whose time ran out."),
    "cancelled": ("weir_messages_cancelled", "Messages that somebody cancelled."),
    "lapsed": ("weir_leases_lapsed", "Leases that lapsed."),
    "refused": ("weir_messages_refused", "Messages refused because the queue was full."),
}


class MetricsSnapshot(Collector):
    """The metrics of a process, as the collector that an encoder takes. It may be encoded in a thread."""

    def __init__(
        self, families: Iterable[Metric], *, registry: CollectorRegistry, states: list[QueueState]
    ) -> None:
        self._families = list(families)
        self._registry = registry
        self._states = states

    def collect(self) -> Iterator[Metric]:
        yield from self._families
        yield from self._registry.collect()
        if self._states:
            yield from queue_families(self._states)


async def collect_metrics(
    services: Services, instruments: Instruments, *, viewer: Principal | None
) -> MetricsSnapshot:
    """All metrics that this viewer may see."""
    families: list[Metric] = [build_info()]
    states: list[QueueState] = []
    for source in services.metric_sources:
        families.extend([family async for family in source()])
    families += pool_families({name: state() for name, state in services.pools.items()})
    if services.receiver is not None:
        families.append(services.receiver.counts.family())
    if services.receiver is not None and viewer is not None and viewer.role is Role.OPERATOR:
        # A count of everyone's webhooks would tell a tenant about the specs and secrets of its neighbours.
        families.append(_webhooks_without_secret(services.receiver))
    if viewer is not None:
        states = await _states(services, viewer)
        if services.dead_letters is not None:
            families.extend(await dead_letter_families(services.dead_letters, viewer))
        if services.warehouse is not None and viewer.role is Role.OPERATOR:
            families.extend(await drift_families(services.warehouse.audits))
    return MetricsSnapshot(families, registry=instruments.registry, states=states)


def pool_families(pools: Mapping[str, PoolState]) -> list[Metric]:
    """How busy the connections to PostgreSQL are, and how many wait for one."""
    families: list[Metric] = []
    for name, (text, figure) in _POOL_GAUGES.items():
        family = GaugeMetricFamily(f"weir_postgres_pool_{name}", text, labels=("pool",))
        for pool, state in pools.items():
            family.add_metric((pool,), figure(state))
        families.append(family)
    return families


_POOL_GAUGES: Mapping[str, tuple[str, Callable[[PoolState], int]]] = {
    "busy_connections": ("Connections to PostgreSQL in use.", lambda state: state.busy),
    "max_connections": ("Connections to PostgreSQL that there may be.", lambda state: state.max_size),
    "waiting": ("Callers that wait for a connection to PostgreSQL.", lambda state: state.waiting),
}


def _webhooks_without_secret(receiver: Receiver) -> Metric:
    count = sum(not receiver.secrets.can_verify(hook) for hook in receiver.hooks())
    return GaugeMetricFamily(
        "weir_webhooks_without_secret",
        "Webhooks that refuse everything, because none of their secrets is stored.",
        count,
    )


async def _states(services: Services, viewer: Principal) -> list[QueueState]:
    if services.tenants is None:
        return []
    try:
        found = await services.tenants.visible_to(viewer)
        states: list[QueueState] = []
        for environment in found[:MAX_ENVIRONMENTS]:
            states.extend(await services.broker.states(environment.ref))
    except WeirError:
        return []
    return states


def queue_families(states: list[QueueState]) -> list[Metric]:
    """Gauges and counters of the busiest queues, and of whole environments."""
    busiest = heapq.nlargest(MAX_QUEUES, states, key=_busy)
    return [*_gauges(busiest), *_totals(busiest), *_environment_gauges(states)]


def _busy(state: QueueState) -> tuple[int, int]:
    return (state.depth + state.running, state.odometers.get("enqueued", 0))


def _gauges(states: list[QueueState]) -> list[Metric]:
    depth = _gauge("weir_queue_depth", "Waiting messages.")
    running = _gauge("weir_inflight_messages", "Leased messages.")
    age = _gauge(
        "weir_queue_oldest_message_age_seconds", "Time since the oldest waiting message was available."
    )
    paused = _gauge("weir_queue_paused", "1 while the queue is paused.")
    limit = _gauge("weir_queue_concurrency_limit", "Concurrency limit; absent where there is none.")
    for state in states:
        labels = state.queue.names
        depth.add_metric(labels, state.depth)
        running.add_metric(labels, state.running)
        age.add_metric(labels, state.oldest_age_ms / 1000)
        paused.add_metric(labels, int(state.paused))
        if state.limit is not None:
            limit.add_metric(labels, state.limit)
    return [depth, running, age, paused, limit]


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=(*_SCOPE, "queue"))


def _totals(states: list[QueueState]) -> list[Metric]:
    families: list[Metric] = []
    for counter, (name, text) in _COUNTERS.items():
        family = CounterMetricFamily(name, text, labels=(*_SCOPE, "queue"))
        for state in states:
            family.add_metric(state.queue.names, state.odometers.get(counter, 0))
        families.append(family)
    return families


def _environment_gauges(states: list[QueueState]) -> list[Metric]:
    depth = GaugeMetricFamily("weir_environment_depth", "Waiting messages of an environment.", labels=_SCOPE)
    running = GaugeMetricFamily(
        "weir_environment_inflight_messages", "Leased messages of an environment.", labels=_SCOPE
    )
    newest: dict[EnvironmentRef, QueueState] = {state.queue.scope: state for state in states}
    for scope, state in newest.items():
        labels = scope.names
        depth.add_metric(labels, state.environment_depth)
        running.add_metric(labels, state.environment_running)
    return [depth, running]
