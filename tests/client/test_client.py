"""The client retries what may be repeated, honours what the server asks, and understands 202."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from weir import (
    ApiError,
    AsyncWeir,
    OperationFailed,
    OperationTimeout,
    OutgoingMessage,
    Unreachable,
    Weir,
)

Answer = httpx2.Response | Exception
ACCEPTED = {"items": [{"status": "accepted", "id": "m1"}]}
QUEUED = {
    "items": [
        {
            "status": "queued",
            "operation_id": "o1",
            "position": 3,
            "estimated_wait_ms": 40,
            "reason": "system_busy",
            "id": "m1",
        }
    ]
}


class Script:
    """A server that answers what it was told to, in order; the last answer repeats."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def bodies(self) -> list[Any]:
        return [json.loads(request.content) for request in self.requests]


def client(script: Callable[[httpx2.Request], httpx2.Response], **options: Any) -> AsyncWeir:
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(script))
    return AsyncWeir(options.pop("urls", "http://a"), http=http, **{"retry_delay": 0.001, **options})


def problem(status: int, code: str, **headers: str) -> httpx2.Response:
    document = {"code": code, "status": status, "detail": code}
    return httpx2.Response(status, json=document, headers=headers)


async def test_a_429_is_retried_after_the_time_that_the_server_asks_for() -> None:
    script = Script(problem(429, "overloaded", **{"retry-after": "0.2"}), httpx2.Response(201, json=ACCEPTED))
    loop = asyncio.get_running_loop()
    async with client(script) as weir:
        started = loop.time()
        result = await weir.push("q", {"n": 1})
    assert result.status == "accepted"
    assert loop.time() - started >= 0.2


@pytest.mark.parametrize(
    ("reason", "slots"), [("system_busy", 1), ("maintaining_order", 1), ("broker_unavailable", 2)]
)
async def test_the_slot_of_a_list_that_waits_under_its_name_is_not_used_again(
    reason: str, slots: int
) -> None:
    """The operation asks later what the call did, and the slot remembers only its last call."""
    waiting = {"items": [{**QUEUED["items"][0], "reason": reason}] * 2}
    script = Script(
        httpx2.Response(202, json=waiting), httpx2.Response(201, json={"items": ACCEPTED["items"] * 2})
    )
    async with client(script) as weir:
        for _ in range(3):
            await weir.push_many([OutgoingMessage(queue="q", payload=n) for n in range(2)])
    calls = [body["call"] for body in script.bodies()]
    assert len({call["slot"] for call in calls}) == slots
    assert len({(call["slot"], call["number"]) for call in calls}) == 3


async def test_max_retry_delay_bounds_what_the_server_may_ask_for() -> None:
    script = Script(
        problem(429, "overloaded", **{"retry-after": "3600"}), httpx2.Response(201, json=ACCEPTED)
    )
    async with client(script, max_retry_delay=0.01) as weir, asyncio.timeout(5):
        assert (await weir.push("q", 1)).accepted


async def test_without_retry_on_429_it_is_raised_at_once() -> None:
    script = Script(problem(429, "overloaded", **{"retry-after": "7"}))
    async with client(script, retry_on_429=False) as weir:
        with pytest.raises(ApiError) as caught:
            await weir.push("q", 1)
    assert (caught.value.status, caught.value.code, caught.value.retry_after) == (
        429,
        "overloaded",
        timedelta(seconds=7),
    )
    assert len(script.requests) == 1


async def test_a_retry_carries_the_same_idempotency_key() -> None:
    script = Script(
        httpx2.ReadTimeout("lost"), problem(503, "unavailable"), httpx2.Response(201, json=ACCEPTED)
    )
    async with client(script) as weir:
        await weir.push("q", 1)
    keys = {body["items"][0]["idempotency_key"] for body in script.bodies()}
    assert len(script.requests) == 3
    assert len(keys) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 415, 422])
async def test_other_refusals_are_not_retried(status: int) -> None:
    script = Script(problem(status, "no"))
    async with client(script) as weir:
        with pytest.raises(ApiError):
            await weir.push("q", 1)
    assert len(script.requests) == 1


async def test_another_base_url_is_tried_when_one_does_not_answer() -> None:
    def serve(request: httpx2.Request) -> httpx2.Response:
        if request.url.host == "a":
            raise httpx2.ConnectError("refused")
        return httpx2.Response(201, json=ACCEPTED)

    async with client(serve, urls=["http://a", "http://b/"]) as weir:
        assert (await weir.push("q", 1)).accepted


