# mypy: ignore-errors
"""huey: threads of one consumer process."""

import os

from huey import RedisHuey
from yardstick import Finished, arguments, rate, report

url, jobs, _ = arguments()
huey = RedisHuey("bench", url=url, results=False, store_none=False)
finished = Finished(jobs)


@huey.task()
def noop(number):
    finished.call()


def put():
    for number in range(jobs):
        noop(number)


enqueue = rate(jobs, put)
huey.create_consumer(workers=2, periodic=False, initial_delay=0.01, max_delay=0.02).start()
report(enqueue=enqueue, bulk=None, process=finished.wait(timeout_s=60))
os._exit(0)
