"""Generates the Lua block that emits an event in the broker's scripts, from the description of the event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weir.telemetry.events import STREAM_FIELD, EventKind

_EMPTY = "''"


def emit_block(
    kind: EventKind,
    *,
    enabled: str,
    stream: str,
    max_length: str,
    dimensions: Sequence[str],
    values: Mapping[str, str],
    texts: Mapping[str, str] | None = None,
    samples: str | None = None,
    prepare: str = "",
) -> str:
    """Lua that appends one event of `kind` to `stream`; if that fails, the script around it goes on.

    All arguments are Lua expressions: `enabled` and `max_length` texts, `dimensions` strings in the order of
    the kind, `values` numbers by field name (0 if absent), `texts` strings by name (empty if absent),
    `samples` an array of at most 1,000 numbers. `prepare` holds statements that compute the variables of the
    expressions.
    """
    given = texts or {}
    unknown = (set(values) - {field.name for field in kind.fields}) | (
        set(given) - {text.name for text in kind.texts}
    )
    if unknown or len(dimensions) != len(kind.dimensions):
        raise ValueError(f"the block does not fit `{kind.name}`: {sorted(unknown) or dimensions}")
    numbers = "".join(f", {values.get(field.name, '0')}" for field in kind.fields)
    cut = [f"event_texts[{number}]" for number in range(1, len(kind.texts) + 1)]
    layout = "<I1" + "".join(f"I{field.width}" for field in kind.fields) + "I4"
    layout += f"I{kind.layout.text_width}" * len(cut)
    layout += "I1" * len(dimensions)
    lengths = ", ".join(f"#{part}" for part in (*cut, *dimensions))
    parts = " .. ".join((*dimensions, *cut))
    waits = samples or "{}"
    return f"""
if {enabled} == '1' then
  pcall(function()
    {prepare}{_cut_texts(kind, given)}
    local event_samples = {waits}
    local event_tail = ''
    if #event_samples > 0 then
      event_tail = struct.pack('<' .. string.rep('I4', #event_samples), unpack(event_samples))
    end
    redis.call('XADD', {stream}, 'MAXLEN', '~', {max_length}, '*', '{STREAM_FIELD}',
      struct.pack('{layout}', {kind.version}{numbers}, #event_samples, {lengths})
      .. {parts} .. event_tail)
  end)
end
"""


def _cut_texts(kind: EventKind, texts: Mapping[str, str]) -> str:
    """Lua that fills `event_texts`, each cut as `TextField.cut` does it."""
    if not kind.texts:
        return ""
    cuts = ", ".join(
        f"event_cut({texts.get(text.name, _EMPTY)}, {text.max_bytes}, {'true' if text.binary else 'false'})"
        for text in kind.texts
    )
    return f"""
    local function event_cut(text, most, binary)
      local last = math.min(#text, most)
      while not binary and last > math.max(most - 3, 0) and last < #text do
        local following = string.byte(text, last + 1)
        if following < 128 or following > 191 then
          break
        end
        last = last - 1
      end
      return string.sub(text, 1, last)
    end
    local event_texts = {{{cuts}}}"""
