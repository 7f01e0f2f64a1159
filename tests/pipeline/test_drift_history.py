"""Whatever happens to the events, an audit reports exactly the loss that no gap explains."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.pipeline.emission import Emission
from tests.pipeline.flow import Flow
from tests.pipeline.test_gaps import audit, drop, totals

from weir.model.names import QueueRef
from weir.pipeline.job import PipelineOptions
from weir.telemetry.codec import unpack
from weir.telemetry.events import QUEUE, QUEUE_COUNTERS, STREAM_FIELD
from weir.telemetry.streams import stream_key
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.tables import QUEUES

STEPS = 14


class History:
    """Does something to the events, and knows what an audit must report."""

    def __init__(
        self, options: PipelineOptions, emission: Emission, warehouse: ClickHouseConnection, *, seed: int
    ) -> None:
        self._options = options
        self._emission = emission
        self._warehouse = warehouse
        self._flow = Flow(options)
        self._random = random.Random(seed)
        self._unexplained: Counter[tuple[QueueRef, str]] = Counter()

    def step(self) -> None:
        chosen = self._random.choice(
            (self.count, self.lose_in_gaps, self.lose_without_a_gap, self.count_twice, self.check)
        )
        chosen()

    def count(self) -> None:
        self._emission.emit(150)
        self._flow.move()

    def lose_in_gaps(self) -> None:
        """One or two gaps and then, as in the pipeline, an audit at once."""
        for _ in range(self._random.randint(1, 2)):
            self._emission.emit(self._random.choice((0, 40)))
            drop(self._emission)
            self.count()
        self.check()

    def lose_without_a_gap(self) -> None:
        self._emission.emit(150)
        for shard in range(self._emission.shards):
            key = stream_key("queue", shard)
            # The first entry is the witness, and later events of the same queues tell the loss.
            for entry, fields in self._emission.redis.xrange(key)[10:15]:
                event = unpack(QUEUE, fields[STREAM_FIELD.encode()])
                names = dict(zip(QUEUE.dimensions, event.dimensions, strict=True))
                for name in QUEUE_COUNTERS:
                    self._unexplained[QueueRef(**names), name] += event.values.get(name, 0)
                self._emission.redis.xdel(key, entry)
        self._flow.move()

    def count_twice(self) -> None:
        if not self._emission.odometers:
            return
        queue = self._random.choice(sorted(self._emission.odometers))
        name = self._random.choice(QUEUE_COUNTERS)
        amount = self._random.randint(1, 5)
        row = {**{each: getattr(queue, each) for each in QUEUES.dimensions}, name: amount}
        self._warehouse.insert_rows("queue_ledger", [row], token=str(self._random.random()))
        self._unexplained[queue, name] -= amount

    def check(self) -> None:
        report = audit(self._options, self._warehouse, totals(self._emission))
        assert report.complete
        assert report.drift == sum(map(abs, self._unexplained.values()))

    def close(self) -> None:
        self._flow.close()


@pytest.fixture
def history(
    options: PipelineOptions,
    streams_url: str,
    warehouse: ClickHouseConnection,
    request: pytest.FixtureRequest,
) -> Iterator[History]:
    emission = Emission(streams_url, queues=6, environments=3, seed=request.param)
    history = History(options, emission, warehouse, seed=request.param)
    yield history
    history.close()
    emission.redis.close()


@pytest.mark.parametrize("history", range(6), indirect=True)
def test_reported_drift_is_the_unexplained_loss_at_every_audit(history: History) -> None:
    # A gap is known by a witness, so something must have been read before the first.
    history.count()
    for _ in range(STEPS):
        history.step()
    history.count()
    history.check()
