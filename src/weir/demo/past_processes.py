"""Simulates what the API and the shop's worker reported before the demo started."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from random import Random

from weir.demo.past_events import PastEvent
from weir.demo.scenario import SHOP, TENANTS
from weir.model.durations import DAY_MS, HOUR_MS, MINUTE_MS
from weir.redis_client import connect
from weir.telemetry.codec import MetricEvent
from weir.telemetry.presence import Presence
from weir.telemetry.sampler import LAGS_PER_EVENT, SAMPLES_PER_FLUSH, ProcessIdentity

CONCURRENCY = 16
DEPLOYED_AGO_MS = 6 * MINUTE_MS
"""These processes ended this long ago, so the list of live processes does not show them."""

SINCE_MS = 7 * DAY_MS
_CONNECTIONS = 10
_ENVIRONMENTS = tuple(tenant.environment for tenant in TENANTS)


def _identity(role: str, name: str) -> ProcessIdentity:
    return ProcessIdentity(role=role, worker_id=f"before-{name}", hostname="demo", pid=1)


_API = _identity("api", "api")
_WORKERS = {SHOP.environment: _identity("worker", "shop")}


def past_flushes(past: Iterable[PastEvent], *, now_ms: int) -> Iterator[PastEvent]:
    """Reports of the processes that match the events of the queues, one per process and moment."""
    dice = Random(2)
    for at_ms, events in groupby(past, key=lambda one: one.at_ms):
        if not _reported(now_ms - at_ms):
            continue
        moments = [one.event for one in events]
        yield PastEvent(at_ms=at_ms, event=_flush(_API, _api(moments), dice))
        for environment, identity in _WORKERS.items():
            mine = [moment for moment in moments if moment.dimensions[:3] == environment.names]
            yield PastEvent(at_ms=at_ms, event=_flush(identity, _worker(mine), dice))


def past_lags(past: Iterable[PastEvent], *, now_ms: int) -> Iterator[PastEvent]:
    """The lags per queue that the workers reported along with these reports."""
    by_names: dict[tuple[str, ...], ProcessIdentity] = {one.names: who for one, who in _WORKERS.items()}
    for one in past:
        identity = by_names.get(one.event.dimensions[:3])
        if identity is None or not one.event.samples or not _reported(now_ms - one.at_ms):
            continue
        names = (identity.worker_id, *one.event.dimensions)
        event = MetricEvent(dimensions=names, values={}, samples=one.event.samples[:LAGS_PER_EVENT])
        yield PastEvent(at_ms=one.at_ms, event=event)


def _reported(age_ms: int) -> bool:
    """Whether there is a report of this age: at every moment of the last two hours, and per minute before."""
    if not DEPLOYED_AGO_MS <= age_ms <= SINCE_MS:
        return False
    return age_ms <= 2 * HOUR_MS or age_ms % MINUTE_MS == 0


async def note_served_tenants(redis_url: str) -> None:
    """Note which tenants these processes served, because a tenant sees only processes that served it."""
    served = {_API: _ENVIRONMENTS, **{identity: (one,) for one, identity in _WORKERS.items()}}
    redis = connect(redis_url)
    try:
        for identity, environments in served.items():
            presence = Presence(redis, worker_id=identity.worker_id)
            for environment in environments:
                presence.note_served(environment)
            await presence.flush()
    finally:
        await redis.aclose()


def _flush(identity: ProcessIdentity, values: dict[str, int], dice: Random) -> MetricEvent:
    lags_us = [int(dice.expovariate(1 / 900)) for _ in range(SAMPLES_PER_FLUSH)]
    vitals = {
        "samples": SAMPLES_PER_FLUSH,
        "event_loop_lag_us_sum": sum(lags_us),
        "event_loop_lag_us_max": max(lags_us),
    }
    return MetricEvent(dimensions=identity.dimensions, values={**vitals, **values})


def _api(moments: Sequence[MetricEvent]) -> dict[str, int]:
    pushes = _sum(moments, "enqueued")
    return {**_pool(_CONNECTIONS, busy=min(1 + pushes // 200, _CONNECTIONS - 2)), "pushes": pushes}


def _worker(moments: Sequence[MetricEvent]) -> dict[str, int]:
    lags_ms = [lag for moment in moments for lag in moment.samples]
    return {
        **_pool(CONCURRENCY, busy=min(_sum(moments, "running"), CONCURRENCY)),
        "jobs_done": _sum(moments, "acked"),
        "pops": _sum(moments, "dequeued"),
        "acks": _sum(moments, "acked"),
        "deaths": _sum(moments, "dead"),
        "lag_count": len(lags_ms),
        "lag_ms_sum": sum(lags_ms),
        "lag_ms_max": max(lags_ms, default=0),
    }


def _pool(size: int, *, busy: int) -> dict[str, int]:
    free = size - busy
    return {"pool_size": size, "free_slots_sum": free * SAMPLES_PER_FLUSH, "free_slots_min": free}


def _sum(moments: Sequence[MetricEvent], name: str) -> int:
    return sum(moment.values.get(name, 0) for moment in moments)
