"""Looks up queues, messages and dead letters, as the server shows them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from weir.client.errors import ApiError
from weir.client.options import ClientOptions
from weir.client.transport import Transport


class AsyncLookups:
    """The part of `AsyncWeir` that looks things up and changes nothing."""

    options: ClientOptions
    _transport: Transport

    async def ping(self) -> None:
        """Ask whether the server answers and knows the token. Raises `Unreachable` or `ApiError` if not.

        ```python
        await weir.ping()
        ```
        """
        await self._transport.send("GET", "/api/v1/me", member="token_id")

    async def queue(self, name: str) -> dict[str, Any]:
        """A queue right now: its definition and how many messages wait, run or are delayed.

        ```python
        orders = await weir.queue("orders")
        ```
        """
        return await self._transport.send("GET", queue_path(name))

    async def message(self, message_id: str) -> dict[str, Any]:
        """Everything about a message: its state, its payload while it waits, its attempts and its timeline.

        ```python
        (taken,) = await weir.pop("orders")
        print((await weir.message(taken.id))["state"])
        ```

        The members are as in `GET /api/v1/messages/{message_id}`. Raises `ApiError` with the status 404 if
        nothing is known about it.
        """
        return await self._transport.send("GET", message_path(message_id), member="state")

    async def find_message(self, queue: str, *, idempotency_key: str) -> str | None:
        """The id of the message that was pushed with an idempotency key; None if the key is not remembered.

        ```python
        await weir.push("orders", {"order": 42}, idempotency_key="order-42")
        found = await weir.find_message("orders", idempotency_key="order-42")
        ```
        """
        query = urlencode({"idempotency_key": idempotency_key}, quote_via=quote)
        try:
            answer = await self._transport.send(
                "GET", f"{queue_path(queue)}/messages/find?{query}", member="message_id"
            )
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return str(answer["message_id"])

    async def dead_letter(self, message_id: str, *, queue: str) -> dict[str, Any]:
        """A dead letter: the message that died, its error and what became of it.

        ```python
        letter = await weir.dead_letter(message_id, queue="orders")
        ```

        The members are as in `GET /api/v1/dlq/letters/{letter_id}`. A message becomes a dead letter about
        a second after its death. Until then this raises `ApiError` with the status 404.
        """
        path = f"/api/v1/dlq/letters/{quote(message_id, safe='')}?queue={quote(queue, safe='')}"
        return await self._transport.send("GET", path)


def message_path(message_id: str) -> str:
    return f"/api/v1/messages/{quote(message_id, safe='')}"


def queue_path(queue: str) -> str:
    return f"/api/v1/queues/{quote(queue, safe='')}"
