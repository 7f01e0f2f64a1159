"""The page of all errors, from `weir.errors` and the client's."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from weir import errors
from weir.errors import WeirError

_INTRO = """# Errors

Over HTTP every error is an RFC 9457 problem with a stable `code`. In Python the client raises `ApiError`, whose `code` and
`status` are those below. *Retry* says whether the same request may succeed later; the Python client then tries again by itself.

Generated from `weir.errors`.

| Code | Status | Title | Retry | What it means |
|---|---|---|---|---|"""
_END = """
```json
{
  "type": "about:blank",
  "title": "Not found",
  "status": 404,
  "detail": "there is no queue `ordres`; define it with a spec or `PUT /api/v1/queues/ordres`",
  "code": "not_found",
  "retryable": false,
  "instance": "urn:weir:request:0195d1f0"
}
```

`detail` says what happened and what to do. `instance` is the `Request-Id` of the answer: the log of the server has it too.
"""


def errors_page() -> str:
    return "\n".join([_INTRO, *map(_row, _tree(WeirError)), _END])


def _tree(root: type[WeirError]) -> Iterator[type[WeirError]]:
    """The errors below one, in the order of the module."""
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child
            yield from _tree(child)


def _row(error: type[WeirError]) -> str:
    status = "exit status 2" if error.code == "misconfigured" else str(error.status)
    return f"| `{error.code}` | {status} | {error.title} | {'yes' if error.retryable else 'no'} | {_meaning(error)} |"


def _meaning(error: type[WeirError]) -> str:
    """The words behind the class in the tree that the module draws."""
    for line in (inspect.getdoc(errors) or "").splitlines():
        words = line.strip("│├└─ ").split()
        if words[:1] == [error.__name__]:
            return " ".join(words[2:] if words[1].isdigit() else words[1:])
    raise LookupError(f"the tree in the docstring of weir.errors does not have {error.__name__}")
