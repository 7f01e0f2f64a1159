"""Rules that all programs with handlers share: how a handler decides, errors as text, renewals and looks."""

from __future__ import annotations

import traceback

from weir.model.durations import Duration, to_optional_ms
from weir.model.limits import MAX_ERROR_BYTES

RENEWALS_PER_LEASE = 3
"""A lease outlives two renewals that fail."""
CANCELLATION_LOOK_S = 0.4
"""How often a consumer asks whether messages that it works on were cancelled.

It asks only about messages that it has held for at least this long. So shorter handlers cost no call, and a
cancelled message is found after two looks at most: 0.8 s."""


class Reject(Exception):
    """Raise it in a handler: the message will never succeed. It goes to the dead letters at once.

    ```python
    def handle(order: int) -> None:
        if order < 0:
            raise Reject("an order has a positive number")
    ```
    """


class Retry(Exception):
    """Raise it in a handler: try the message again.

    With `delay` it is tried after that many seconds; without one, after the back-off of its queue.

    ```python
    def handle(order: int) -> None:
        raise Retry("the bank is closed", delay=60)
    ```
    """

    def __init__(self, message: str = "retry", *, delay: Duration | None = None) -> None:
        super().__init__(message)
        self.delay_ms = to_optional_ms(delay)


class NoRoom(Retry):
    """A push inside a handler waited in vain for room in its queue. The attempt does not count."""


# Errors are stored with the name of their class. The public name keeps them in their groups if the module
# moves.
for _public in (Reject, Retry, NoRoom):
    _public.__module__ = "weir"


def describe_failure(error: BaseException) -> str:
    """An error as dead letters show it: its class, its text, and where it was raised."""
    text = "".join(traceback.format_exception_only(error)).strip()
    frames = traceback.extract_tb(error.__traceback__)
    where = f" (in {frames[-1].name}, line {frames[-1].lineno})" if frames else ""
    return error_text(text + where)


# Dead letters look at this many characters to find their group.
MAX_TRACEBACK = 4_000


def describe_with_traceback(error: BaseException, *, skip: int = 0) -> str:
    """An error as a traceback, whose last line says what happened, without its first `skip` frames.

    The first frames of a long traceback are left out.
    """
    shown = traceback.TracebackException.from_exception(error, compact=True)
    del shown.stack[:skip]
    while len(text := "".join(shown.format(chain=False)).rstrip()) > MAX_TRACEBACK and shown.stack:
        del shown.stack[0]
    return error_text(text) if len(text) <= MAX_TRACEBACK else describe_failure(error)


def error_text(error: str) -> str:
    """An error as it is stored: valid text, cut to `MAX_ERROR_BYTES`."""
    data = error.encode(errors="replace")
    if len(data) <= MAX_ERROR_BYTES:
        return data.decode()
    return data[:MAX_ERROR_BYTES].decode(errors="ignore")
