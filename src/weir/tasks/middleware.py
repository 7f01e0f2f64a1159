"""Middleware: functions that run around each attempt at a task.

```python
from weir.tasks.middleware import Attempt, Run

@app.use
async def timed(attempt: Attempt, run: Run) -> object:
    started = time.monotonic()
    try:
        return await run()
    finally:
        print(attempt.task, time.monotonic() - started)
```

The first middleware that an app uses is the outermost. Its return value is the result of the attempt, and an
exception that it raises is the failure of the attempt: `Retry` and `Reject` too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from weir.tasks.context import TaskContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at a task: its name, the context of its message, and its arguments."""

    task: str
    context: TaskContext
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


Run: TypeAlias = Callable[[], Awaitable[Any]]
Middleware: TypeAlias = Callable[[Attempt, Run], Awaitable[Any]]


async def run_through(middleware: Sequence[Middleware], attempt: Attempt, run: Run) -> Any:
    """Run an attempt inside its middleware."""
    if not middleware:
        return await run()
    first, *rest = middleware
    return await first(attempt, lambda: run_through(rest, attempt, run))
