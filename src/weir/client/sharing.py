"""Concurrent callers of one client share requests: items that come while one is on its way share the next.

No caller waits for others to come: a single caller sends its item at once and alone. One shared request is on
its way at a time, so items are sent in the order in which they came. An item that makes trouble leaves the
shared request: its caller sends it alone, with the retries and the error that it would have got alone.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from weir.client.errors import ApiError, ClientError, Unreachable
from weir.client.http1 import RequestKind
from weir.client.options import ClientOptions
from weir.client.retry import worth_retrying
from weir.client.transport import Transport
from weir.errors import QueueFull
from weir.model.limits import MAX_BATCH

MAX_SHARED_BYTES = 512 << 10
"""The most bytes of items in one request. The API takes 1 MiB by default."""
_POINTER = re.compile(r"#/\w+/(\d+)")


class _SendAlone(Exception):
    """An item left its shared request: its caller is to send it alone."""


class _NobodyWaits(Exception):
    """Every caller of a shared request was cancelled before the next try."""


class _Entry:
    """An item that waits for its answer."""

    __slots__ = ("answer", "item", "sharers")

    def __init__(self, item: bytes) -> None:
        self.item = item
        self.answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.sharers: _Sharers | None = None


class _Sharers:
    """The entries of the request that is on its way, and how many of their callers still wait."""

    __slots__ = ("entries", "waiting")

    def __init__(self, entries: Sequence[_Entry]) -> None:
        self.entries = entries
        self.waiting = len(entries)
        for entry in entries:
            entry.sharers = self


class LoneRequests:
    """Sends each item in a request of its own: it sends `{member: [item]}` and gets `{"items": [answer]}`.

    With `alone_path`, a single item and its answer go without the lists around them, over that path.
    """

    def __init__(
        self,
        transport: Transport,
        options: ClientOptions,
        *,
        path: str,
        member: str,
        alone_path: str = "",
        kind: RequestKind = RequestKind.ORDINARY,
    ) -> None:
        self._kind = kind
        self._transport = transport
        self._options = options
        self._path = path
        self._opening = b'{"%s":[' % member.encode()
        self._alone_path = alone_path

    async def ask(self, item: bytes) -> dict[str, Any]:
        """The answer for one item of JSON; ApiError or Unreachable if there is none."""
        return await self._ask_alone(item)

    async def _ask_alone(self, item: bytes, *, final: Collection[str] = ()) -> dict[str, Any]:
        if self._alone_path:
            return await self._transport.send(
                "POST", self._alone_path, content=lambda: item, kind=self._kind, final=final, member="status"
            )
        body = self.content([item])
        answer = await self._transport.send(
            "POST", self._path, content=lambda: body, kind=self._kind, final=final, member="items"
        )
        return items_of(answer, 1)[0]

    def content(self, items: Sequence[bytes]) -> bytes:
        """The body of a request with these items."""
        return b"".join((self._opening, b",".join(items), b"]}"))

    async def aclose(self) -> None:
        """Do nothing: no request outlives its caller."""


class SharedRequests(LoneRequests):
    """Sends the items of concurrent callers together."""

    def __init__(
        self,
        transport: Transport,
        options: ClientOptions,
        *,
        path: str,
        member: str,
        alone_path: str = "",
        kind: RequestKind = RequestKind.ORDINARY,
    ) -> None:
        super().__init__(transport, options, path=path, member=member, alone_path=alone_path, kind=kind)
        self._waiting: list[_Entry] = []
        self._busy = False
        self._sender: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def _enter_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # What a loop that ended had on its way is answered by nobody any more.
            self._loop, self._busy, self._waiting, self._sender = loop, False, [], None

    async def ask(self, item: bytes) -> dict[str, Any]:
        """The answer for one item of JSON. Raises the error that the item would have got alone."""
        self._enter_loop()
        if self._busy:
            return await self._ask_with_others(item)
        self._busy = True
        try:
            return await self._ask_alone(item, final=_OF_ONE_QUEUE)
        except ApiError as error:
            if not self._may_pass(error):
                raise
        finally:
            self._send_next()
        # The queue is full. This item is tried again alone, so that others need not wait for it.
        return await self._ask_alone(item)

    async def _ask_with_others(self, item: bytes) -> dict[str, Any]:
        entry = _Entry(item)
        self._waiting.append(entry)
        try:
            return await entry.answer
        except _SendAlone:
            return await self._ask_alone(item)
        except asyncio.CancelledError:
            self._leave(entry)
            raise

    async def aclose(self) -> None:
        """Give up the request that is on its way, and the items that wait for the next one."""
        closed = Unreachable("the client was closed before the answer came")
        left, self._waiting = self._waiting, []
        _fail(left, closed)
        if self._sender is not None and not self._sender.done():
            self._sender.cancel()
            await asyncio.wait([self._sender])

    def _leave(self, entry: _Entry) -> None:
        """Note that a caller was cancelled. Give up its request if nobody waits for it any more."""
        # If the entry was answered at the same moment, another request may be on its way by now.
        if entry.sharers is None or not entry.answer.cancelled():
            return
        entry.sharers.waiting -= 1
        if entry.sharers.waiting == 0 and self._sender is not None:
            self._sender.cancel()

    def _send_next(self) -> None:
        """After a request has ended, send the next one with the items that wait."""
        self._waiting = [entry for entry in self._waiting if not entry.answer.done()]
        self._busy = bool(self._waiting)
        if self._busy:
            sharers = _Sharers(self._take_batch())
            self._sender = asyncio.get_running_loop().create_task(self._send(sharers))

    def _take_batch(self) -> list[_Entry]:
        """Take the first waiting entries, as many as one request may carry."""
        size = count = 0
        for entry in self._waiting[:MAX_BATCH]:
            size += len(entry.item)
            if count and size > MAX_SHARED_BYTES:
                break
            count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch

    async def _send(self, sharers: _Sharers) -> None:
        try:
            parts = [sharers.entries]
            while parts:
                parts = [*await self._send_part(parts[0]), *parts[1:]]
            # One turn of the loop: callers that were just answered may have their next item ready.
            await asyncio.sleep(0)
        finally:
            _fail(sharers.entries, Unreachable("the client was closed before the answer came"))
            self._send_next()

    async def _send_part(self, entries: Sequence[_Entry]) -> list[Sequence[_Entry]]:
        """Send one request for these entries; returns the parts of them to send again, in order."""
        sent: list[_Entry] = []

        def content() -> bytes:
            # Made for each try: an item whose caller was cancelled since the last try is not sent again.
            sent[:] = [entry for entry in entries if not entry.answer.done()]
            if not sent:
                raise _NobodyWaits
            return self.content([entry.item for entry in sent])

        try:
            answer = await self._transport.send(
                "POST", self._path, content=content, kind=self._kind, final=_OF_ONE_QUEUE, member="items"
            )
            self._hand_out(sent, items_of(answer, len(sent)))
        except _NobodyWaits:
            return []
        except ApiError as error:
            return self._parts_after(error, sent)
        except Exception as error:  # whatever it is, every caller must hear of it
            _fail(sent, error)
        return []

    def _hand_out(self, sent: Sequence[_Entry], answers: Sequence[dict[str, Any]]) -> None:
        for entry, answer in zip(sent, answers, strict=True):
            if entry.answer.done():
                continue
            if self._wants_retries(answer):
                entry.answer.set_exception(_SendAlone)
            else:
                entry.answer.set_result(answer)

    def _wants_retries(self, answer: dict[str, Any]) -> bool:
        """Whether a request with this item alone would have been tried again."""
        problem = answer.get("problem")
        if problem is None or self._options.retry_attempts == 1:
            return False
        return worth_retrying(int(problem.get("status", 0)), self._options)

    def _parts_after(self, error: ApiError, sent: Sequence[_Entry]) -> list[Sequence[_Entry]]:
        """Handle a refusal of the whole request, which single items may have caused; returns new parts."""
        if self._may_pass(error):
            _send_alone(sent)
            return []
        if len(sent) == 1 or error.status in _OF_THE_CALLER:
            _fail(sent, error)
            return []
        if error.status in OF_THE_BODY:
            bad = pointed_at(error)
            if bad is not None and bad < len(sent):
                _send_alone(sent[bad : bad + 1])
                return [[*sent[:bad], *sent[bad + 1 :]]]
            middle = len(sent) // 2
            return [sent[:middle], sent[middle:]]
        if error.can_pass:
            # The whole request was tried again already.
            _fail(sent, error)
        else:
            # Every item was refused, each for a reason of its own.
            _send_alone(sent)
        return []

    def _may_pass(self, error: ApiError) -> bool:
        """Whether single queues caused the refusal, and each item is to be tried again."""
        return error.code in _OF_ONE_QUEUE and self._options.retry_attempts > 1


def items_of(answer: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """The answer per item; Unreachable if something in front of the server answered in its place."""
    items = answer.get("items")
    if not isinstance(items, list) or len(items) != count:
        raise Unreachable("the answer is not one of Weir; does something else answer at this URL?")
    return items


_OF_ONE_QUEUE = (QueueFull.code,)
"""Codes of refusals that the queue of an item causes. Items of other queues may succeed."""
_OF_THE_CALLER = (401, 403)
"""Statuses of refusals that every item would get, because they are about the token."""
OF_THE_BODY = (400, 413, 422)
"""Statuses of refusals that a single bad item may have caused."""


def pointed_at(error: ApiError) -> int | None:
    """The index of the item that a refusal names; None if it names no item."""
    for place in error.problem.get("errors", ()):
        found = _POINTER.match(str(place.get("pointer", "")))
        if found is not None:
            return int(found[1])
    return None


def _send_alone(entries: Sequence[_Entry]) -> None:
    for entry in entries:
        if not entry.answer.done():
            entry.answer.set_exception(_SendAlone)


def _fail(entries: Sequence[_Entry], error: Exception) -> None:
    for entry in entries:
        if not entry.answer.done():
            entry.answer.set_exception(_another(error))


def _another(error: Exception) -> Exception:
    """A copy of the error, so that each caller has its own: raising an error adds a traceback to it."""
    if isinstance(error, ApiError):
        return ApiError(error.status, error.problem, retry_after=error.retry_after)
    return Unreachable(str(error)) if isinstance(error, ClientError) else error
