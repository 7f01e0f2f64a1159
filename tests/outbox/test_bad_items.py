"""A row that cannot be sent, a page of a proxy, a process that ends: each costs only its own row or queue."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx2
import psycopg
import pytest

from outbox.world import World
from support.waiting import until
from weir.client.core import AsyncWeir
from weir.client.values import OutgoingMessage, PushResult
from weir.errors import InvalidInput
from weir.model.asyncio_tasks import cancel_and_wait
from weir.model.backoff import Backoff
from weir.model.message import Delivery
from weir.outbox import apush, batch_push, migrate, relay, relaying
from weir.spec.ir import Ordering, QueueSpec, Retention

DEEP = "[" * 3_000 + "]" * 3_000


@pytest.fixture(autouse=True)
def _brief_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaying, "HOLD", Backoff(first_s=0.05, longest_s=0.1))
    monkeypatch.setattr(relaying, "RECONNECT", Backoff(first_s=0.01, longest_s=0.1))


async def insert(world: World, payload: str, *, headers: str | None = None, queue: str = "receipts") -> None:
    """Write a row past the checks of a push, as an older release or a person could have."""
    async with await psycopg.AsyncConnection.connect(world.url) as connection:
        await connection.execute(
            "INSERT INTO weir_outbox.messages (id, queue, payload, is_json, headers) "
            "VALUES (gen_random_uuid(), %s, %s, true, %s)",
            (queue, payload.encode(), headers),
        )


async def push_all(
    world: World, values: Sequence[Any], *, queue: str = "receipts", key: str | None = None
) -> None:
    async with await psycopg.AsyncConnection.connect(world.url) as connection:
        for value in values:
            await apush(connection, queue, value, key=key)


async def set_aside(world: World) -> list[str]:
    """The reasons of the rows that are left, once all of them were set aside."""
    rows = await world.rows("failed_at, problem, position")
    return [row["problem"] for row in rows] if rows and all(row["failed_at"] for row in rows) else []


def values(deliveries: Sequence[Delivery]) -> list[Any]:
    return [json.loads(one.payload) for one in deliveries]


@pytest.mark.parametrize(
    ("payload", "headers", "reason"),
    [
        (DEEP, None, "depth limit"),
        ("[" * 65 + "]" * 65, None, "nests deeper than 64 levels"),
        ("9" * 5_001, None, "not valid JSON"),
        ('"\\ud83d"', None, "not valid JSON"),
        ("{", None, "not valid JSON"),
        ("1", "not JSON", "JSONDecodeError"),
    ],
    ids=["3,000 levels", "65 levels", "5,001 digits", "half an emoji", "half a text", "headers"],
)
async def test_a_row_that_cannot_be_read_is_set_aside_and_the_others_arrive(
    world: World, payload: str, headers: str | None, reason: str
) -> None:
    await push_all(world, range(5))
    await insert(world, payload, headers=headers)
    await push_all(world, range(5, 10))
    async with world.relaying():
        (problem,) = await until(lambda: set_aside(world))
    assert reason in problem
    assert sorted(values(await world.take())) == list(range(10))


@contextmanager
def any_recursion() -> Any:
    """A program that raised Python's own limits."""
    before, digits = sys.getrecursionlimit(), sys.get_int_max_str_digits()
    sys.setrecursionlimit(20_000)
    sys.set_int_max_str_digits(0)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
        sys.set_int_max_str_digits(digits)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "payload",
    [nested(65), nested(3_000), 10**400, 10**5_000, {"name": "\ud83d"}, {"\ud83d": 1}],
    ids=["65 levels", "3,000 levels", "400 digits", "5,000 digits", "half an emoji", "half a name"],
)
async def test_what_the_api_would_refuse_is_refused_before_the_transaction_commits(
    world: World, payload: Any
) -> None:
    async with await psycopg.AsyncConnection.connect(world.url) as connection:
        with any_recursion(), pytest.raises(InvalidInput, match="payload"):
            await apush(connection, "receipts", payload)
        # 64 levels and an integer of any size that a number of JSON may have are taken.
        await apush(connection, "receipts", nested(64))
        await apush(connection, "receipts", 10**300)
    async with world.relaying():
        await until(world.empty)
    assert len(await world.take()) == 2


