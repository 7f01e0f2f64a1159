"""The keys of the metric streams, where events wait for the pipeline: one Redis Stream per metric and shard.

    weir:{shard-3}:metrics:queue     events of the metric `queue`, shard 3
    weir:{shard-3}:metrics:life      the lives of messages that ended, shard 3
    weir:{shard-3}:metrics:log       such messages with their payloads, of queues that keep a log, shard 3
    weir:{shard-3}:metrics:worker    events of the metric `worker`, shard 3
    weir:{shard-3}:metrics_switch    whether metrics are off in shard 3; see `switch`
    weir:shards                      over how many shards environments are spread

The braces are Redis Cluster's hash tag. With it a script may append to the stream of the shard that it
changes.
"""

from __future__ import annotations

Stream = tuple[str, int]
"""A metric and a shard."""

SHARDS = "weir:shards"
"""The key of the number of shards, which is written at the first start."""

GROUP = "weir-pipeline"
"""The consumer group whose position says how far the pipeline has read."""

SWITCH = "metrics_switch"
"""The last part of the key under which a shard keeps whether its metrics are off."""

DEFAULT_MAX_LENGTH = 1_000_000
"""Entries that a stream may hold before Redis drops the oldest; a running pipeline trims long before that."""

LAYOUTS = "layouts"
"""The last part of the key under which a shard keeps the newest announced layouts."""

EVENT_LAYOUT = "event."
"""The layout of an event is announced under this prefix and the name of its kind."""


def hash_tag(shard: int) -> str:
    """The hash tag, braces included, that every key of a shard carries."""
    return f"{{shard-{shard}}}"


def stream_key(metric: str, shard: int) -> str:
    """The stream that holds the events of one metric and shard."""
    return f"weir:{hash_tag(shard)}:{metric_part(metric)}"


def metric_part(metric: str) -> str:
    """The last part of the key of a metric's stream."""
    return f"metrics:{metric}"


def switch_key(shard: int) -> str:
    """The hash that says whether the metrics of a shard are off."""
    return f"weir:{hash_tag(shard)}:{SWITCH}"


def layouts_key(shard: int) -> str:
    """The hash of the layouts that programs announced in a shard, with their versions."""
    return f"weir:{hash_tag(shard)}:{LAYOUTS}"


def metric_layouts_key(shard: int) -> str:
    """The same for the events of metrics that users define."""
    # A key of its own, because brokers refuse a shard with an announced layout that they do not know.
    return f"{layouts_key(shard)}:metrics"
