"""What the heavy tenant of `weir bench neighbour` does: one entry per deed."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx2

from benches.lives_rows import ENVIRONMENT as HEAVY
from benches.neighbour_house import DEAD_LARGE, PURGED_LARGE, House, kill, worst_queue
from benches.worst_expressions import worst_expressions
from weir.model.ids import new_id
from weir.model.message import NewMessage

AT_ONCE = 4
"""Requests that a deed has in progress, unless it says otherwise."""
_LETTERS = "/api/v1/dlq/letters"
_REDRIVES = "/api/v1/dlq/redrives"
_TASKS = "/api/v1/dlq/tasks"
_LOOK_S = 10.0
_OVER = ("completed", "failed", "cancelled", "stopped_by_canary")
_OPEN = ("/livez", "/readyz", "/metrics", "/openapi.json", "/", "/dlq-status", "/nothing", "/hook/none")


@dataclass(slots=True, kw_only=True)
class Did:
    """What a deed achieved: its answers by status, and what its bulk actions did."""

    answers: Counter[str] = field(default_factory=Counter)
    letters: Counter[str] = field(default_factory=Counter)

    @property
    def only_refused(self) -> bool:
        """Whether nothing of it was taken, so that the pushes beside it say little."""
        return not any(status.startswith("2") for status in self.answers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Doer:
    """The heavy tenant, until the end of one deed."""

    house: House
    client: httpx2.AsyncClient
    until_s: float
    did: Did

    @property
    def goes_on(self) -> bool:
        return time.monotonic() < self.until_s

    async def ask(self, method: str, path: str, **options: Any) -> httpx2.Response | None:
        """One request; its status is noted. None if it has no answer when the deed ends."""
        try:
            async with asyncio.timeout(max(1.0, self.until_s - time.monotonic())):
                answer = await self.client.request(method, path, **options)
        except (TimeoutError, httpx2.HTTPError) as error:
            self.did.answers[type(error).__name__] += 1
            return None
        self.did.answers[str(answer.status_code)] += 1
        return answer

    async def repeat(self, step: Callable[[], Awaitable[object]], *, at_once: int = AT_ONCE) -> None:
        """Do the same again and again until the deed ends."""

        async def one() -> None:
            while self.goes_on:
                await step()

        await asyncio.gather(*(one() for _ in range(at_once)))

    async def act(self, path: str, **body: Any) -> None:
        """A bulk action, watched until it is over; it is cancelled when the deed ends."""
        answer = await self.ask("POST", path, json=body)
        if answer is None or not answer.is_success:
            await asyncio.sleep(0.1)
            return
        task = answer.json()
        while task["state"] not in _OVER and self.goes_on:
            await asyncio.sleep(0.1)
            task = await self._look("GET", f"{_TASKS}/{task['id']}") or task
        if task["state"] not in _OVER:
            await self._look("POST", f"{_TASKS}/{task['id']}/cancel")
        self.did.letters[task["state"]] += 1
        self.did.letters["scanned"] += task["scanned"]
        self.did.letters["done"] += task["done"]

    async def _look(self, method: str, path: str) -> dict[str, Any] | None:
        """A request that is not part of the deed; None without a good answer."""
        try:
            answer = await self.client.request(method, path, timeout=_LOOK_S)
        except httpx2.HTTPError as error:
            self.did.answers[f"{type(error).__name__} on a look"] += 1
            return None
        found: dict[str, Any] | None = answer.json() if answer.is_success else None
        return found


Deed = Callable[[Doer], Awaitable[None]]


async def _nothing(doer: Doer) -> None:
    await asyncio.sleep(max(0.0, doer.until_s - time.monotonic()))


def _asks(method: str, path: str, **options: Any) -> Deed:
    """Ask the same again and again."""
    return lambda doer: doer.repeat(lambda: doer.ask(method, path, **options))


def _acts(kind: str, **body: Any) -> Deed:
    """One bulk action after the other."""
    return lambda doer: doer.repeat(lambda: doer.act(f"/api/v1/dlq/{kind}", **body), at_once=1)


def _pop(queue: str) -> Deed:
    return _asks("POST", "/api/v1/pop", json={"queue": queue, "limit": 1_000, "lease_ms": 1_000})


def _cancel(queue: str) -> Deed:
    path = f"/api/v1/queues/{queue}/messages/cancellations"
    return lambda doer: doer.repeat(lambda: doer.act(path, filter={"text": "never"}), at_once=1)


async def _look_at_lives(doer: Doer) -> None:
    """Ended messages by key, by time and by id."""
    listed = await doer.ask("GET", "/api/v1/search?q=key-0001")
    found = [] if listed is None or not listed.is_success else listed.json()["messages"]
    ids = [one["message_id"] for one in found] or [new_id()]
    numbers = count()

    async def look() -> None:
        number = next(numbers)
        await doer.ask("GET", f"/api/v1/messages/{ids[number % len(ids)]}")
        await doer.ask("GET", f"/api/v1/search?q=key-{number % 10_000:04x}")

    await doer.repeat(look)


async def _search_log(doer: Doer) -> None:
    numbers = count()
    wheres = ("", f"&where={quote('payload.l.size() == 1')}", "&key=key-0001")

    async def look() -> None:
        await doer.ask("GET", f"/api/v1/queues/logged/log?limit=200{wheres[next(numbers) % len(wheres)]}")

    await doer.repeat(look)


async def _evaluate(doer: Doer) -> None:
    """The worst expressions as a filter of letters, as a patch, and over a log."""
    expressions, numbers = worst_expressions(), count()

    async def evaluate() -> None:
        name, text = expressions[next(numbers) % len(expressions)]
        await doer.ask("GET", f"/api/v1/queues/logged/log?limit=5&where={quote(text)}")
        worst = {"queue": worst_queue(name)}
        await doer.act(_REDRIVES, filter={**worst, "expression": text}, dry_run=True)
        await doer.act(_REDRIVES, filter=worst, patch=f"{{'n': {text}}}", dry_run=True)

    await doer.repeat(evaluate)


async def _plan(doer: Doer) -> None:
    queues = "\n".join(f"  queue planned{number} {{}}" for number in range(doer.house.size.planned))
    source = {"source": f"app Planned {{\n{queues}\n}}"}
    await doer.repeat(lambda: doer.ask("POST", "/api/v1/spec/plan", json=source))


async def _call_late(doer: Doer) -> None:
    """Named calls whose numbers go back."""

    async def call() -> None:
        slot = str(uuid4())
        for number in (2, 1, 1):
            named = {"slot": slot, "number": number, "first_id": new_id()}
            body = {"call": named, "items": [{"queue": "redrive-me", "payload": number}]}
            await doer.ask("POST", "/api/v1/push", json=body)

    await doer.repeat(call)


async def _notify(doer: Doer, config: dict[str, Any], kind: str) -> None:
    """Test an alert channel again and again."""
    path = f"/api/v1/alert-channels/{kind}-of-bench"
    await doer.ask("PUT", path, json={"kind": kind, "config": config})
    await doer.repeat(lambda: doer.ask("POST", f"{path}/test"))
    await doer.ask("DELETE", path)


async def _hanging_receiver(doer: Doer) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        await _notify(doer, {"url": f"http://127.0.0.1:{port}/hang"}, "webhook")


async def _odd_mail_server(doer: Doer) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            writer.write("220 gr\xfc\xdfe\r\n".encode("latin-1"))
            while await reader.readline():
                writer.write("550-n\xf6\r\n250 \xff\xfe\r\n999 what\r\n".encode("latin-1"))
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        mail = {"host": "127.0.0.1", "port": server.sockets[0].getsockname()[1], "tls": "none"}
        await _notify(doer, {**mail, "from": "a@example.com", "to": ["b@example.com"]}, "email")


async def _poll(doer: Doer) -> None:
    """Long polls that nobody answers, opened as fast as they are taken."""
    body = b'{"queue":"empty","wait_ms":20000}'
    request = (
        "POST /api/v1/pop HTTP/1.1\r\nhost: weir\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {doer.house.heavy}\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body

    async def poll() -> None:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", doer.house.port)
        except OSError as error:
            doer.did.answers[type(error).__name__] += 1
            return
        try:
            writer.write(request)
            async with asyncio.timeout(max(0.0, doer.until_s - time.monotonic())):
                doer.did.answers[(await reader.readuntil(b"\r\n\r\n"))[9:12].decode()] += 1
        except TimeoutError:
            # It waits, as it should.
            doer.did.answers["200"] += 1
        except (OSError, asyncio.IncompleteReadError) as error:
            doer.did.answers[type(error).__name__] += 1
        finally:
            writer.transport.abort()

    await asyncio.gather(*(poll() for _ in range(doer.house.size.polls)))


async def _die(doer: Doer) -> None:
    """Messages die by the thousand; the API moves them."""
    left = doer.house.size.deaths
    queue = HEAVY.queue("dying")
    while left > 0 and doer.goes_on:
        await doer.house.broker.enqueue(queue, [NewMessage(payload=b'{"n":1}') for _ in range(1_000)])
        doer.did.letters["died"] += await kill(doer.house.broker, "dying", 1_000)
        doer.did.answers["201"] += 1
        left -= 1_000
    await _nothing(doer)


async def _be_strange(doer: Doer) -> None:
    """A hundred connections without a credential, each with thirty requests ahead, and nothing is read."""
    numbers = count()

    async def flood(stack: AsyncExitStack) -> None:
        path = _OPEN[next(numbers) % len(_OPEN)]
        request = f"GET {path} HTTP/1.1\r\nhost: weir\r\n\r\n".encode()
        _, writer = await asyncio.open_connection("127.0.0.1", doer.house.port, limit=1)
        # With the smallest limit asyncio soon stops reading by itself.
        stack.callback(writer.transport.abort)
        writer.write(30 * request)
        doer.did.answers["2xx, unread"] += 30

    while doer.goes_on:
        async with AsyncExitStack() as stack:
            with suppress(OSError):
                await asyncio.gather(*(flood(stack) for _ in range(100)))
            await asyncio.sleep(min(1.0, max(0.0, doer.until_s - time.monotonic())))


DEEDS: dict[str, Deed] = {
    "idle": _nothing,
    "pop_large": _pop("large"),
    "pop_small": _pop("small"),
    "list_large": _asks("GET", "/api/v1/queues/large/messages?limit=200"),
    "list_small": _asks("GET", "/api/v1/queues/small/messages?limit=200&text=never"),
    "letters_large": _asks("GET", f"{_LETTERS}?queue={DEAD_LARGE}&limit=500"),
    "letters_small": _asks("GET", f"{_LETTERS}?queue=consumer-000&limit=500"),
    "search": _asks("GET", "/api/v1/search?q=never"),
    "cancel_large": _cancel("large"),
    "cancel_small": _cancel("small"),
    "dry_run_large": _acts(
        "redrives", filter={"queue": DEAD_LARGE, "expression": "payload.s == 'never'"}, dry_run=True
    ),
    "dry_run_small": _acts(
        "redrives", filter={"queue": "consumer-000", "expression": "payload.order < 0"}, dry_run=True
    ),
    "patch_large": _acts("redrives", filter={"queue": DEAD_LARGE}, patch="{'n': 1}", dry_run=True),
    "patch_small": _acts("redrives", filter={"queue": "consumer-000"}, patch="{'n': 1}", dry_run=True),
    "redrive_large": _acts("redrives", filter={"queue": DEAD_LARGE}),
    "redrive_small": _acts("redrives", filter={"queue": "redrive-me"}),
    "purge_large": _acts("purges", filter={"queue": PURGED_LARGE}, include_unexhausted=True),
    "purge_small": _acts("purges", filter={"queue": "purge-me"}),
    "lives": _look_at_lives,
    "log": _search_log,
    "expressions": _evaluate,
    "plans": _plan,
    "stale_calls": _call_late,
    "hanging_receiver": _hanging_receiver,
    "odd_mail_server": _odd_mail_server,
    "long_polls": _poll,
    "deaths": _die,
    "strangers": _be_strange,
}
"""The idle control comes first. What a deed uses up, such as letters, no later one needs."""
