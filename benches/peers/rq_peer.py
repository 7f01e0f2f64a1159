# mypy: ignore-errors
"""rq: one worker process that runs jobs itself, without forking."""

import sys

from redis import Redis
from rq import Queue, SimpleWorker
from yardstick import Finished, arguments, rate, report

url, jobs, batch = arguments()
# rq imports jobs by name, so the function that counts has a module of its own.
finished = Finished(jobs)
sys.modules["counted"] = type(sys)("counted")
sys.modules["counted"].noop = lambda number: finished.call()
sys.modules["counted"].noop.__module__ = "counted"
sys.modules["counted"].noop.__name__ = sys.modules["counted"].noop.__qualname__ = "noop"

queue = Queue("bench", connection=Redis.from_url(url))
half = jobs // 2


def put():
    for number in range(half):
        queue.enqueue("counted.noop", number, result_ttl=0)


def put_bulk():
    for start in range(half, jobs, batch):
        queue.enqueue_many(
            [
                Queue.prepare_data("counted.noop", (number,), result_ttl=0)
                for number in range(start, min(start + batch, jobs))
            ]
        )


enqueue, bulk = rate(half, put), rate(jobs - half, put_bulk)
SimpleWorker([queue], connection=queue.connection).work(burst=True, logging_level="ERROR")
report(enqueue=enqueue, bulk=bulk, process=finished.rate())
