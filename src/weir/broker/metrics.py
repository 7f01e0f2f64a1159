"""The metrics block of the scripts, generated from the description of the queue event."""

from __future__ import annotations

from weir.telemetry.events import QUEUE, QUEUE_COUNTERS, QueueOperation
from weir.telemetry.lua import emit_block

_PREPARE = """local names = {}
    local from = 1
    for i = 1, 4 do
      local size = string.byte(q.ident, from)
      names[i] = string.sub(q.ident, from + 1, from + size)
      from = from + 1 + size
    end
    local organization, project, environment, queue = names[1], names[2], names[3], names[4]
    local waiting = depth(q)"""

_GAUGES = {
    "operation": "OPERATIONS[operation]",
    "queue_length": "waiting",
    "running": "q.running",
    "queue_limit": "q.concurrency",
    "environment_length": "q.environment_depth",
    "environment_running": "q.environment_running",
    "environment_limit": "q.environment_limit",
    "paused": "q.paused and 1 or 0",
    "oldest_age_ms": "now - oldest(q, now)",
}


def lua_block() -> str:
    """`emit(q, operation, counts, waits, now)`: append one event; whatever happens, the script goes on."""
    block = emit_block(
        QUEUE,
        enabled="emits()",
        stream="STREAM_KEY",
        max_length="STREAM_LENGTH",
        dimensions=("organization", "project", "environment", "queue"),
        values={
            **_GAUGES,
            **{name: f"counts.{name} or 0" for name in QUEUE_COUNTERS},
            **{f"{name}_total": f"q.{name}" for name in QUEUE_COUNTERS},
        },
        samples="waits",
        prepare=_PREPARE,
    )
    codes = ", ".join(f"{operation} = {code}" for code, operation in enumerate(QueueOperation))
    return f"""
--- include "call"
--- include "keys"
--- include "depth"
--- include "oldest"
--- include "switched_off"
local OPERATIONS = {{{codes}}}
local function emits()
  return METRICS_ON == '1' and not switched_off() and '1' or '0'
end
local function emit(q, operation, counts, waits, now)
{block}
end
"""
