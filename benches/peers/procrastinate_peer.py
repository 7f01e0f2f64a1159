# mypy: ignore-errors
"""procrastinate: one asyncio worker on PostgreSQL that runs jobs concurrently and deletes finished ones.

The URL of an empty database is in the environment, as `BENCH_POSTGRES`.
"""

import asyncio
import os
import time

from procrastinate import App, PsycopgConnector
from yardstick import Finished, arguments, report

_, jobs, batch = arguments()
app = App(connector=PsycopgConnector(conninfo=os.environ["BENCH_POSTGRES"], min_size=4, max_size=10))
finished = Finished(jobs)
done = asyncio.Event()


@app.task(name="noop")
async def noop(number):
    if finished.call():
        done.set()


async def main():
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        # Every job is a transaction, so a fifth of the jobs is enough to measure pushing one by one.
        alone = jobs // 5
        started = time.perf_counter()
        for number in range(alone):
            await noop.defer_async(number=number)
        enqueue = alone / (time.perf_counter() - started)
        started = time.perf_counter()
        for start in range(alone, jobs, batch):
            await noop.batch_defer_async(
                *({"number": number} for number in range(start, min(start + batch, jobs)))
            )
        bulk = (jobs - alone) / (time.perf_counter() - started)
        working = asyncio.create_task(
            app.run_worker_async(concurrency=10, delete_jobs="always", install_signal_handlers=False)
        )
        await asyncio.wait_for(done.wait(), 80)
        report(enqueue=enqueue, bulk=bulk, process=finished.rate())
        working.cancel()
        os._exit(0)


asyncio.run(main())
