"""Defines the queues of PostgreSQL in the broker at the start, so that a new Redis keeps their promises."""

from __future__ import annotations

import structlog

from weir.broker.broker import Broker
from weir.control.queue_definitions import QueueDefinitions
from weir.control.tenants import Tenants

log = structlog.get_logger("weir.serve")


async def restore(broker: Broker, *, definitions: QueueDefinitions, tenants: Tenants) -> int:
    """Define every queue, pause the paused ones, set the limits of environments; return how many queues."""
    for environment in await tenants.everything():
        if environment.concurrency is not None:
            await broker.limit(environment.ref, environment.concurrency)
    found = await definitions.everything()
    for definition in found:
        await broker.define(definition.queue, definition.spec)
        if definition.paused:
            await broker.pause(definition.queue)
    log.info("queues restored", queues=len(found))
    return len(found)
