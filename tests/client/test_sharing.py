"""Concurrent pushes and acks share requests, and each caller gets what it would have got alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.harness import Tenant, define
from client.test_client import client, document
from support.tcp_proxy import TcpProxy
from support.waiting import until
from weir import ApiError, AsyncWeir, PushResult, ReceivedMessage, Unreachable
from weir.api.services import Services

FULL = {"status": 503, "code": "queue_full"}
NO_QUEUE = {"status": 404, "code": "not_found"}


class Server:
    """Keeps what it accepts, once per idempotency key, and refuses as its items ask for.

    A payload is `[kind, name]`. The kind `misplaced` refuses the whole request and names the item, `unnamed`
    does not name it, `full` is refused the first time, `always full` and `no queue` always.
    """

    def __init__(self, *, lose: Sequence[int] = ()) -> None:
        self.kept: dict[str, str] = {}
        """The name of each message by its key, in the order in which they came."""
        self.requests: list[list[str]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.arrived = asyncio.Event()
        self._lose = set(lose)
        """The numbers of requests that take effect and whose answers are lost."""
        self._full: set[str] = set()

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        items = json.loads(request.content)["items"]
        self.requests.append([item["payload"][1] for item in items])
        number = len(self.requests) - 1
        self.arrived.set()
        # As long as on a network: others run meanwhile.
        for _ in range(3):
            await asyncio.sleep(0)
        await self.open.wait()
        answer = self._answer(items)
        if number in self._lose:
            raise httpx2.ReadError("lost")
        return answer

    def _answer(self, items: list[dict[str, Any]]) -> httpx2.Response:
        kinds = [item["payload"][0] for item in items]
        for at, kind in enumerate(kinds):
            if kind == "misplaced":
                errors = [{"pointer": f"#/items/{at}/priority", "detail": "no"}]
                return _problem({"status": 422, "code": "invalid_input", "errors": errors})
        if "unnamed" in kinds:
            return _problem({"status": 422, "code": "invalid_input"})
        answers = [self._take(item) for item in items]
        problems = [answer["problem"] for answer in answers if "problem" in answer]
        if len(problems) == len(answers):
            return _problem(max(problems, key=lambda problem: problem["status"]))
        return httpx2.Response(201, json={"items": answers})

    def _take(self, item: dict[str, Any]) -> dict[str, Any]:
        (kind, name), key = item["payload"], item["idempotency_key"]
        if kind == "no queue":
            return {"status": "refused", "problem": NO_QUEUE}
        if kind == "always full" or (kind == "full" and key not in self._full):
            self._full.add(key)
            return {"status": "refused", "problem": FULL}
        known = key in self.kept
        self.kept.setdefault(key, name)
        return {"status": "duplicate" if known else "accepted", "id": name}


def _problem(document: dict[str, Any]) -> httpx2.Response:
    return httpx2.Response(document["status"], json=document)


async def push(weir: AsyncWeir, kind: str, name: str) -> PushResult | ApiError:
    try:
        return await weir.push("q", [kind, name])
    except ApiError as error:
        return error


def told(result: PushResult | ApiError) -> str | int | None:
    return result.status if isinstance(result, ApiError) else result.id


async def push_behind_another(
    weir: AsyncWeir, server: Server, *kinds: str
) -> tuple[asyncio.Task[Any], list[asyncio.Task[PushResult | ApiError]]]:
    """One push that is on its way, and others that wait for its answer."""
    server.open.clear()
    first = asyncio.create_task(push(weir, "good", "first"))
    async with asyncio.timeout(5):
        await server.arrived.wait()
    others = [asyncio.create_task(push(weir, kind, f"{kind} {at}")) for at, kind in enumerate(kinds)]
    await asyncio.sleep(0)
    return first, others


async def test_what_arrives_while_a_request_is_on_its_way_goes_with_the_next_one() -> None:
    server = Server()
    async with client(server) as weir:
        first, others = await push_behind_another(weir, server, *["good"] * 50)
        server.open.set()
        results = await asyncio.gather(first, *others)
    names = [f"good {at}" for at in range(50)]
    assert [told(result) for result in results] == ["first", *names]
    assert server.requests == [["first"], names]


async def test_a_push_alone_waits_for_nobody() -> None:
    server = Server()
    async with client(server) as weir:
        for at in range(3):
            await push(weir, "good", str(at))
    assert server.requests == [["0"], ["1"], ["2"]]


@pytest.mark.parametrize(
    ("kind", "answer"),
    [("misplaced", 422), ("unnamed", 422), ("no queue", 404), ("full", "full 2")],
)
async def test_an_item_that_makes_trouble_fails_its_caller_alone(kind: str, answer: str | int) -> None:
    server = Server()
    async with client(server) as weir:
        first, others = await push_behind_another(weir, server, "good", "good", kind, "good", "good")
        server.open.set()
        results = await asyncio.gather(first, *others)
    good = ["first", "good 0", "good 1", "good 3", "good 4"]
    assert [told(result) for result in results] == [*good[:3], answer, *good[3:]]
    assert [name for name in server.kept.values() if name != "full 2"] == good


async def test_when_every_item_is_refused_each_caller_gets_its_own_reason() -> None:
    server = Server()
    async with client(server, retry_attempts=2) as weir:
        first, others = await push_behind_another(weir, server, "no queue", "always full", "no queue")
        server.open.set()
        assert [told(result) for result in await asyncio.gather(*others)] == [404, 503, 404]
        await first


@pytest.mark.parametrize("place", ["first", "behind another"])
async def test_nobody_waits_for_the_retries_of_a_full_queue(place: str) -> None:
    server = Server()
    async with client(server, retry_delay=3_600, max_retry_delay=3_600) as weir, asyncio.timeout(5):
        if place == "behind another":
            first, (full,) = await push_behind_another(weir, server, "always full")
            server.open.set()
            await first
        else:
            full = asyncio.create_task(push(weir, "always full", "full"))
        await until(lambda: any("full" in name for names in server.requests for name in names))
        assert told(await push(weir, "good", "behind")) == "behind"
        full.cancel()


async def test_a_body_that_is_too_long_is_divided() -> None:
    sizes: list[int] = []
    waiting = asyncio.Event()

    async def serve(request: httpx2.Request) -> httpx2.Response:
        items = json.loads(request.content)["items"]
        sizes.append(len(items))
        await waiting.wait()
        if len(items) > 3:
            return _problem({"status": 413, "code": "too_large"})
        return httpx2.Response(
            201, json={"items": [{"status": "accepted", "id": item["payload"][1]} for item in items]}
        )

    async with client(serve) as weir:
        pushes = [asyncio.create_task(push(weir, "good", str(at))) for at in range(9)]
        await asyncio.sleep(0)
        waiting.set()
        assert [told(await one) for one in pushes] == [str(at) for at in range(9)]
    assert sizes == [1, 8, 4, 2, 2, 4, 2, 2]


async def test_large_items_are_spread_over_requests() -> None:
    server = Server()
    async with client(server) as weir:
        first, _ = await push_behind_another(weir, server)
        others = [asyncio.create_task(push(weir, "good", letter * 200_000)) for letter in "abcd"]
        await asyncio.sleep(0)
        server.open.set()
        await asyncio.gather(first, *others)
    assert [len(names) for names in server.requests] == [1, 2, 2]


async def test_an_item_whose_caller_was_cancelled_is_not_sent() -> None:
    server = Server()
    async with client(server) as weir:
        first, (one, other) = await push_behind_another(weir, server, "good", "good")
        one.cancel()
        await asyncio.sleep(0)
        server.open.set()
        assert told(await other) == "good 1"
        await first
    assert server.requests == [["first"], ["good 1"]]


async def test_a_caller_that_gives_up_in_mid_request_disturbs_nobody() -> None:
    server = Server()
    async with client(server) as weir:
        first, others = await push_behind_another(weir, server, "good", "good")
        server.arrived.clear()
        server.open.set()
        await first
        server.open.clear()
        async with asyncio.timeout(5):
            await server.arrived.wait()
        others[0].cancel()
        await asyncio.sleep(0)
        server.open.set()
        assert told(await others[1]) == "good 1"


async def test_a_shared_request_that_nobody_waits_for_any_more_is_given_up() -> None:
    server = Server()
    async with client(server) as weir:
        first, others = await push_behind_another(weir, server, "good", "good")
        server.arrived.clear()
        server.open.set()
        await first
        server.open.clear()
        async with asyncio.timeout(5):
            await server.arrived.wait()
        for one in others:
            one.cancel()
        await asyncio.wait(others)
        # The server holds the second request back for ever, and still the next push goes out.
        server.arrived.clear()
        late = asyncio.create_task(push(weir, "good", "late"))
        async with asyncio.timeout(5):
            await server.arrived.wait()
            server.open.set()
            assert told(await late) == "late"


async def test_a_retry_leaves_out_whoever_was_cancelled() -> None:
    server = Server(lose=[1])
    async with client(server, retry_delay=0.05) as weir:
        first, (one, other) = await push_behind_another(weir, server, "good", "good")
        server.open.set()
        await first
        await until(lambda: len(server.requests) == 2)
        one.cancel()
        assert told(await other) == "good 1"
    assert server.requests == [["first"], ["good 0", "good 1"], ["good 1"]]


async def test_closing_the_client_ends_those_that_wait() -> None:
    server = Server()
    async with client(server) as weir:
        first, others = await push_behind_another(weir, server, "good", "good")
        await weir.aclose()
        for one in others:
            with pytest.raises(Unreachable, match="closed"):
                await one
        server.open.set()
        await first


async def test_acks_share_too_and_a_lost_lease_fails_its_caller_alone() -> None:
    paths: list[str] = []
    waiting = asyncio.Event()

    async def serve(request: httpx2.Request) -> httpx2.Response:
        paths.append(request.url.path)
        await waiting.wait()
        body = json.loads(request.content)
        if "acknowledgments" not in body:
            return httpx2.Response(200, json={"id": body["id"], "status": "acked"})
        lost = {"status": 409, "code": "lease_lost"}
        answers = [
            {"status": "lapsed", "problem": lost} if one["id"] == "m3" else {"status": "acked"}
            for one in body["acknowledgments"]
        ]
        return httpx2.Response(200, json={"items": answers})

    async with client(serve) as weir:
        messages = [ReceivedMessage.of(document(f"m{at}")) for at in range(6)]
        acks = [asyncio.create_task(weir.ack(message)) for message in messages]
        await asyncio.sleep(0)
        waiting.set()
        results = await asyncio.gather(*acks, return_exceptions=True)
    lost = results.pop(3)
    assert isinstance(lost, ApiError)
    assert (lost.status, lost.code) == (409, "lease_lost")
    assert results == ["acked"] * 5
    assert paths == ["/api/v1/ack", "/api/v1/ack/batch"]


KINDS = ("good", "misplaced", "unnamed", "full", "no queue")
EXPECTED = {"misplaced": 422, "unnamed": 422, "no queue": 404}


@given(
    callers=st.lists(st.lists(st.sampled_from(KINDS), max_size=5), min_size=1, max_size=8),
    lose=st.sets(st.integers(0, 20), max_size=4),
    cancelled=st.dictionaries(st.integers(0, 7), st.integers(0, 30), max_size=3),
)
def test_nothing_is_lost_or_doubled_and_each_caller_keeps_its_order(
    callers: list[list[str]], lose: set[int], cancelled: dict[int, int]
) -> None:
    asyncio.run(_check(callers, sorted(lose), cancelled))


async def _check(callers: list[list[str]], lose: list[int], cancelled: dict[int, int]) -> None:
    """Callers that push one after the other; some are cancelled after so many turns of the loop."""
    server = Server(lose=lose)

    async def call(number: int, kinds: list[str]) -> None:
        for at, kind in enumerate(kinds):
            name = f"{number}/{at}"
            assert told(await push(weir, kind, name)) == EXPECTED.get(kind, name)

    async with client(server, retry_delay=0, retry_attempts=30) as weir, asyncio.timeout(20):
        tasks = [asyncio.create_task(call(number, kinds)) for number, kinds in enumerate(callers)]
        for turn in range(max(cancelled.values(), default=0) + 1):
            for number in (number for number, when in cancelled.items() if when == turn):
                if number < len(tasks):
                    tasks[number].cancel()
            await asyncio.sleep(0)
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert outcome is None or isinstance(outcome, asyncio.CancelledError)
    kept = list(server.kept.values())
    assert len(set(kept)) == len(kept)
    for number, kinds in enumerate(callers):
        own = [name for name in kept if name.startswith(f"{number}/")]
        assert own == sorted(own)
        whole = [f"{number}/{at}" for at, kind in enumerate(kinds) if kind not in EXPECTED]
        if number not in cancelled:
            assert own == whole


@pytest.mark.parametrize("fault", ["the answer is lost", "every connection is cut"])
async def test_a_server_that_fails_in_mid_request_takes_every_push_once(
    fault: str, base_url: str, tenant: Tenant, services: Services
) -> None:
    queue = await define(services, tenant.environment, "orders")
    async with (
        TcpProxy.to(base_url) as proxy,
        AsyncWeir(proxy.url, token=tenant.token, retry_delay=0.01) as weir,
        asyncio.timeout(20),
    ):

        async def push_some(number: int) -> None:
            for at in range(20):
                if number == 0 and at % 5 == 2:
                    proxy.drop_next_reply() if fault == "the answer is lost" else proxy.cut()
                await weir.push(queue, [number, at])

        await asyncio.gather(*(push_some(number) for number in range(16)))
        messages = await weir.pop(queue, limit=1_000)
    taken = [tuple(message.json) for message in messages]
    assert sorted(taken) == [(number, at) for number in range(16) for at in range(20)]
    for number in range(16):
        assert [at for one, at in taken if one == number] == list(range(20))
