"""A consumer that may be killed at any moment: writes what it is about to do before it does it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from weir.broker.blocking import BlockingBroker
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.errors import Unavailable
from weir.model.message import Settlement
from weir.model.names import EnvironmentRef
from weir.testing.ledger import Ledger

LEASE_MS = 700


BROKERS = {"served": RedisBroker, "direct": BlockingBroker}


async def consume(url: str, organization: str, path: Path, kind: str) -> None:
    broker = BROKERS[kind](RedisConnection(url=url, timeout_s=1))
    ledger = Ledger(path=path)
    queue = EnvironmentRef(organization=organization, project="p", environment="e").queue("work")
    while True:
        try:
            got = await broker.dequeue(queue, consumer="c", limit=20, lease_ms=LEASE_MS, wait_ms=200)
            for delivery in got:
                ledger.deliver(delivery, lease_ms=LEASE_MS)
            ids = [delivery.message_id for delivery in got]
            ledger.settle(ids)
            answers = await broker.ack([delivery.lease for delivery in got]) if got else []
            pairs = zip(ids, answers, strict=True)
            ledger.settle_done(one for one, answer in pairs if answer is Settlement.DONE)
        except Unavailable:
            await asyncio.sleep(0.02)


if __name__ == "__main__":
    asyncio.run(consume(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]))
