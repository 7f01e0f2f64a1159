"""How specs and answers write which lives of messages are kept: `all`, `none` or `1 in 10`. Pure."""

from __future__ import annotations

import re

from weir.spec.read import MAX_NUMBER

_SHARE = re.compile(r"1 +in +([1-9]\d{0,9})")
_WORDS = {"all": 1, "none": 0}


def read_history(text: str) -> int | None:
    """N if the text says that one in N lives is kept, 0 for `none`; None if the text says something else."""
    if text in _WORDS:
        return _WORDS[text]
    share = _SHARE.fullmatch(text)
    return int(share[1]) if share and 1 <= int(share[1]) <= MAX_NUMBER else None


def history_text(history: int) -> str:
    """The text for a history, which `read_history` reads again."""
    return {1: "all", 0: "none"}.get(history, f"1 in {history}")


def log_needs_lives(history: int) -> str:
    """Why a queue cannot keep a log with this history, and what to do."""
    return (
        f"a log needs the life of every message, and `history` is `{history_text(history)}`; "
        "write `history: all`, or remove `log`"
    )