async def test_when_nobody_answers_it_says_so() -> None:
    script = Script(httpx2.ConnectError("refused"))
    async with client(script, retry_attempts=3) as weir:
        with pytest.raises(Unreachable):
            await weir.push("q", 1)
    assert len(script.requests) == 3


async def test_a_queued_push_is_returned_as_such() -> None:
    async with client(Script(httpx2.Response(202, json=QUEUED))) as weir:
        result = await weir.push("q", 1)
    assert result.queued
    assert (result.operation_id, result.position) == ("o1", 3)
    assert result.estimated_wait == timedelta(milliseconds=40)


def operation(status: str, **members: Any) -> httpx2.Response:
    document = {
        "id": "o1",
        "status": status,
        "operation_type": "PUSH",
        "queue": "q",
        "retry_count": 0,
        "error_message": None,
        "result": None,
        "latency_seconds": 0.1,
        **members,
    }
    return httpx2.Response(200, json=document)


async def test_a_queued_push_is_waited_for_when_asked_to() -> None:
    done = operation("completed", result={"messages": [{"id": "m1", "status": "duplicate"}]})
    script = Script(httpx2.Response(202, json=QUEUED), operation("pending"), operation("processing"), done)
    async with client(script, queued_operation_behavior="poll", poll_interval=0.001) as weir:
        result = await weir.push("q", 1)
    assert result.status == "duplicate"


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"id": "first", "status": "duplicate"}, ("duplicate", "first")),
        ({"id": "m2", "status": "accepted"}, ("accepted", "m2")),
    ],
)
async def test_a_queued_push_learns_its_id_from_the_operation(
    row: dict[str, str], told: tuple[str, str]
) -> None:
    queued = {"items": [{name: value for name, value in QUEUED["items"][0].items() if name != "id"}]}
    done = operation("completed", result={"messages": [{**row, "idempotency_key": "k"}]})
    script = Script(httpx2.Response(202, json=queued), done)
    async with client(script, queued_operation_behavior="poll", poll_interval=0.001) as weir:
        result = await weir.push("q", 1, idempotency_key="k")
    assert (result.status, result.id) == told


async def test_a_queued_push_whose_key_was_used_before_is_refused() -> None:
    row = {"id": "first", "status": "key_reused", "idempotency_key": "k"}
    script = Script(httpx2.Response(202, json=QUEUED), operation("completed", result={"messages": [row]}))
    async with client(script, queued_operation_behavior="poll", poll_interval=0.001) as weir:
        with pytest.raises(ApiError) as refused:
            await weir.push("q", 1, idempotency_key="k")
    assert (refused.value.status, refused.value.code) == (422, "key_reused")


async def test_waiting_ends_when_the_operation_fails_or_takes_too_long() -> None:
    async with client(Script(operation("failed", error_message="poison"))) as weir:
        with pytest.raises(OperationFailed, match="poison"):
            await weir.wait_for_operation("o1")
    async with client(Script(operation("pending")), poll_interval=0.001) as weir:
        with pytest.raises(OperationTimeout):
            await weir.wait_for_operation("o1", timeout=0.02)


def encoded(text: str) -> str:
    return base64.b64encode(json.dumps(text).encode()).decode()


def document(text: str) -> dict[str, Any]:
    """A message as a pop answers it."""
    return {
        "id": text, "queue": "q", "lease": "l", "payload_base64": encoded(text), "headers": {}, "key": None,
        "priority": 4, "attempt": 1, "enqueued_at_ms": 1, "lease_until_ms": 2, "wait_ms": 0,
        "last_error": None,
    }  # fmt: skip


def test_the_facade_works_without_an_event_loop() -> None:
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(Script(httpx2.Response(201, json=ACCEPTED))))
    with Weir("http://a", http=http) as weir:
        assert weir.push("q", b"\x00\xff").id == "m1"


async def test_spans_of_time_are_seconds_or_timedeltas_and_go_as_milliseconds() -> None:
    script = Script(httpx2.Response(201, json=ACCEPTED))
    async with client(script) as weir:
        await weir.push("q", 1, delay=1.5, ttl=timedelta(minutes=1))
        await weir.push("q", 1, deliver_at=datetime(2026, 1, 1, tzinfo=UTC))
    first, second = (body["items"][0] for body in script.bodies())
    assert (first["delay_ms"], first["ttl_ms"]) == (1_500, 60_000)
    assert second["deliver_at_ms"] == 1_767_225_600_000
    assert "delay_ms" not in second

    script = Script(httpx2.Response(200, json={"messages": []}))
    async with client(script, timeout=timedelta(seconds=7)) as weir:
        await weir.pop("q", wait=timedelta(seconds=2), lease=0.5)
    (body,) = script.bodies()
    assert (body["wait_ms"], body["lease_ms"]) == (2_000, 500)
    assert script.requests[0].extensions["timeout"]["read"] == 9.0


