"""Direct mode: the client speaks to Redis itself, and through the API where that does not do."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import quote
from uuid import uuid4

import httpx2
import pytest

from support.tcp_proxy import TcpProxy
from weir import ApiError, AsyncWeir, ClientError, Consumer, OutgoingMessage, Producer, ReceivedMessage, Weir
from weir.broker import keys
from weir.broker.broker import Gated
from weir.broker.runner import RedisConnection, connect
from weir.broker.scripts import script
from weir.client.direct_push import Undecided, put
from weir.errors import BrokerUnavailable
from weir.model.ids import CallSlots
from weir.model.names import EnvironmentRef
from weir.telemetry.streams import stream_key

from .place import QUEUE, Place, as_operator, make_token


def test_a_message_goes_in_and_out_without_an_event_loop(place: Place) -> None:
    with place.sync() as weir:
        pushed = weir.push(QUEUE, {"order": 42}, key="k", headers={"a": "b"}, priority=7)
        assert (pushed.status, pushed.queued) == ("accepted", False)
        weir.push(QUEUE, b"\x00\xff")
        first, second = weir.pop(QUEUE, limit=5, lease=30, consumer="me")
        assert (first.id, first.payload, first.json) == (pushed.id, b'{"order":42}', {"order": 42})
        assert (first.key, first.priority, first.headers, first.attempt) == ("k", 7, {"a": "b"}, 1)
        assert second.payload == b"\x00\xff"
        assert second.headers == {"content-type": "application/octet-stream"}
        longer = weir.extend(first, lease=600)
        assert longer.lease_until - first.lease_until > timedelta(minutes=5)
        assert weir.ack(longer) == "acked"
        assert weir.nack(second, error="no", delay=0) == "nacked"
        (again,) = weir.pop(QUEUE, limit=5)
        assert (again.attempt, again.last_error) == (2, "no")
        assert weir.nack(again, dead_letter=True) == "dead"


async def test_a_message_goes_in_and_out_of_an_event_loop(place: Place) -> None:
    async with place.client() as weir:
        results = await weir.push_many([OutgoingMessage(queue=QUEUE, payload=n) for n in range(2_500)])
        assert {result.status for result in results} == {"accepted"}
        seen: list[int] = []
        while messages := await weir.pop(QUEUE, limit=1_000):
            seen += [message.json for message in messages]
            assert set(await weir.ack_many(messages)) == {"acked"}
        assert seen == list(range(2_500))


def test_what_goes_in_over_http_comes_out_directly_and_the_other_way_round(place: Place) -> None:
    with place.sync() as direct, Weir(place.api.url, token=place.token) as http:
        http.push(QUEUE, {"n": 1.10, "text": "é ✓"})
        (one,) = direct.pop(QUEUE)
        direct.push(QUEUE, {"n": 1.10, "text": "é ✓"})
        (two,) = http.pop(QUEUE)
        assert (one.payload, one.headers) == (two.payload, two.headers)
        assert (http.ack(one), direct.ack(two)) == ("acked", "acked")


def test_a_payload_with_a_key_is_known_again_whichever_way_it_comes(place: Place) -> None:
    payload = {"text": "é ✓", "large": 1e16, "nothing": None}
    with place.sync() as direct, Weir(place.api.url, token=place.token) as http:
        first = http.push(QUEUE, payload, idempotency_key="once")
        again = OutgoingMessage(queue=QUEUE, payload=payload, idempotency_key="once")
        found = [
            direct.push(QUEUE, payload, idempotency_key="once"),
            http.push(QUEUE, payload, idempotency_key="once"),
        ]
        for weir in (direct, http):
            found += weir.push_many([OutgoingMessage(queue=QUEUE, payload="other"), again])[1:]
    assert {(one.status, one.id) for one in found} == {("duplicate", first.id)}


def test_redis_and_the_token_are_all_that_is_given_when_the_environment_names_the_api(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_URL", place.api.url)
    monkeypatch.setenv("WEIR_TOKEN", place.token)
    with Weir(place.api.redis_url) as weir:
        assert weir.push(QUEUE, 1).status == "accepted"
        assert weir.queue(QUEUE)["depth"] == 1
    monkeypatch.delenv("WEIR_URL")
    with pytest.raises(ValueError, match="set WEIR_URL to its address"):
        Weir(place.api.redis_url)


def test_another_redis_than_that_of_the_api_is_refused(place: Place) -> None:
    elsewhere = place.api.redis_url.rpartition("/")[0] + "/7"
    with (
        Weir([elsewhere, place.api.url], token=place.token) as weir,
        pytest.raises(ClientError, match="not the one that the API uses"),
    ):
        weir.push(QUEUE, 1)


def test_refusals_are_those_of_the_api(place: Place) -> None:
    full = place.define("full", retention={"max_depth": 1})
    options = {"retry_attempts": 1}
    with place.sync(**options) as direct, Weir(place.api.url, token=place.token, **options) as http:  # type: ignore[arg-type]
        direct.push(full, 1)
        direct.push(QUEUE, 1, idempotency_key="once")
        for payload, queue, more in (
            (1, "no such queue", {}),
            (1, "", {}),
            (1, full, {}),
            (2, QUEUE, {"idempotency_key": "once"}),
            (1, QUEUE, {"priority": 10}),
            (1, QUEUE, {"key": "\x00"}),
            (b"x" * ((1 << 20) + 1), QUEUE, {}),
            (nested(65), QUEUE, {}),
        ):
            found = [refusal(weir, queue, payload, more) for weir in (direct, http)]
            assert found[0] == found[1]
        assert direct.push(QUEUE, 1, idempotency_key="once").status == "duplicate"
        with pytest.raises(ApiError) as lost:
            direct.ack(fake_message(queue=QUEUE))
        assert (lost.value.status, lost.value.code) == (409, "lease_lost")
        with pytest.raises(ApiError) as short:
            direct.pop(QUEUE, lease=0.01)
        assert short.value.status == 422


def refusal(weir: Weir, queue: str, payload: object, more: dict[str, object]) -> tuple[int, str]:
    with pytest.raises(ApiError) as refused:
        weir.push(queue, payload, **more)  # type: ignore[arg-type]
    return refused.value.status, refused.value.code


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


def fake_message(*, queue: str) -> ReceivedMessage:
    now = datetime.now(UTC)
    return ReceivedMessage(
        id=str(uuid4()), queue=queue, lease="0" * 32, payload=b"", headers={}, key=None, priority=4,
        attempt=1, enqueued_at=now, lease_until=now, wait=timedelta(), idempotency_key=None, last_error=None,
    )  # fmt: skip


def test_a_full_queue_is_tried_again_until_there_is_room(place: Place) -> None:
    full = place.define("full", retention={"max_depth": 1})
    with place.sync(retry_delay=0.01, honor_retry_after=False) as weir:
        weir.push(full, 1)
        taker = threading.Timer(0.1, lambda: weir.ack(weir.pop(full)[0]))
        taker.start()
        assert weir.push(full, 2).status == "accepted"
        taker.join()


def test_a_paused_queue_hands_nothing_out(place: Place) -> None:
    with place.sync() as weir:
        weir.push(QUEUE, 1)
        path = f"queues/{quote(QUEUE, safe='')}"
        assert as_operator(place.api, "POST", f"{path}/pause", None, place.environment).status_code < 300
        assert weir.pop(QUEUE) == []
        assert as_operator(place.api, "POST", f"{path}/resume", None, place.environment).status_code < 300
        assert [message.json for message in weir.pop(QUEUE)] == [1]


async def test_every_push_is_counted_by_an_event(place: Place) -> None:
    client = connect(RedisConnection(url=place.api.redis_url))
    stream = stream_key("queue", place.shard)
    before = await client.execute_command("XLEN", stream)
    async with place.client() as weir:
        await weir.push(QUEUE, 1)
        await weir.push_many([OutgoingMessage(queue=QUEUE, payload=n) for n in range(3)])
    assert await client.execute_command("XLEN", stream) >= before + 2
    await client.aclose()


@pytest.mark.parametrize("mode", ["blocking", "loop"])
async def test_a_push_behind_a_closed_gate_waits_for_its_turn(place: Place, mode: str) -> None:
    queue = place.environment.queue(place.define("keyed", ordering="per_key"))
    gate = Gated(key="a", operation=str(uuid4()), messages=1)
    async with place.broker() as broker, place.client(queued_operation_behavior="return") as weir:
        await broker.close_gates(queue, [gate])
        if mode == "loop":
            pushed = await weir.push("keyed", "held", key="a")
            other = await weir.push("keyed", "free", key="b")
        else:
            with place.sync() as blocking:
                pushed = await asyncio.to_thread(blocking.push, "keyed", "held", key="a")
                other = await asyncio.to_thread(blocking.push, "keyed", "free", key="b")
        assert (pushed.status, pushed.reason, other.status) == ("queued", "maintaining_order", "accepted")
        await broker.open_gates(queue, [gate])
        assert pushed.operation_id is not None
        await weir.wait_for_operation(pushed.operation_id)
        assert sorted(message.json for message in await weir.pop("keyed", limit=9)) == ["free", "held"]


async def test_a_push_whose_answer_is_lost_enters_once(place: Place) -> None:
    """Three tries lose their answers, so the client asks the API, which asks what the call did."""
    async with TcpProxy.to(place.api.redis_url) as proxy:
        async with place.client(proxy.url, place.api.url) as weir:
            assert (await weir.push(QUEUE, 0)).status == "accepted"
            proxy.drop_replies()
            lost = await weir.push(QUEUE, 1)
            assert (lost.status, lost.id is not None) == ("accepted", True)
            many = await weir.push_many([OutgoingMessage(queue=QUEUE, payload=n) for n in (2, 3)])
            assert {result.status for result in many} == {"accepted"}
            proxy.heal()
            messages = await weir.pop(QUEUE, limit=10)
        assert [message.json for message in messages] == [0, 1, 2, 3]
        assert lost.id in {message.id for message in messages}


async def test_each_message_of_a_list_whose_answer_is_lost_is_told_its_own_id(place: Place) -> None:
    async with TcpProxy.to(place.api.redis_url) as proxy, place.client(proxy.url, place.api.url) as weir:
        await weir.push(QUEUE, "first")
        proxy.drop_replies()
        many = await weir.push_many([OutgoingMessage(queue=QUEUE, payload=n) for n in range(3)])
        proxy.heal()
        _, *messages = await weir.pop(QUEUE, limit=10)
    assert [message.json for message in messages] == [0, 1, 2]
    assert [message.id for message in messages] == [result.id for result in many]


class SilentRedis:
    """Where a client put messages, as it finds it; no call is answered."""

    def __init__(self) -> None:
        self.calls = CallSlots()
        self.broker = self
        self.left = 0

    async def enqueue_packed(self, *_: object) -> str:
        raise BrokerUnavailable("no answer")

    def note_away(self) -> None:
        self.left += 1


async def test_the_slot_of_a_call_without_an_answer_is_not_used_again_and_redis_is_left_alone(
    environment: EnvironmentRef,
) -> None:
    redis, parcel = SilentRedis(), (str(uuid4()), b"", b"")
    answers = await put(redis, environment.queue(QUEUE), [parcel] * 2)  # type: ignore[arg-type, list-item]
    calls = [answer.call for answer in answers if isinstance(answer, Undecided) and answer.call]
    assert [answer.place for answer in answers if isinstance(answer, Undecided)] == [0, 1]
    assert len({call.slot for call in calls} | {redis.calls.take().slot}) == 2
    assert redis.left == 1


async def test_a_push_that_never_arrived_enters_through_the_api(place: Place) -> None:
    async with TcpProxy.to(place.api.redis_url) as proxy:
        proxy.blackhole()
        async with place.client(proxy.url, place.api.url) as weir:
            assert (await weir.push(QUEUE, 1)).status == "accepted"
            assert (await weir.push(QUEUE, 2)).status == "accepted"
            messages = await weir.pop(QUEUE, limit=10)
            assert [message.json for message in messages] == [1, 2]
            assert await weir.ack(messages[0]) == "acked"
            kept = await weir.extend(messages[1], lease=60)
            assert await weir.nack(kept, delay=0) == "nacked"


async def test_a_consumer_and_a_producer_work_directly(place: Place) -> None:
    seen: list[int] = []
    done = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.json)
        if len(seen) == 50:
            done.set()

    async with place.client() as weir:
        consumer = Consumer(weir, QUEUE, handle, concurrency=4)
        running = asyncio.create_task(consumer.run())
        async with Producer(weir) as producer:
            for n in range(50):
                producer.submit(QUEUE, n)
        async with asyncio.timeout(20):
            await done.wait()
        consumer.stop()
        await running
        assert sorted(seen) == list(range(50))


def test_a_pop_that_waits_is_woken_by_a_push(place: Place) -> None:
    with place.sync() as weir:
        found: list[ReceivedMessage] = []
        waiting = threading.Thread(target=lambda: found.extend(weir.pop(QUEUE, wait=20)))
        waiting.start()
        weir.push(QUEUE, 1)
        waiting.join(timeout=15)
        assert [message.json for message in found] == [1]
        assert weir.pop(QUEUE, wait=0.05) == []


@pytest.mark.parametrize("options", ["", "?client_name=shop"])
def test_a_consumer_may_wait_as_often_as_it_likes(place: Place, options: str) -> None:
    """Each wait has a connection of its own, and pools of the driver make a hundred at most."""
    with Weir([place.api.redis_url + options, place.api.url], token=place.token) as weir:
        for _ in range(120):
            assert weir.pop(QUEUE, wait=0.001) == []


async def test_concurrent_pushes_share_calls_and_a_bad_one_fails_alone(place: Place) -> None:
    async with place.client() as weir:
        pushes = [weir.push(QUEUE, n) for n in range(100)]
        bad = weir.push("no such queue", 1)
        *_, refused = await asyncio.gather(*pushes, bad, return_exceptions=True)
        assert isinstance(refused, ApiError)
        assert refused.status == 404
        assert [message.json for message in await weir.pop(QUEUE, limit=200)] == list(range(100))


async def call_slots(place: Place) -> int:
    client = connect(RedisConnection(url=place.api.redis_url))
    try:
        found: int = await client.execute_command("HLEN", keys.shard_key(place.shard, "calls"))
        return found
    finally:
        await client.aclose()


async def test_a_thousand_clients_leave_no_call_slots_behind(place: Place) -> None:
    def push_once() -> None:
        with place.sync() as weir:
            weir.push(QUEUE, 1)

    await asyncio.to_thread(push_once)
    before = await call_slots(place)
    await asyncio.to_thread(lambda: [push_once() for _ in range(1_000)])
    for _ in range(20):
        async with place.client() as weir:
            await weir.push(QUEUE, 1)
    assert await call_slots(place) <= before


async def test_a_process_that_never_closes_its_client_leaves_no_call_slot_behind(place: Place) -> None:
    before = await call_slots(place)
    program = f"from weir import Weir\nWeir({place.urls!r}, token={place.token!r}).push({QUEUE!r}, 1)\n"
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program], check=True)
    assert await call_slots(place) <= before


def test_a_forked_process_goes_on_under_names_of_its_own(place: Place) -> None:
    with place.sync() as weir:
        weir.push(QUEUE, 0)
        child = os.fork()
        if child == 0:
            try:
                weir.push(QUEUE, 1)
                weir.push(QUEUE, 2)
                os._exit(0)
            finally:
                os._exit(1)
        weir.push(QUEUE, 3)
        weir.push(QUEUE, 4)
        assert os.waitpid(child, 0)[1] == 0
        assert sorted(message.json for message in weir.pop(QUEUE, limit=10)) == [0, 1, 2, 3, 4]


# the users of Redis


@pytest.fixture
def direct_token(place: Place) -> Iterator[dict[str, str]]:
    made = make_token(place.api, place.environment, direct=True)
    yield made
    as_operator(place.api, "DELETE", f"tokens/{made['id']}", None)


def bare_url(place: Place) -> str:
    """The address of Redis without a user."""
    scheme, _, rest = place.api.redis_url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


async def test_a_token_for_direct_mode_is_a_user_of_redis(place: Place, direct_token: dict[str, str]) -> None:
    text = direct_token["token"]
    with Weir([bare_url(place), place.api.url], token=text) as weir:
        assert weir.push(QUEUE, 1, key="k", delay=0, idempotency_key="i").status == "accepted"
        first, *_ = weir.pop(QUEUE, wait=1)
        weir.nack(weir.extend(first, lease=60), delay=0)
        weir.nack(weir.pop(QUEUE, wait=5)[0], dead_letter=True)
        weir.push_many([OutgoingMessage(queue=QUEUE, payload=n) for n in range(3)])
        assert len(weir.ack_many(weir.pop(limit=3))) == 3
        assert not weir._client._direct.redis._opened.is_away  # type: ignore[union-attr]
    async with AsyncWeir([bare_url(place), place.api.url], token=text) as loop:
        waiting = asyncio.create_task(loop.pop(QUEUE, wait=20))
        await loop.push(QUEUE, 1)
        assert len(await waiting) == 1
        assert not loop._direct.redis._opened.is_away  # type: ignore[union-attr]


async def test_the_user_of_a_token_may_do_nothing_else(place: Place, direct_token: dict[str, str]) -> None:
    secret = direct_token["token"].split("_")[3]
    user = f"weir-direct-{direct_token['id']}:{secret}@"
    url = place.api.redis_url.replace(place.api.redis_url.partition("://")[2].partition("@")[0] + "@", user)
    client, operator = connect(RedisConnection(url=url)), connect(RedisConnection(url=place.api.redis_url))
    foreign = await operator.execute_command("SCRIPT LOAD", "return 1")
    await operator.aclose()
    other = (place.shard + 1) % 4
    try:
        for command in (
            ("FLUSHALL",),
            ("CONFIG", "GET", "*"),
            ("ACL", "LIST"),
            ("KEYS", "*"),
            ("SHUTDOWN",),
            ("SET", "weir:epoch", "mine"),
            ("HGETALL", keys.shard_key(other, "calls")),
            ("EVAL", "while true do end", 0),
            ("EVAL_RO", "while true do end", 0),
            ("SCRIPT", "LOAD", "while true do end"),
            ("SCRIPT", "FLUSH"),
            ("FUNCTION", "LOAD", "#!lua name=mine\nredis.register_function('f', function() end)"),
            ("EVALSHA", foreign, 0),
            ("EVALSHA", script("sweep").sha, 1, keys.shard_key(place.shard, "timers")),
            ("EVALSHA", script("now").sha, 1, keys.shard_key(other, "timers")),
            ("SUBSCRIBE", keys.shard_key(other, "wake")),
        ):
            with pytest.raises(Exception, match=r"(?i)no permission|can.t run|noperm|unknown command"):
                await client.execute_command(*command)
        assert await client.execute_command("GET", "weir:epoch")
    finally:
        await client.aclose()


async def test_the_user_of_a_token_goes_on_through_the_api_while_redis_has_no_scripts(
    place: Place, direct_token: dict[str, str]
) -> None:
    with Weir([bare_url(place), place.api.url], token=direct_token["token"]) as weir:
        weir.push(QUEUE, 1)
        redis = connect(RedisConnection(url=place.api.redis_url))
        await redis.execute_command("SCRIPT FLUSH")
        await redis.aclose()
        weir.push(QUEUE, 2)
        assert weir._client._direct.redis._opened.is_away  # type: ignore[union-attr]
        assert sorted(message.json for message in weir.pop(QUEUE, limit=10)) == [1, 2]


async def test_the_user_ends_with_its_token(place: Place) -> None:
    made = make_token(place.api, place.environment, direct=True)
    weir = Weir([bare_url(place), place.api.url], token=made["token"], retry_attempts=1)
    assert weir.push(QUEUE, 1).status == "accepted"
    as_operator(place.api, "DELETE", f"tokens/{made['id']}", None)
    with pytest.raises(ApiError) as refused:
        weir.push(QUEUE, 2)
    assert refused.value.status == 401
    client = connect(RedisConnection(url=place.api.redis_url))
    assert await client.execute_command("ACL GETUSER", f"weir-direct-{made['id']}") is None
    await client.aclose()
    weir.close()


def test_only_an_operator_makes_a_token_for_direct_mode_and_for_one_environment(place: Place) -> None:
    admin = make_token(place.api, place.environment, role="admin")["token"]
    body = {"name": "t", "role": "write", "direct": True}
    headers = {"authorization": f"Bearer {admin}"}
    refused = httpx2.post(f"{place.api.url}/api/v1/tokens", json=body, headers=headers)
    assert refused.status_code == 403
    wide = as_operator(place.api, "POST", "tokens", {**body, "organization": "o"})
    assert (wide.status_code, "one environment" in wide.json()["detail"]) == (422, True)


async def test_a_redis_that_lost_its_data_is_not_used_by_a_client_that_is_open(place: Place) -> None:
    names = RedisConnection(url=place.api.redis_url)
    redis = connect(names)
    async with place.client(retry_attempts=1) as weir:
        assert (await weir.push(QUEUE, 1)).status == "accepted"
        (message,) = await weir.pop(QUEUE)
        epoch = (await redis.execute_command("GET", keys.EPOCH)).decode()
        name = keys.epoch_key(place.shard, epoch)
        await redis.execute_command("RENAME", name, name + b" aside")
        try:
            for ask in (
                lambda: weir.push(QUEUE, 2),
                lambda: weir.pop(QUEUE),
                lambda: weir.ack(message),
                lambda: weir.extend(message, lease=10),
            ):
                with pytest.raises(ApiError) as refused:
                    await ask()
                assert (refused.value.status, refused.value.code) == (503, "broker_unavailable")
        finally:
            await redis.execute_command("RENAME", name + b" aside", name)
            await redis.aclose()
        assert await weir.ack(message) == "acked"
        assert await weir.pop(QUEUE) == []
