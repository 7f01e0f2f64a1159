"""A pipeline that is older than the events stops before it loses them."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from redis import Redis
from tests.pipeline.emission import Emission

from weir.errors import Misconfigured
from weir.pipeline.job import PipelineOptions
from weir.pipeline.offsets import Offset
from weir.pipeline.source import StreamsReader
from weir.telemetry.events import QUEUE
from weir.telemetry.streams import layouts_key, stream_key


def test_events_that_a_newer_program_announced_are_neither_planned_nor_trimmed(
    emission: Emission, options: PipelineOptions
) -> None:
    redis: Redis = emission.redis
    reader = StreamsReader(options.source)
    redis.hset(layouts_key(1), "event.queue", QUEUE.version)
    redis.xadd(stream_key("queue", 0), {"e": b"\x02"}, id="5-0")
    begin = Offset().as_json()
    assert reader.latestOffset(begin, ReadAllAvailable()) != begin
    redis.hset(layouts_key(1), "event.queue", QUEUE.version + 1)
    with pytest.raises(Misconfigured, match="start the pipeline of a newer Weir"):
        reader.latestOffset(begin, ReadAllAvailable())
    assert redis.xlen(stream_key("queue", 0)) == 1


def test_a_batch_with_a_metric_that_was_removed_is_refused_by_its_name(options: PipelineOptions) -> None:
    reader = StreamsReader(options.source)
    settled = {("mail", 0): "5-0", ("queue", 0): "7-0"}
    begin, unread = Offset(positions=settled), Offset(positions={**settled, ("mail", 0): "9-0"})
    with pytest.raises(Misconfigured, match="metric `mail`, which is not registered; register it again"):
        reader.partitions(begin.as_json(), unread.as_json())
    later = Offset(positions={**settled, ("queue", 0): "8-0"})
    assert len(reader.partitions(begin.as_json(), later.as_json())) == 1
