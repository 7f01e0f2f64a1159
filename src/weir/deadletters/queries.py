"""The named queries of this room, by file."""

from __future__ import annotations

from weir.control.sql import load_queries

DEAD_LETTERS = load_queries("weir.deadletters", "dead_letters.sql")
COUNTS = load_queries("weir.deadletters", "counts.sql")
BULK_ACTIONS = load_queries("weir.deadletters", "bulk_actions.sql")
DEAD_LETTER_QUEUES = load_queries("weir.deadletters", "dead_letter_queues.sql")
