"""The page of all errors, from `weir.errors` and the client's."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator

from weir import errors
from weir.errors import NotFound, WeirError
from weir.model.problem_documents import problem

_INTRO = """# Errors

Over HTTP every error is an RFC 9457 problem with a stable `code`. In Python the client raises `ApiError`,
whose `code` and `status` are those below. *Retry* says whether the same request may succeed later; the
Python client then tries again by itself.

Generated from `weir.errors`.

| Code | Status | Title | Retry | What it means |
|---|---|---|---|---|"""
_END = """
`detail` says what happened and what to do. `instance` is the `Request-Id` of the answer, which the server
logs too.
"""
_EXAMPLE = NotFound("there is no queue `ordres`; define it first")


def errors_page() -> str:
    example = json.dumps(problem(_EXAMPLE), indent=2, ensure_ascii=False)
    return "\n".join([_INTRO, *map(_row, _tree(WeirError)), f"\n```json\n{example}\n```", _END])


def _tree(root: type[WeirError]) -> Iterator[type[WeirError]]:
    """The errors below `root`, in the order of the module."""
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child
            yield from _tree(child)


def _row(error: type[WeirError]) -> str:
    status = "exit status 2" if error.code == "misconfigured" else str(error.status)
    retry = "yes" if error.retryable else "no"
    return f"| `{error.code}` | {status} | {error.title} | {retry} | {_meaning(error)} |"


def _meaning(error: type[WeirError]) -> str:
    """The words after the class in the tree that the module's docstring draws."""
    for line in (inspect.getdoc(errors) or "").splitlines():
        words = line.strip("│├└─ ").split()
        if words[:1] == [error.__name__]:
            return " ".join(words[2:] if words[1].isdigit() else words[4:])
    raise LookupError(f"the tree in the docstring of weir.errors does not have {error.__name__}")
