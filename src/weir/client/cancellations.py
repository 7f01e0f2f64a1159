"""Finds the messages of a consumer that were cancelled, so that their handlers stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from weir.client.core import AsyncWeir
from weir.client.errors import ApiError, ClientError
from weir.client.values import ReceivedMessage
from weir.model.handling import CANCELLATION_LOOK_S


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watched:
    message: ReceivedMessage
    since: float
    stop: Callable[[], object]


class CancelledMessages:
    """Asks the server about messages that have been watched for a while, and stops the cancelled ones."""

    def __init__(self, weir: AsyncWeir, *, look_every_s: float = CANCELLATION_LOOK_S) -> None:
        self._weir = weir
        self._look_every_s = look_every_s
        self._watched: dict[str, _Watched] = {}

    def watch(self, message: ReceivedMessage, *, stop: Callable[[], object]) -> None:
        """Call `stop` if the message is cancelled, until it is forgotten."""
        self._watched[message.lease] = _Watched(message=message, since=time.monotonic(), stop=stop)

    def forget(self, message: ReceivedMessage) -> None:
        self._watched.pop(message.lease, None)

    async def run(self) -> None:
        """Ask until cancelled, or until the server refuses the question."""
        while True:
            await asyncio.sleep(self._look_every_s)
            try:
                await self._look()
            except ApiError as error:
                # An older server does not know this request. The next renewal of the lease fails instead.
                if not error.can_pass:
                    return
            except ClientError:
                continue

    async def _look(self) -> None:
        since = time.monotonic() - self._look_every_s
        asked = [one for one in self._watched.values() if one.since <= since]
        if not asked:
            return
        answers = await self._weir.revoked([one.message for one in asked])
        for one, is_revoked in zip(asked, answers, strict=True):
            # It may have ended during the request.
            if is_revoked and one.message.lease in self._watched:
                one.stop()
