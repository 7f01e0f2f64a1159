"""The metrics blocks of the scripts, generated from the descriptions of the queue and life events."""

from __future__ import annotations

from weir.telemetry.events import LIFE, LOG, LOG_ENTRY_BYTES, QUEUE, QUEUE_COUNTERS, QueueOperation
from weir.telemetry.lives import LIFE_BYTES, LIFE_STREAM_BYTES
from weir.telemetry.log_layout import LOG_STREAM_BYTES
from weir.telemetry.lua import emit_block
from weir.telemetry.streams import metric_part

_NAMES = """local names = {}
    local from = 1
    for i = 1, 4 do
      local size = string.byte(q.ident, from)
      names[i] = string.sub(q.ident, from + 1, from + size)
      from = from + 1 + size
    end
    local organization, project, environment, queue = names[1], names[2], names[3], names[4]"""
_PREPARE = f"""{_NAMES}
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
--- include "emits"
local OPERATIONS = {{{codes}}}
local function emit(q, operation, counts, waits, now)
{block}
end
"""


_BOUND_EVERY = 64


def lua_lives() -> str:
    """`count_lives(q)`, to be called before the queue is saved, and `emit_lives(q, ended)` after it.

    Lives that are not emitted are not counted. The stream is bounded in bytes: whenever the odometer of a
    queue passes a multiple of 64, the script measures the stream, and drops the oldest entries if it is too
    large.
    """
    block = emit_block(
        LIFE,
        enabled="'1'",
        stream="LIFE_STREAM",
        max_length="STREAM_LENGTH",
        dimensions=LIFE.dimensions,
        values={"lives": "count", "lives_total": "total"},
        texts={"records": "records"},
        prepare=_NAMES,
    )
    return f"""
--- include "call"
--- include "emits"
--- include "bound_stream"
local LIFE_STREAM = PREFIX .. '{metric_part(LIFE.name)}'
local function count_lives(q)
  local ended = q.ended
  q.ended = nil
  if not ended or not ended[1] or emits() ~= '1' then return nil end
  q.lives = q.lives + #ended / 2
  return ended
end
local function emit_entry(q, count, total, records)
{block}
end
local function emit_lives(q, ended)
  local sizes, bytes, first, count = {{}}, 0, 1, #ended / 2
  local total = q.lives - count
  local function flush(last)
    total = total + #sizes
    emit_entry(q, #sizes, total,
      struct.pack('>' .. string.rep('I2', #sizes), unpack(sizes)) .. table.concat(ended, '', first, 2 * last))
    sizes, bytes, first = {{}}, 0, 2 * last + 1
  end
  for i = 1, count do
    local size = #ended[2 * i - 1] + #ended[2 * i]
    if bytes + size + 2 > {LIFE_BYTES} then flush(i - 1) end
    sizes[#sizes + 1] = size
    bytes = bytes + size + 2
  end
  flush(count)
  if q.lives % {_BOUND_EVERY} < count then pcall(bound_stream, LIFE_STREAM, {LIFE_STREAM_BYTES}) end
end
"""


_BOUND_BYTES = 1024 * 1024


def lua_log() -> str:
    """`emit_log(q, ended, logged)`: append messages that ended to the log, after their lives were emitted.

    An entry holds the lives and the bodies of some messages, in their order. The stream is bounded in bytes
    like the stream of lives. It is also measured after a call that appended much.
    """
    block = emit_block(
        LOG,
        enabled="'1'",
        stream="LOG_STREAM",
        max_length="STREAM_LENGTH",
        dimensions=LOG.dimensions,
        values={"lives": "count", "lives_total": "total", "keep_s": "q.log_keep"},
        texts={"records": "records", "bodies": "bodies"},
        prepare=_NAMES,
    )
    return f"""
--- include "call"
--- include "bound_stream"
local LOG_STREAM = PREFIX .. '{metric_part(LOG.name)}'
local function log_entry(q, count, total, records, bodies)
{block}
end
local function emit_log(q, ended, logged)
  local count = #ended / 2
  local sizes, bytes, held, first, written, total = {{}}, 0, 0, 1, 0, q.lives - count
  local function flush(last)
    total = total + #sizes
    log_entry(q, #sizes, total,
      struct.pack('>' .. string.rep('I2', #sizes), unpack(sizes))
        .. table.concat(ended, '', 2 * first - 1, 2 * last),
      table.concat(logged.heads, '', first, last) .. table.concat(logged.contents, '', first, last))
    sizes, bytes, held, first = {{}}, 0, 0, last + 1
  end
  for i = 1, count do
    local size, body = #ended[2 * i - 1] + #ended[2 * i], #logged.heads[i] + #logged.contents[i]
    local full = bytes + size + 2 > {LIFE_BYTES} or held + body > {LOG_ENTRY_BYTES}
    if #sizes > 0 and full then flush(i - 1) end
    sizes[#sizes + 1] = size
    bytes, held, written = bytes + size + 2, held + body, written + body
  end
  flush(count)
  if q.lives % {_BOUND_EVERY} < count or written > {_BOUND_BYTES} then
    pcall(bound_stream, LOG_STREAM, {LOG_STREAM_BYTES})
  end
end
"""