@pytest.mark.parametrize("span", [-1, float("nan"), float("inf"), timedelta(seconds=-1)])
async def test_what_is_not_a_span_of_time_is_refused(span: float | timedelta) -> None:
    async with client(Script(httpx2.Response(201, json=ACCEPTED))) as weir:
        with pytest.raises(ValueError, match="not a length of time"):
            await weir.push("q", 1, delay=span)


async def test_a_time_without_a_zone_is_refused() -> None:
    async with client(Script(httpx2.Response(201, json=ACCEPTED))) as weir:
        with pytest.raises(ValueError, match="without a zone"):
            await weir.push("q", 1, deliver_at=datetime(2026, 1, 1))


async def test_what_json_cannot_say_is_refused_before_it_is_sent() -> None:
    script = Script(httpx2.Response(201, json=ACCEPTED))
    async with client(script) as weir:
        with pytest.raises(ValueError, match="JSON"):
            await weir.push("q", float("nan"))
        with pytest.raises(TypeError, match="no JSON form"):
            await weir.push("q", {"at": datetime.now(UTC)})
    assert script.requests == []


async def test_a_client_of_the_callers_own_sends_the_token_and_stays_open() -> None:
    script = Script(httpx2.Response(201, json=ACCEPTED))
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(script), headers={"x-mine": "1"}) as http:
        async with AsyncWeir("http://a", token="secret", project="a b", http=http) as weir:
            await weir.push("q", 1)
        assert not http.is_closed
    headers = script.requests[0].headers
    assert headers["authorization"] == "Bearer secret"
    assert headers["weir-project"] == "a%20b"
    assert headers["x-mine"] == "1"


def test_an_option_that_cannot_be_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="base URL"):
        AsyncWeir([])
    with pytest.raises(ValueError, match="return, poll"):
        AsyncWeir("http://a", queued_operation_behavior="perhaps")  # type: ignore[arg-type]


async def test_a_message_has_its_times_as_times() -> None:
    async with client(Script(httpx2.Response(200, json={"messages": [document("m1")]}))) as weir:
        (message,) = await weir.pop("q")
    assert message.enqueued_at == datetime(1970, 1, 1, 0, 0, 0, 1_000, tzinfo=UTC)
    assert message.lease_until - message.enqueued_at == timedelta(milliseconds=1)
    assert message.wait == timedelta(0)


async def test_a_key_that_the_client_made_is_remembered_for_minutes_and_a_given_one_by_the_queue() -> None:
    script = Script(httpx2.Response(201, json=ACCEPTED))
    async with client(script) as weir:
        await weir.push("q", 1)
        await weir.push_many([OutgoingMessage(queue="q", payload=1)])
        await weir.push("q", 1, idempotency_key="mine")
    async with client(script, retry_attempts=100, max_retry_delay=60, timeout=1) as patient:
        await patient.push("q", 1)
    windows = [body["items"][0].get("idempotency_window_ms") for body in script.bodies()]
    assert windows == [300_000, 300_000, None, 6_040_000]


async def test_a_refused_stream_is_tried_as_often_as_any_request_and_at_the_next_address() -> None:
    hosts: list[str] = []

    def refuse(request: httpx2.Request) -> httpx2.Response:
        hosts.append(request.url.host)
        return problem(503, "unavailable")

    async with client(refuse, urls=["http://a", "http://b"], retry_attempts=4) as weir:
        with pytest.raises(ApiError, match="unavailable"):
            await anext(weir.watch("0199a3c2-7c1e-7c62-9d0b-1f1f3f1b2a77", timeout=20))
    assert hosts == ["a", "b", "a", "b"]


@pytest.mark.parametrize("body", [b"", b"no JSON", b'["a list"]'])
async def test_a_refusal_without_a_problem_document_is_an_api_error_for_streams_and_requests(
    body: bytes,
) -> None:
    async with client(lambda _: httpx2.Response(404, content=body)) as weir:
        with pytest.raises(ApiError) as of_a_request:
            await weir.push("q", 1)
        with pytest.raises(ApiError) as of_a_stream:
            await anext(weir.watch("0199a3c2-7c1e-7c62-9d0b-1f1f3f1b2a77", timeout=20))
    assert str(of_a_stream.value) == str(of_a_request.value)
