"""Where events wait for the pipeline: one Redis Stream a metric and shard, spelled here alone.

    weir:{shard-3}:metrics:queue     events of the metric `queue`, shard 3
    weir:{shard-3}:metrics:worker    events of the metric `worker`, shard 3
    weir:metrics                     `0` while the scripts emit no events of queues

The braces are Redis Cluster's hash tag: a script may append to the stream of the shard it works on.
"""

from __future__ import annotations

GROUP = "weir-pipeline"
"""The consumer group under which the pipeline publishes how far it has come."""

METRICS_SWITCH = b"weir:metrics"
"""A key that switches the events of queues off while it holds `0`."""

DEFAULT_MAX_LENGTH = 1_000_000
"""Entries that a stream may hold before Redis drops the oldest; the pipeline trims long before that."""


LAYOUTS = "layouts"
"""The last part of the key under which a shard keeps the newest layouts that were announced there."""

EVENT_LAYOUT = "event."
"""How the layout of an event is announced: this and the name of its kind."""


def hash_tag(shard: int) -> str:
    """The hash tag, braces included, that every key of a shard carries."""
    return f"{{shard-{shard}}}"


def stream_key(metric: str, shard: int) -> str:
    """The stream that holds the events of one metric and shard."""
    return f"weir:{hash_tag(shard)}:metrics:{metric}"


def layouts_key(shard: int) -> str:
    """The hash of layouts that programs announced in a shard, each with its version."""
    return f"weir:{hash_tag(shard)}:{LAYOUTS}"
