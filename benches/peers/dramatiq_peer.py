# mypy: ignore-errors
"""dramatiq: threads of one worker process."""

import os

# By default a worker fetches two messages per thread and then sleeps for some milliseconds, however short its
# actors are. With this option of dramatiq it fetches as many messages ahead as Weir's worker.
os.environ["dramatiq_queue_prefetch"] = "500"  # noqa: SIM112

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
dramatiq.Worker(broker, worker_threads=8).start()
report(enqueue=enqueue, bulk=None, process=finished.wait(timeout_s=60))
os._exit(0)
