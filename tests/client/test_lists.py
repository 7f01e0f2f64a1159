"""Lists over HTTP: one name stands for the keys of all their messages, and they enter once."""

from __future__ import annotations

import threading
from uuid import UUID, uuid4

import httpx2
import pytest

from client.test_client import Script, client, problem
from support.tcp_proxy import TcpProxy
from weir import ApiError, AsyncWeir, OutgoingMessage, Weir
from weir.broker import keys
from weir.broker.broker import Gated
from weir.broker.runner import RedisConnection, connect
from weir.model.ids import new_id

from .place import QUEUE, Place, make_token


def messages(count: int, queue: str = QUEUE, **more: object) -> list[OutgoingMessage]:
    return [OutgoingMessage(queue=queue, payload=n, **more) for n in range(count)]  # type: ignore[arg-type]


async def stored_keys(place: Place, queue: str = QUEUE) -> int:
    """How many idempotency keys the queue remembers."""
    client = connect(RedisConnection(url=place.api.redis_url))
    name = keys.prefix(place.shard) + b"q:" + keys.queue_ident(place.environment.queue(queue)) + b":seen"
    try:
        found: int = await client.execute_command("HLEN", name)
        return found
    finally:
        await client.aclose()


async def test_a_list_whose_answer_is_lost_enters_once(place: Place) -> None:
    async with TcpProxy.to(place.api.url) as proxy, AsyncWeir(proxy.url, token=place.token) as weir:
        proxy.drop_next_reply()
        results = await weir.push_many(messages(1_500))
        assert {result.status for result in results} == {"accepted"}
        again = await weir.push_many(messages(3))
        found = []
        while batch := await weir.pop(QUEUE, limit=1_000):
            found += batch
        assert [message.json for message in found] == [*range(1_500), 0, 1, 2]
        assert [message.id for message in found] == [result.id for result in (*results, *again)]
    assert await stored_keys(place) == 0


async def test_a_list_that_is_queued_twice_enters_once(place: Place) -> None:
    """Its first answer, that it waits behind a gate, is lost."""
    queue = place.environment.queue(QUEUE)
    gate = Gated(key=None, operation=str(uuid4()), messages=1)
    async with (
        place.broker() as broker,
        TcpProxy.to(place.api.url) as proxy,
        AsyncWeir(proxy.url, token=place.token) as weir,
    ):
        await broker.close_gates(queue, [gate])
        proxy.drop_next_reply()
        results = await weir.push_many(messages(5))
        assert {result.status for result in results} == {"queued"}
        await broker.open_gates(queue, [gate])
        for operation_id in {result.operation_id or "" for result in results}:
            await weir.wait_for_operation(operation_id)
        last = await weir.push(QUEUE, "last")
        if last.operation_id is not None:
            await weir.wait_for_operation(last.operation_id)
        found = await weir.pop(QUEUE, limit=100)
        assert [message.json for message in found] == [*range(5), "last"]
        assert [message.id for message in found[:5]] == [result.id for result in results]


def test_a_list_for_a_full_queue_is_tried_again_until_there_is_room(place: Place) -> None:
    full = place.define("full", retention={"max_depth": 2})
    with Weir(place.api.url, token=place.token, retry_delay=0.02, honor_retry_after=False) as weir:
        weir.push_many(messages(2, full))
        taker = threading.Timer(0.1, lambda: weir.ack_many(weir.pop(full, limit=2)))
        taker.start()
        assert {result.status for result in weir.push_many(messages(2, full))} == {"accepted"}
        taker.join()


async def test_lists_for_several_queues_and_with_keys_of_their_own_keep_their_keys(place: Place) -> None:
    other = place.define("other")
    async with AsyncWeir(place.api.url, token=place.token) as weir:
        await weir.push_many([*messages(1), *messages(1, other)])
        given = [OutgoingMessage(queue=QUEUE, payload=n, idempotency_key=f"k{n}") for n in range(2)]
        await weir.push_many(given)
        assert {result.status for result in await weir.push_many(given)} == {"duplicate"}
    assert (await stored_keys(place), await stored_keys(place, other)) == (3, 1)


async def test_lists_that_begin_with_the_same_message_do_not_swallow_each_other(place: Place) -> None:
    first = OutgoingMessage(queue=QUEUE, payload="first")
    async with AsyncWeir(place.api.url, token=place.token) as weir:
        for name in ("a", "b"):
            results = await weir.push_many([first, OutgoingMessage(queue=QUEUE, payload=name)])
            assert results[1].status == "accepted"
        found = [message.json for message in await weir.pop(QUEUE, limit=10)]
        assert [name for name in found if name != "first"] == ["a", "b"]


def push(place: Place, token: str, body: dict[str, object]) -> httpx2.Response:
    headers = {"authorization": f"Bearer {token}"}
    return httpx2.post(f"{place.api.url}/api/v1/push", json=body, headers=headers)


def test_a_name_is_for_one_queue_and_belongs_to_its_token(place: Place) -> None:
    other = place.define("other")
    call = {"slot": "mine", "number": 1, "first_id": new_id()}
    item = {"queue": QUEUE, "payload": 1}
    mixed = push(place, place.token, {"items": [item, {"queue": other, "payload": 1}], "call": call})
    assert (mixed.status_code, mixed.json()["errors"][0]["pointer"]) == (422, "#/call")
    first = push(place, place.token, {"items": [item, item], "call": call})
    assert first.status_code == 201
    assert push(place, place.token, {"items": [item, item], "call": call}).json() == first.json()
    colleague = make_token(place.api, place.environment)["token"]
    own = {**call, "first_id": new_id()}
    assert push(place, colleague, {"items": [item], "call": own}).json() != first.json()
    with Weir(place.api.url, token=place.token) as weir:
        assert len(weir.pop(QUEUE, limit=10)) == 3