class Front(httpx2.AsyncBaseTransport):
    """Something in front of the API that answers in its place for a while."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, *, status: int, answers: int) -> None:
        self._inner = inner
        self._status = status
        self.answers_left = answers
        self.gone = asyncio.Event()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self.answers_left == 0:
            self.gone.set()
            return await self._inner.handle_async_request(request)
        self.answers_left -= 1
        page = "<html><body>Down for maintenance</body></html>"
        return httpx2.Response(self._status, text=page, headers={"content-type": "text/html"})


@pytest.mark.parametrize("status", [200, 400, 404, 413, 422, 502])
async def test_a_page_of_a_proxy_sets_nothing_aside(world: World, status: int) -> None:
    await push_all(world, range(50), key="k")
    inner = world.http._transport
    front = Front(inner, status=status, answers=3)
    async with httpx2.AsyncClient(transport=front) as http:
        weir = AsyncWeir("http://weir", token="t", retry_attempts=1, http=http)
        async with world.relaying(weir):
            await until(world.empty)
    assert front.answers_left == 0
    assert values(await world.take()) == list(range(50))


class Odd(AsyncWeir):
    """A client that fails in a way that nobody foresaw, or hangs, when a push holds a certain payload."""

    def __init__(self, inner: AsyncWeir, at: Callable[[], Awaitable[None]]) -> None:
        self._inner = inner
        self._at = at

    async def push_many(self, messages: Sequence[OutgoingMessage]) -> list[PushResult]:
        if any(message.payload == "poison" for message in messages):
            await self._at()
        return await self._inner.push_many(messages)


async def test_a_row_whose_push_raises_is_given_up_and_the_others_arrive(world: World) -> None:
    async def fail() -> None:
        raise LookupError("nobody foresaw this")

    await push_all(world, [0, "poison", 1, 2], key="k")
    await push_all(world, range(3, 20))
    async with world.relaying(Odd(world.weir, fail)):
        (problem,) = await until(lambda: set_aside(world))
    assert problem == "given up after 5 tries: LookupError: nobody foresaw this"
    assert sorted(values(await world.take())) == list(range(20))


async def test_a_push_that_hangs_ends_and_holds_up_no_other_part(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung = asyncio.Event()

    async def hang() -> None:
        hung.set()
        await asyncio.Event().wait()

    await push_all(world, ["poison"], key="k")
    await push_all(world, range(40))
    async with world.relaying(Odd(world.weir, hang)):
        await hung.wait()

        async def others_arrived() -> bool:
            return (await world.broker.state(world.queue)).depth >= 20

        await until(others_arrived)
    monkeypatch.setattr(batch_push, "PUSH_S", 0.05)
    tries = iter([hang])

    async def hang_once() -> None:
        for work in tries:
            await work()

    async with world.relaying(Odd(world.weir, hang_once)):
        await until(world.empty)
    assert len(await world.take()) == 41


async def test_a_row_that_ends_its_relay_is_found_and_set_aside(world: World) -> None:
    """The rows around it may arrive before or after, but all arrive, and none of them is set aside."""
    killed = asyncio.Event()

    async def kill() -> None:
        killed.set()
        await asyncio.Event().wait()

    await push_all(world, range(30), key="k")
    await push_all(world, ["poison"], key="k")
    await push_all(world, range(30, 60), key="k")
    await push_all(world, range(60, 80))
    deaths = 0
    while not await set_aside(world):
        async with dying(world, Odd(world.weir, kill), killed):
            await until(lambda: _ended(world, killed))
        deaths += killed.is_set()
        killed.clear()
        assert deaths < 40
    (problem,) = await set_aside(world)
    assert problem == "given up after 5 tries: the relay that pushed it ended each time"
    found = values(await world.take())
    assert sorted(found) == list(range(80))
    assert [value for value in found if value < 60] == list(range(60))


async def _ended(world: World, killed: asyncio.Event) -> bool:
    return killed.is_set() or bool(await set_aside(world))


@asynccontextmanager
async def dying(world: World, weir: AsyncWeir, killed: asyncio.Event) -> AsyncIterator[None]:
    task = asyncio.create_task(relay(world.url, weir))
    try:
        yield
    finally:
        await cancel_and_wait([task])


async def test_order_holds_when_a_queue_is_full_for_the_first_part_of_a_batch(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer makes room after every call. So a second part that is sent at once would be taken."""
    small = world.queue.scope.queue("small")
    await world.broker.define(
        small, QueueSpec(name="small", ordering=Ordering.PER_KEY, retention=Retention(max_depth=100))
    )
    arrived: list[int] = []
    enqueue = world.broker.enqueue

    async def enqueue_and_make_room(*arguments: Any, **options: Any) -> Any:
        answers = await enqueue(*arguments, **options)
        arrived.extend(value[0] for value in values(await world.take(small)))
        return answers

    monkeypatch.setattr(world.broker, "enqueue", enqueue_and_make_room)
    await push_all(world, [[number, "x" * 700] for number in range(1_500)], queue="small", key="k")
    async with world.relaying():
        await until(world.empty)
    assert arrived == list(range(1_500))


