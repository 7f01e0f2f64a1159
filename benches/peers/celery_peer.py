# mypy: ignore-errors
"""celery: one worker process with the solo pool, which ignores results."""

import os
import threading

from celery import Celery
from yardstick import Finished, arguments, rate, report

url, jobs, _ = arguments()
app = Celery("bench", broker=url)
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=100,
    worker_hijack_root_logger=False,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
    worker_redirect_stdouts=False,
)
finished = Finished(jobs)


@app.task(name="noop", ignore_result=True)
def noop(number):
    finished.call()


def put():
    with app.producer_pool.acquire(block=True) as producer:
        for number in range(jobs):
            noop.apply_async((number,), producer=producer)


enqueue = rate(jobs, put)


def watch():
    report(enqueue=enqueue, bulk=None, process=finished.wait(timeout_s=60))
    os._exit(0)


threading.Thread(target=watch, daemon=True).start()
app.worker_main(
    ["--quiet", "worker", "--pool", "solo", "--loglevel", "CRITICAL", "--without-gossip", "--without-mingle",
     "--without-heartbeat"]
)  # fmt: skip