def test_the_slot_of_a_call_is_a_name(place: Place) -> None:
    """A slot with a control character was accepted while Redis was away, and its operation failed later."""
    item = {"queue": QUEUE, "payload": 1}
    call = {"slot": "a\x00b", "number": 1}
    named = {"items": [item], "call": {**call, "first_id": new_id()}}
    resumed = {"items": [{**item, "call": {**call, "place": 0, "message_id": new_id()}}]}
    for body in (named, resumed):
        refused = push(place, place.token, body)
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input")


def test_a_name_stands_for_its_messages(place: Place) -> None:
    call = {"slot": "mine", "number": 5, "first_id": new_id()}
    item, other = ({"queue": QUEUE, "payload": n} for n in (1, 2))
    assert push(place, place.token, {"items": [item], "call": call}).status_code == 201
    for changed in ([other], [item, other]):
        refused = push(place, place.token, {"items": changed, "call": call})
        assert (refused.status_code, refused.json()["code"]) == (422, "key_reused")
    with Weir(place.api.url, token=place.token) as weir:
        assert [message.json for message in weir.pop(QUEUE, limit=10)] == [1]


def test_a_stale_name_is_refused_and_costs_nobody_else_anything(place: Place) -> None:
    """Before, each such request made the process take Redis for lost, and its messages were queued."""
    item = {"queue": QUEUE, "payload": 1}
    calls = [{"slot": "mine", "number": number, "first_id": new_id()} for number in (2, 1)]
    assert push(place, place.token, {"items": [item], "call": calls[0]}).status_code == 201
    for _ in range(30):
        stale = push(place, place.token, {"items": [item], "call": calls[1]})
        assert (stale.status_code, stale.json()["code"], stale.json()["retryable"]) == (
            409,
            "call_stale",
            False,
        )
        neighbour = push(place, make_token(place.api, place.environment)["token"], {"items": [item]})
        assert neighbour.status_code == 201
    with Weir(place.api.url, token=place.token) as weir:
        assert len(weir.pop(QUEUE, limit=100)) == 31


def test_the_call_of_an_item_belongs_to_its_token_too(place: Place) -> None:
    """Who knows another token's id and slot could make its calls void, and stale."""
    owner, stranger = (make_token(place.api, place.environment) for _ in range(2))
    item = {"queue": QUEUE, "payload": 1}
    for slot in ("mine", f"{owner['id']}/mine"):
        call = {"slot": slot, "number": 7, "place": 0, "message_id": new_id()}
        push(place, stranger["token"], {"items": [{**item, "call": call}]})
    named = {"items": [item], "call": {"slot": "mine", "number": 7, "first_id": new_id()}}
    answers = [push(place, owner["token"], named) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json() == answers[1].json()


@pytest.mark.parametrize("last_digits", ["000000000000", "fffffffffffe"])
def test_the_ids_of_a_named_list_follow_each_other(place: Place, last_digits: str) -> None:
    first = UUID(f"0190a0e0-0000-7000-8000-{last_digits}")
    call = {"slot": last_digits, "number": 1, "first_id": str(first)}
    items = [{"queue": QUEUE, "payload": n} for n in range(4)]
    answer = push(place, place.token, {"items": items, "call": call}).json()
    assert [item["id"] for item in answer["items"]] == [str(UUID(int=first.int + n)) for n in range(4)]


@pytest.mark.parametrize("bad", [(1_400,), (0, 3, 999, 1_000), tuple(range(100, 140))])
def test_bad_items_of_a_list_fail_alone_and_are_named_by_their_places(
    place: Place, bad: tuple[int, ...]
) -> None:
    long = [OutgoingMessage(queue=QUEUE, payload=n, priority=99 if n in bad else None) for n in range(1_401)]
    with Weir(place.api.url, token=place.token) as weir:
        results = weir.push_many(long)
        waiting = weir.queue(QUEUE)["depth"]
    assert [at for at, one in enumerate(results) if one.problem is not None] == list(bad)
    assert waiting == len(long) - len(bad)
    for at in bad:
        problem = results[at].problem or {}
        assert (problem["status"], problem["errors"][0]["pointer"]) == (422, f"#/items/{at}/priority")
    ids = [one.id for one in results if one.id is not None]
    assert len(set(ids)) == waiting


async def test_what_was_taken_before_the_server_left_is_told() -> None:
    script = Script(
        httpx2.Response(201, json={"items": [{"status": "accepted", "id": f"m{n}"} for n in range(1_000)]}),
        httpx2.ConnectError("gone"),
    )
    async with client(script, retry_attempts=2) as weir:
        results = await weir.push_many(messages(1_500))
    assert [one.id for one in results[:1_000]] == [f"m{n}" for n in range(1_000)]
    assert {(one.problem or {})["code"] for one in results[1_000:]} == {"unreachable"}


async def test_a_list_of_which_nothing_was_taken_raises_the_error() -> None:
    async with client(Script(problem(401, "unauthenticated")), retry_attempts=2) as weir:
        with pytest.raises(ApiError, match="unauthenticated"):
            await weir.push_many(messages(3))
