"""The packed form of lives, as scripts write them and the pipeline reads them; `life_columns` decodes it.

An entry of the kind `life` holds the lives of one call and queue: the size of each record (two bytes), then
the records. Each begins with a head, whose first byte is the form of the rest:

- `DIRECT`: a message that was acked on its first attempt and never moved. The rest is a copy of its lease. So
  the script only copies bytes, and the decoder subtracts the readings of the clocks.
- `FREED`: such a message that was blocked and became the head of its key. Behind the lease follow the time
  and the readings of that moment, and the former head of the key.
- `FULL`: any other message. Everything is written out.

A form never changes. A record that must hold more gets a new form; entries with unknown forms are set aside.
Most significant bytes come first. Formats are spelled as scripts spell them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from weir.model.lives import MAX_LIFE_ATTEMPTS, AttemptEnd, LifeOutcome
from weir.model.message import DeathReason

DIRECT, FREED, FULL = 1, 2, 3

LIFE_BYTES = 15_000
"""The most bytes of sizes and records in one entry. With the longest names, the event then has 16 kB, the
longest allowed. The longest life, with 20 attempts and consumer names of 255 bytes each, has 6 kB."""
LIFE_STREAM_BYTES = 128 * 1024 * 1024
"""The memory that a shard's lives may take in Redis before the oldest are dropped: about 700,000 lives."""

MEMBER = ">I8c16I4I8I8I8I1"
"""Sequence, id, attempts, enqueued, available, expires, priority; then the ordering key."""
READINGS = ">I6I6I6I6I6"
"""The queue's clocks: paused, queue limit, environment limit, unasked, unknown."""
HANDED_OUT = ">I6I6I6I6I6I6"
"""When the message was handed out, and the readings then."""
ORIGIN = ">I8I8I1I6I6I6I6I6"
"""As of its enqueue: available, expires, priority, readings. Then the key, and ORIGIN_END."""
ORIGIN_END = ">I4I1"
"""Sizes of the payload and of the key."""
LIFE_HEAD = ">I1I1I1I6I4"
"""Form, outcome, reason plus 1 (0: none), when it ended, how long the handler ran plus 1 (0: not told)."""
FREED_BY = ">c16"
"""The former head of its key, behind HANDED_OUT at the end of a `FREED` record; zeros if it is unknown."""
LIFE_FULL = ">c16I6I6I6I1I4I6I6I6I6I6I6I6I6I6I6c16I4I1I1"
"""Id; enqueued, available, handed out (0: never); priority, attempts; for how long it waited and was leased;
scheduled, back-off, blocked, paused, queue limit, environment limit, unasked, unknown; the former head of its
key; payload size, key size, how many attempts follow. Then the key, and the attempts."""
LIFE_ATTEMPT = ">I6I6I1I1"
"""When it began and ended, how it ended, size of the consumer's name; then the name."""

OUTCOMES = tuple(LifeOutcome)
ATTEMPT_ENDS = tuple(AttemptEnd)
DEATH_REASONS: tuple[DeathReason | None, ...] = (None, *DeathReason)
"""A record holds positions in these three tuples."""

_CODES = re.compile(r"[Ic]\d+")


def packed_size(layout: str) -> int:
    """How many bytes a record of this format takes."""
    return sum(int(code[1:]) for code in codes_of(layout))


def codes_of(layout: str) -> list[str]:
    """The codes of a format, one per field."""
    return _CODES.findall(layout)


def lua_block() -> str:
    """The formats and codes as constants of the scripts."""
    layouts: Mapping[str, str] = {
        "LIFE_HEAD": LIFE_HEAD,
        "LIFE_FULL": LIFE_FULL,
        "LIFE_ATTEMPT": LIFE_ATTEMPT,
    }
    codes = {"LIFE_DIRECT": DIRECT, "LIFE_FREED": FREED, "LIFE_IN_FULL": FULL}
    return "".join(
        (
            *(f"local {name} = '{layout}'\n" for name, layout in layouts.items()),
            *(f"local {name} = {code}\n" for name, code in codes.items()),
            f"local ENDED = {{{_positions(OUTCOMES)}}}\n",
            f"local ATTEMPT = {{{_positions(ATTEMPT_ENDS)}}}\n",
            f"local MAX_LIFE_ATTEMPTS = {MAX_LIFE_ATTEMPTS}\n",
        )
    )


def _positions(words: tuple[str, ...]) -> str:
    return ", ".join(f"{word} = {position}" for position, word in enumerate(words))
