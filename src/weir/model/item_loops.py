"""Background loops over tenants' items: no item ends its loop, and no slow item delays the items of others.

Each loop over items of several tenants follows the same steps:

1. A claim is committed before the item is touched. It counts the try and puts the item off, so an item that
   ends its process is counted too, and the others come first. Tenants take turns. An item that was tried
   before is claimed alone, so that it costs no other item a try.
2. `attempt` does the work. Whatever it raises is the item's `Setback`.
3. The setback is stored where the owner of the item looks. After its last try the item is given up.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from weir.errors import Unavailable, WeirError
from weir.model.asyncio_tasks import cancel_and_wait
from weir.model.backoff import Backoff
from weir.model.wording import duration

log = logging.getLogger("weir.items")

MAX_ERROR = 500
"""The longest text of a setback, in characters."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemPatience:
    """How often items of one kind are tried, how long a try may take, and the pauses between tries."""

    tries: int
    longest_s: float
    backoff: Backoff

    def pause_ms(self, tries: int) -> int:
        """The pause after so many tries. A claim puts an item off by this and by the longest try."""
        return round(self.backoff.pause_s(max(tries, 1)) * 1_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setback:
    """Why an item is put off, or given up."""

    error: str
    """For the owner of the item; any database can store it."""
    pause_ms: int
    given_up: bool = False
    counted: bool = True
    """False if a store was away. That is not the item's fault, so this try does not count."""


async def attempt(
    work: Callable[[], Awaitable[_T]], *, tries: int, patience: ItemPatience, item: str
) -> _T | Setback:
    """Work on an item; whatever goes wrong becomes its setback.

    `tries` includes this one, and is committed. `item` names the item in the log. An error of the tree that
    no retry can help gives the item up at once.
    """
    if tries > patience.tries:
        # The claim that counted the last try was committed, and nothing was stored after it.
        ended = f"given up after {patience.tries} tries: the process that worked on it ended each time"
        return Setback(error=ended, pause_ms=0, given_up=True)
    try:
        async with asyncio.timeout(patience.longest_s) as limit:
            return await work()
    except BaseException as error:
        if is_own_end(error):
            raise
        late = limit.expired() and isinstance(error, TimeoutError)
        text = (
            f"it took longer than {duration(round(patience.longest_s * 1_000))}" if late else text_of(error)
        )
        if late or isinstance(error, WeirError):
            log.warning("%s failed at try %d: %s", item, tries, text)
        else:
            log.error("%s failed at try %d", item, tries, exc_info=error)
        return _setback(error, text, tries=tries, patience=patience)


def is_own_end(error: BaseException) -> bool:
    """Whether an exception ends the asyncio task or the process in which it was raised.

    Work may raise anything, also `CancelledError` without a cancellation, and what is no `Exception`.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit))


def text_of(error: BaseException) -> str:
    """What an error says, without what a database or a page cannot take."""
    text = str(error)
    if not isinstance(error, WeirError):
        text = f"{type(error).__name__}: {text}".removesuffix(": ")
    return storable_text(text)[:MAX_ERROR]


def storable_text(text: str) -> str:
    """A text without NUL and without halves of a surrogate pair, which PostgreSQL and UTF-8 refuse."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")


def _setback(error: BaseException, text: str, *, tries: int, patience: ItemPatience) -> Setback:
    hopeless = isinstance(error, WeirError) and not error.retryable
    counted = not isinstance(error, Unavailable)
    return Setback(
        error=text,
        pause_ms=patience.pause_ms(tries),
        given_up=hopeless or (counted and tries >= patience.tries),
        counted=counted,
    )


class ItemSlots:
    """Works on several items at once. An organization has only some of the slots, so that others find one.

    ```python
    async with ItemSlots(total=32, each=4) as slots:
        for item in await claim(limit=slots.free, passing_over=slots.crowded()):
            slots.start(item.organization, work_on(item))
        await slots.wait(1.0)
    ```
    """

    def __init__(self, *, total: int, each: int) -> None:
        self._total = total
        self._each = each
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._ended = asyncio.Event()

    async def __aenter__(self) -> ItemSlots:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await cancel_and_wait(self._tasks)

    @property
    def free(self) -> int:
        return self._total - len(self._tasks)

    def crowded(self) -> list[str]:
        """The organizations that have as many slots as they may."""
        return [name for name, taken in Counter(self._tasks.values()).items() if taken >= self._each]

    def start(self, organization: str, work: Coroutine[Any, Any, None]) -> None:
        """Work on an item. What it raises is logged; the item should have told its owner."""
        task = asyncio.create_task(work)
        self._tasks[task] = organization
        task.add_done_callback(self._end)

    async def wait(self, longest_s: float) -> None:
        """Wait until an item has ended, at most so long."""
        try:
            async with asyncio.timeout(longest_s):
                await self._ended.wait()
        except TimeoutError:
            pass
        self._ended.clear()

    def _end(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        self._ended.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("work on an item ended early: %s", text_of(error))
