"""The error answers that routes declare, all of them problems."""

from __future__ import annotations

from typing import Any

_TEXTS = {
    400: "The request cannot be read.",
    401: "No credential, or one that does not hold.",
    403: "The role of the token does not suffice.",
    404: "There is no such thing in the scope of the token.",
    408: "The body did not arrive in time.",
    409: "The state does not allow it now.",
    413: "Over a stated limit.",
    415: "The content type or encoding is not taken.",
    422: "What was sent cannot be accepted.",
    429: "Overloaded; retry after the stated delay.",
    500: "A defect.",
    503: "A store is out of reach or out of room; retry after the stated delay.",
}
STATUSES = tuple(_TEXTS)
"""Every status of a problem that a route may declare."""
_EVERY = (400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 500, 503)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The declarations for these statuses, and for each status that any authenticated route may give."""
    return {status: problem_answer(status) for status in sorted({*_EVERY, *statuses})}


def problem_answer(status: int) -> dict[str, Any]:
    """One status, answered by a problem."""
    return {
        "description": _TEXTS[status],
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
