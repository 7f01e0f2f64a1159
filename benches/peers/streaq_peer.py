# mypy: ignore-errors
"""streaq: one asyncio worker that runs jobs concurrently and keeps no results."""

import asyncio
import logging
import os
import time

import uvloop
from streaq import Worker
from yardstick import Finished, arguments, report

url, jobs, batch = arguments()
logging.disable(logging.INFO)
worker = Worker(redis_url=url, concurrency=100, handle_signals=False)
finished = Finished(jobs)
done = asyncio.Event()


@worker.task(ttl=0, silent=True)
async def noop(number: int) -> None:
    if finished.call():
        done.set()


async def put():
    half = jobs // 2
    started = time.perf_counter()
    for number in range(half):
        await noop.enqueue(number)
    enqueue = half / (time.perf_counter() - started)
    started = time.perf_counter()
    for start in range(half, jobs, batch):
        await worker.enqueue_many([noop.enqueue(number) for number in range(start, min(start + batch, jobs))])
    return enqueue, (jobs - half) / (time.perf_counter() - started)


async def main():
    async with worker:
        enqueue, bulk = await put()
    working = asyncio.create_task(worker.run_async())
    await asyncio.wait_for(done.wait(), 60)
    report(enqueue=enqueue, bulk=bulk, process=finished.rate())
    working.cancel()
    os._exit(0)


uvloop.run(main())
