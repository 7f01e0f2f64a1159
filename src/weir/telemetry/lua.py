"""Generates the Lua block that emits an event in the broker's scripts, from the description of the event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weir.telemetry.events import STREAM_FIELD, EventKind


def emit_block(
    kind: EventKind,
    *,
    enabled: str,
    stream: str,
    max_length: str,
    dimensions: Sequence[str],
    values: Mapping[str, str],
    samples: str | None = None,
    prepare: str = "",
) -> str:
    """Lua that appends one event of `kind` to `stream`, and whose failure does not fail the script around it.

    All arguments are Lua expressions: `enabled` and `max_length` texts, `dimensions` strings in the order of
    the kind, `values` numbers by field name (0 if absent), `samples` an array of at most 1,000 numbers.
    `prepare` holds statements that compute the variables of the expressions.
    """
    unknown = set(values) - {field.name for field in kind.fields}
    if unknown or len(dimensions) != len(kind.dimensions):
        raise ValueError(f"the block does not fit `{kind.name}`: {sorted(unknown) or dimensions}")
    layout = "<I1" + "".join(f"I{field.width}" for field in kind.fields) + "I4" + "I1" * len(dimensions)
    numbers = ", ".join(values.get(field.name, "0") for field in kind.fields)
    lengths = ", ".join(f"#{text}" for text in dimensions)
    texts = " .. ".join(dimensions)
    waits = samples or "{}"
    return f"""
if {enabled} == '1' then
  pcall(function()
    {prepare}
    local event_samples = {waits}
    local event_tail = ''
    if #event_samples > 0 then
      event_tail = struct.pack('<' .. string.rep('I4', #event_samples), unpack(event_samples))
    end
    redis.call('XADD', {stream}, 'MAXLEN', '~', {max_length}, '*', '{STREAM_FIELD}',
      struct.pack('{layout}', {kind.version}, {numbers}, #event_samples, {lengths})
      .. {texts} .. event_tail)
  end)
end
"""
