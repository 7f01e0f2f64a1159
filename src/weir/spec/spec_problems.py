"""Mistakes in a spec, all at once: each with its line, what was expected, and the nearest right word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from weir.errors import SpecInvalid
from weir.spec.syntax import SourceSpan

MAX_SHOWN = 20
# Of a longer line only the part around the mistake is shown.
MAX_LINE = 160
TAB = "\t"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecProblem:
    """One mistake and its position."""

    message: str
    span: SourceSpan
    hint: str = ""


def nearest(word: str, known: Iterable[str]) -> str:
    """`did you mean `x`?`, or an empty text if no known word is similar."""
    choices = list(known)
    lowered = {choice.lower(): choice for choice in choices}
    found = get_close_matches(word.lower(), lowered, n=1, cutoff=0.6)
    return f"did you mean `{lowered[found[0]]}`?" if found else ""


def one_of(words: Iterable[str]) -> str:
    """`a`, `b` or `c`."""
    quoted = [f"`{word}`" for word in words]
    if len(quoted) < 2:
        return "".join(quoted)
    return ", ".join(quoted[:-1]) + " or " + quoted[-1]


def invalid(problems: Sequence[SpecProblem], *, file: str, text: str) -> SpecInvalid:
    """The error that shows every problem with its line and a caret."""
    ordered = sorted(problems, key=lambda problem: (problem.span.line, problem.span.column))
    shown = [rendered(problem, file=file, text=text) for problem in ordered[:MAX_SHOWN]]
    if len(ordered) > MAX_SHOWN:
        shown.append(f"… and {len(ordered) - MAX_SHOWN} more")
    return SpecInvalid(
        "\n".join(shown),
        errors=[
            {
                "file": file,
                "line": problem.span.line,
                "column": problem.span.column,
                "detail": problem.message,
                "hint": problem.hint,
            }
            for problem in ordered
        ],
    )


def rendered(problem: SpecProblem, *, file: str, text: str) -> str:
    """`file:line:column: what`, the offending line, and a caret under it."""
    span = problem.span
    hint = f"; {problem.hint}" if problem.hint else ""
    head = f"{file}:{span.line}:{span.column}: {problem.message}{hint}"
    lines = text.split("\n")
    if not text or span.line > len(lines):
        return head
    line, column = _around(lines[span.line - 1].rstrip("\r"), span.column)
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
