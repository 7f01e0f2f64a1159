# mypy: ignore-errors
"""arq: one asyncio worker that runs jobs concurrently and keeps no results."""

import asyncio
import time

import uvloop
from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker
from yardstick import Finished, arguments, report

url, jobs, batch = arguments()
finished = Finished(jobs)


async def noop(ctx, number):
    finished.call()


async def main():
    settings = RedisSettings.from_dsn(url)
    pool = await create_pool(settings)
    half = jobs // 2
    started = time.perf_counter()
    for number in range(half):
        await pool.enqueue_job("noop", number)
    enqueue = half / (time.perf_counter() - started)
    started = time.perf_counter()
    for start in range(half, jobs, batch):
        await asyncio.gather(
            *(pool.enqueue_job("noop", number) for number in range(start, min(start + batch, jobs)))
        )
    bulk = (jobs - half) / (time.perf_counter() - started)
    worker = Worker(
        [noop], redis_pool=pool, burst=True, max_jobs=100, keep_result=0, poll_delay=0.005,
        queue_read_limit=200, handle_signals=False, max_burst_jobs=jobs,
    )  # fmt: skip
    await worker.async_run()
    report(enqueue=enqueue, bulk=bulk, process=finished.rate())


uvloop.run(main())