async def test_messages_of_a_held_queue_are_not_walked_through_at_every_look(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relaying, "HOLD", Backoff(first_s=600.0, longest_s=600.0))
    monkeypatch.setattr(relaying, "FULL_LOOK_S", 600.0)
    looks: list[list[int]] = []
    fetch = relaying._Session.fetch

    async def watched(self: Any, query: Any, **parameters: Any) -> Any:
        if query.name == "parts_waiting":
            looks.append(parameters["after"])
        return await fetch(self, query, **parameters)

    monkeypatch.setattr(relaying._Session, "fetch", watched)
    await push_all(world, range(2_000), queue="missing")
    async with world.relaying():
        # Each part knows where its held messages end.
        await until(lambda: _known(looks))
        await push_all(world, range(20))
        await until(lambda: _left(world, 2_000))
    assert (await world.broker.state(world.queue)).depth == 20


async def _known(looks: list[list[int]]) -> bool:
    return bool(looks) and len(looks[-1]) == relaying.PARTS and min(looks[-1]) > 0


async def _left(world: World, count: int) -> bool:
    return len(await world.rows("id, position")) == count


async def run(world: World, *words: str) -> tuple[int, str]:
    """The status and the output of a command."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "weir.cli", "outbox", *words, "--database", world.url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


async def test_rows_that_were_set_aside_are_listed_shown_and_sent_again(world: World) -> None:
    await push_all(world, [1, 2], key="k")
    await insert(world, "{")
    async with world.relaying():
        await until(lambda: set_aside(world))
    _, listed = await run(world, "list", "--json")
    (row,) = json.loads(listed)
    assert (row["queue"], "not valid JSON" in row["problem"]) == ("receipts", True)
    shown = json.loads((await run(world, "show", row["id"], "--json"))[1])
    assert (shown["payload"], shown["payload_bytes"], shown["failed_at_ms"] > 0) == ("{", 1, True)
    async with await psycopg.AsyncConnection.connect(world.url) as connection:
        await connection.execute("UPDATE weir_outbox.messages SET payload = '3'")
    assert await run(world, "retry", row["id"]) == (0, "1 message will be pushed again\n")
    assert await run(world, "retry", "--all") == (0, "0 messages will be pushed again\n")
    async with world.relaying():
        await until(world.empty)
    assert sorted(values(await world.take())) == [1, 2, 3]


async def test_a_retry_says_which_messages(world: World) -> None:
    status, output = await run(world, "retry")
    assert status
    assert "give the ids of messages, or `--all`" in output


async def test_a_relay_says_how_to_bring_an_older_outbox_up_to_date_and_goes_on_after_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await push_all(world, [1])
    async with await psycopg.AsyncConnection.connect(world.url) as connection:
        await connection.execute("DROP TABLE weir_outbox.parts")

    async def told() -> bool:
        return "run `weir outbox migrate`" in caplog.text

    async with world.relaying():
        await until(told)
        await migrate(world.url)
        await until(world.empty)
