"""Defines the queues of PostgreSQL in the broker at the start, so that a new Redis keeps their promises."""

from __future__ import annotations

import structlog

from weir.broker.broker import Broker
from weir.control.queue_definitions import QueueDefinitions
from weir.control.tenants import Tenants

log = structlog.get_logger("weir.serve")


async def restore(broker: Broker, *, definitions: QueueDefinitions, tenants: Tenants) -> int:
    """Define every queue, pause the paused ones, set the limits of environments; return how many queues."""
    async for environment in tenants.everything():
        if environment.concurrency is not None:
            await broker.limit(environment.ref, environment.concurrency)
    count = 0
    async for definition in definitions.everything():
        await broker.define(definition.queue, definition.spec)
        if definition.paused:
            await broker.pause(definition.queue)
        count += 1
    log.info("queues restored", queues=count)
    return count
