"""Mistakes in a spec, all at once: each with its line, what was expected, and the nearest right word."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from weir.errors import SpecInvalid
from weir.spec.syntax import SourceSpan

MAX_PROBLEMS = 100
"""Mistakes of one spec that are looked for. One part may be wrong in each of thousands of places."""
MAX_SHOWN = 20
MAX_HINTED = 20
"""Mistakes of one spec that get a hint: each compares a word with all known ones."""
MAX_MESSAGE = 500
"""Characters of one message; a name in it may be as long as the spec."""
# The nearest word is looked for among this many words of at most this many characters.
MAX_COMPARED = 200
MAX_WORD = 64
# Of a longer line only the part around the mistake is shown.
MAX_LINE = 160
TAB = "\t"
_SURROGATES = re.compile(r"[\ud800-\udfff]")


Near = tuple[str, Iterable[str]]
"""A wrong word and the known words, for a hint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecProblem:
    """One mistake and its position."""

    message: str
    span: SourceSpan
    hint: str = ""


def nearest(word: str, known: Iterable[str]) -> str:
    """`did you mean `x`?`, or an empty text if no known word is similar."""
    if len(word) > MAX_WORD:
        return ""
    lowered = {choice.lower(): choice for choice in _compared(word.lower(), known)}
    found = get_close_matches(word.lower(), lowered, n=1, cutoff=0.6)
    return f"did you mean `{lowered[found[0]]}`?" if found else ""


def _compared(word: str, known: Iterable[str]) -> list[str]:
    """The words to compare with. Of too many, those with the same first letter come before the others."""
    choices = [choice for choice in known if len(choice) <= MAX_WORD]
    if len(choices) > MAX_COMPARED:
        choices.sort(key=lambda choice: choice[:1].lower() != word[:1])
    return choices[:MAX_COMPARED]


def printable(text: str) -> str:
    """A text of a spec as an answer may hold it: without lone surrogates, and cut."""
    whole = _SURROGATES.sub("\ufffd", text)
    return whole if len(whole) <= MAX_MESSAGE else f"{whole[:MAX_MESSAGE]}…"


def one_of(words: Iterable[str]) -> str:
    """`a`, `b` or `c`."""
    quoted = [f"`{word}`" for word in words]
    if len(quoted) < 2:
        return "".join(quoted)
    return ", ".join(quoted[:-1]) + " or " + quoted[-1]


def invalid(problems: Sequence[SpecProblem], *, file: str, text: str) -> SpecInvalid:
    """The error that shows the problems with their lines and carets."""
    ordered = sorted(problems, key=lambda problem: (problem.span.line, problem.span.column))
    shown = [rendered(problem, file=file, text=text) for problem in ordered[:MAX_SHOWN]]
    if len(ordered) >= MAX_PROBLEMS:
        shown.append("… and more")
    elif len(ordered) > MAX_SHOWN:
        shown.append(f"… and {len(ordered) - MAX_SHOWN} more")
    return SpecInvalid(
        "\n".join(shown),
        errors=[
            {
                "file": file,
                "line": problem.span.line,
                "column": problem.span.column,
                "detail": printable(problem.message),
                "hint": problem.hint,
            }
            for problem in ordered
        ],
    )


def rendered(problem: SpecProblem, *, file: str, text: str) -> str:
    """`file:line:column: what`, the offending line, and a caret under it."""
    span = problem.span
    hint = f"; {problem.hint}" if problem.hint else ""
    head = f"{file}:{span.line}:{span.column}: {printable(problem.message)}{hint}"
    lines = text.split("\n")
    if not text or span.line > len(lines):
        return head
    line, column = _around(_SURROGATES.sub("\ufffd", lines[span.line - 1]).rstrip("\r"), span.column)
    before = "".join(TAB if char == TAB else " " for char in line[: column - 1])
    width = max(1, min(span.end - span.start, len(line) - column + 1))
    return f"{head}\n    {line}\n    {before}{'^' * width}"


def _around(line: str, column: int) -> tuple[str, int]:
    """The part of a line to show, and the column of the mistake in it."""
    if len(line) <= MAX_LINE:
        return line, column
    start = max(0, min(column - 1 - MAX_LINE // 2, len(line) - MAX_LINE))
    end = start + MAX_LINE
    shown = ("…" if start else "") + line[start:end] + ("…" if end < len(line) else "")
    return shown, column - start + (1 if start else 0)
