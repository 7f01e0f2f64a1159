"""The error answers of the API, all of them problems. `openapi` gives every operation all of them."""

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
"""Every status of a problem."""


def problems() -> dict[int | str, dict[str, Any]]:
    """Every error answer, for a route that `openapi` leaves as it is."""
    return {status: problem_answer(status) for status in STATUSES}


def problem_answer(status: int) -> dict[str, Any]:
    """One status, answered by a problem."""
    return {
        "description": _TEXTS[status],
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
