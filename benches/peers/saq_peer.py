# mypy: ignore-errors
"""saq: one asyncio worker that runs jobs concurrently and keeps no results."""

import asyncio
import os
import time

import uvloop
from saq import Queue, Worker
from yardstick import Finished, arguments, report

url, jobs, batch = arguments()
finished = Finished(jobs)
done = asyncio.Event()


async def noop(ctx, *, number):
    if finished.call():
        done.set()


async def main():
    queue = Queue.from_url(url, name="bench")
    await queue.connect()
    half = jobs // 2
    started = time.perf_counter()
    for number in range(half):
        await queue.enqueue("noop", number=number, ttl=-1)
    enqueue = half / (time.perf_counter() - started)
    started = time.perf_counter()
    for start in range(half, jobs, batch):
        await asyncio.gather(
            *(
                queue.enqueue("noop", number=number, ttl=-1)
                for number in range(start, min(start + batch, jobs))
            )
        )
    bulk = (jobs - half) / (time.perf_counter() - started)
    worker = Worker(queue, functions=[("noop", noop)], concurrency=50, dequeue_timeout=1)
    asyncio.get_running_loop().create_task(worker.start())
    await asyncio.wait_for(done.wait(), 60)
    report(enqueue=enqueue, bulk=bulk, process=finished.rate())
    os._exit(0)


uvloop.run(main())
