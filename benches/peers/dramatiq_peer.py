# mypy: ignore-errors
"""dramatiq: threads of one worker process."""

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from yardstick import Finished, arguments, rate, report

url, jobs, _ = arguments()
broker = RedisBroker(url=url, middleware=[])
dramatiq.set_broker(broker)
finished = Finished(jobs)


@dramatiq.actor
def noop(number):
    finished.call()


def put():
    for number in range(jobs):
        noop.send(number)


enqueue = rate(jobs, put)
dramatiq.Worker(broker, worker_threads=4).start()
report(enqueue=enqueue, bulk=None, process=finished.wait(timeout_s=60))
os._exit(0)
