# mypy: ignore-errors
"""taskiq: one asyncio worker on Redis Streams, which its documentation recommends; it keeps no results."""

import asyncio
import os
import time

import uvloop
from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker
from yardstick import Finished, arguments, report

url, jobs, batch = arguments()
# The consumer group begins at the start of the stream, because the jobs are pushed before the worker starts.
broker = RedisStreamBroker(url, consumer_id="0")
finished = Finished(jobs)
done = asyncio.Event()


@broker.task
async def noop(number: int) -> None:
    if finished.call():
        done.set()


async def main():
    await broker.startup()
    half = jobs // 2
    started = time.perf_counter()
    for number in range(half):
        await noop.kiq(number)
    enqueue = half / (time.perf_counter() - started)
    started = time.perf_counter()
    for start in range(half, jobs, batch):
        await asyncio.gather(*(noop.kiq(number) for number in range(start, min(start + batch, jobs))))
    bulk = (jobs - half) / (time.perf_counter() - started)
    # As many jobs are fetched ahead as run at once, so the stream is read 100 entries at a time.
    working = asyncio.create_task(run_receiver_task(broker, max_async_tasks=100, max_prefetch=100))
    await asyncio.wait_for(done.wait(), 60)
    report(enqueue=enqueue, bulk=bulk, process=finished.rate())
    working.cancel()
    os._exit(0)


uvloop.run(main())
