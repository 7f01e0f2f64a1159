"""The scripts of the broker: `lua/VERB.lua` with its includes resolved, ready to be sent to Redis.

A line `--- include "NAME"` stands for `lua/includes/NAME.lua`, or for a block that is generated from its
description: keys, packed layouts, the metrics block. Each include appears once, before its first use.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from weir.broker import keys, layout, metrics
from weir.telemetry import lives, log_layout

_INCLUDE = re.compile(r'^--- include "([a-z_]+)"$', re.MULTILINE)
_LUA = files("weir.broker") / "lua"

GENERATED: Mapping[str, Callable[[], str]] = {
    "keys": keys.lua_block,
    "layout": layout.lua_block,
    "mark": layout.lua_mark,
    "entry": layout.lua_entry,
    "ask_ms": layout.lua_ask_ms,
    "default_priority": layout.lua_default_priority,
    "limits": layout.lua_limits,
    "turns": layout.lua_turns,
    "settled": layout.lua_settled,
    "lapse_bounds": layout.lua_lapse_bounds,
    "void_grant": layout.lua_void_grant,
    "death_reasons": layout.lua_death_reasons,
    "state_marks": layout.lua_state_marks,
    **{f"{record.name.lower()}_record": record.lua_block for record in layout.RECORDS},
    "emit": metrics.lua_block,
    "emit_lives": metrics.lua_lives,
    "emit_log": metrics.lua_log,
    "life_layout": lives.lua_block,
    "log_layout": log_layout.lua_block,
}

VERBS = (
    "ack",
    "allow_direct",
    "announce",
    "cancel",
    "change_priority",
    "close_gates",
    "count_messages",
    "dead_letter",
    "define",
    "dequeue",
    "drop_dead",
    "enqueue",
    "enqueue_one",
    "extend",
    "find_idempotency_key",
    "find_message",
    "finish_member",
    "forget",
    "forget_calls",
    "give_back",
    "heartbeat",
    "holds",
    "idle_calls",
    "index",
    "limit",
    "nack",
    "now",
    "open_gates",
    "pause",
    "peek",
    "keep_progress",
    "kept",
    "last_errors",
    "leased_ids",
    "let_lapse",
    "list_messages",
    "refuse_growth",
    "reschedule",
    "resume",
    "revoked",
    "run_now",
    "settle_call",
    "show_message",
    "stale_gates",
    "state",
    "sweep",
    "switch_metrics",
    "take_dead",
    "void_gates",
    "were_cancelled",
    "why",
)


class ScriptError(ValueError):
    """An include is missing or includes itself."""


@dataclass(frozen=True, slots=True)
class Script:
    """One verb as Redis runs it."""

    name: str
    source: str
    sha: str


@cache
def script(name: str) -> Script:
    source = resolve((_LUA / f"{name}.lua").read_text(), include=_include)
    return Script(name=name, source=source, sha=hashlib.sha1(source.encode()).hexdigest())


def _include(name: str) -> str:
    if name in GENERATED:
        return GENERATED[name]()
    path = _LUA / "includes" / f"{name}.lua"
    if not path.is_file():
        raise ScriptError(f"there is no include `{name}`")
    return path.read_text()


def resolve(source: str, *, include: Callable[[str], str]) -> str:
    """`source` with every include in its place, each once, dependencies first."""
    done: set[str] = set()

    def expand(text: str, open_names: tuple[str, ...]) -> str:
        def put(match: re.Match[str]) -> str:
            name = match[1]
            if name in open_names:
                raise ScriptError(f"the include `{name}` includes itself")
            if name in done:
                return ""
            expanded = expand(include(name), (*open_names, name))
            done.add(name)
            return expanded

        return _INCLUDE.sub(put, text)

    return expand(source, ())
