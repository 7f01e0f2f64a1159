"""The client retries what may be repeated, honours what the server asks, and understands 202."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

import weir.client
from weir.client import (
    ApiError,
    AsyncWeir,
    Consumer,
    OperationFailed,
    OperationTimeout,
    Producer,
    ReceivedMessage,
    Reject,
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
    return AsyncWeir(options.pop("urls", "http://a"), http=http, **{"retry_delay_s": 0.001, **options})


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


async def test_max_retry_delay_bounds_what_the_server_may_ask_for() -> None:
    script = Script(
        problem(429, "overloaded", **{"retry-after": "3600"}), httpx2.Response(201, json=ACCEPTED)
    )
    async with client(script, max_retry_delay_s=0.01) as weir, asyncio.timeout(5):
        assert (await weir.push("q", 1)).accepted


async def test_without_retry_on_429_it_is_raised_at_once() -> None:
    script = Script(problem(429, "overloaded", **{"retry-after": "7"}))
    async with client(script, retry_on_429=False) as weir:
        with pytest.raises(ApiError) as caught:
            await weir.push("q", 1)
    assert (caught.value.status, caught.value.code, caught.value.retry_after_s) == (429, "overloaded", 7.0)
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
    assert (result.operation_id, result.position, result.estimated_wait_ms) == ("o1", 3, 40)


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
    async with client(script, queued_operation_behavior="poll", poll_interval_s=0.001) as weir:
        result = await weir.push("q", 1)
    assert result.status == "duplicate"


async def test_waiting_ends_when_the_operation_fails_or_takes_too_long() -> None:
    async with client(Script(operation("failed", error_message="poison"))) as weir:
        with pytest.raises(OperationFailed, match="poison"):
            await weir.wait_for_operation("o1")
    async with client(Script(operation("pending")), poll_interval_s=0.001) as weir:
        with pytest.raises(OperationTimeout):
            await weir.wait_for_operation("o1", timeout_s=0.02)


async def test_a_producer_gathers_and_keeps_order() -> None:
    def serve(request: httpx2.Request) -> httpx2.Response:
        items = json.loads(request.content)["items"]
        return httpx2.Response(
            201, json={"items": [{"status": "accepted", "id": str(i["payload"])} for i in items]}
        )

    calls: list[int] = []

    def counting(request: httpx2.Request) -> httpx2.Response:
        calls.append(1)
        return serve(request)

    async with client(counting) as weir, Producer(weir, max_batch=50) as producer:
        futures = [await producer.push("q", n) for n in range(200)]
        await producer.aclose()
        results = [await future for future in futures]
    assert [result.id for result in results] == [str(n) for n in range(200)]
    assert len(calls) <= 8


def document(text: str) -> dict[str, Any]:
    return {
        "id": text, "queue": "q", "lease": "l", "payload": text, "headers": {}, "key": None, "priority": 4,
        "attempt": 1, "enqueued_at_ms": 1, "lease_until_ms": 2, "wait_ms": 0, "last_error": None,
    }  # fmt: skip


async def test_a_consumer_settles_by_what_the_handler_does() -> None:
    settled: list[tuple[str, str]] = []
    given = [document("good"), document("bad"), document("hopeless")]

    def serve(request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content)
        if request.url.path.endswith("/pop"):
            messages, given[:] = list(given), []
            return httpx2.Response(200, json={"messages": messages})
        verb = "dead" if body.get("dead_letter") else request.url.path.rsplit("/", 1)[1]
        settled.append((verb, body["id"]))
        if len(settled) == 3:
            consumer.stop()
        return httpx2.Response(200, json={"status": verb})

    async def handle(message: ReceivedMessage) -> None:
        if message.json == "bad":
            raise ValueError("no")
        if message.json == "hopeless":
            raise Reject("never")

    async with client(serve) as weir:
        consumer = Consumer(weir, "q", handle, wait_ms=0)
        async with asyncio.timeout(5):
            await consumer.run()
    assert sorted(settled) == [("ack", "good"), ("dead", "hopeless"), ("nack", "bad")]


def test_the_facade_works_without_an_event_loop() -> None:
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(Script(httpx2.Response(201, json=ACCEPTED))))
    with Weir("http://a", http=http) as weir:
        assert weir.push("q", b"\x00\xff").id == "m1"


def test_the_public_surface_is_this_list() -> None:
    assert sorted(weir.client.__all__) == [
        "ApiError", "AsyncWeir", "ClientError", "ClientOptions", "Consumer", "Operation", "OperationFailed",
        "OperationTimeout", "OutgoingMessage", "Producer", "PushResult", "QueuedOperationBehavior",
        "ReceivedMessage", "Reject", "Unreachable", "Weir",
    ]  # fmt: skip
    assert all(hasattr(weir.client, name) for name in weir.client.__all__)


def test_importing_the_client_loads_neither_spark_nor_servers() -> None:
    code = "import sys, weir.client; print(','.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    heavy = {
        "pyspark", "pydantic", "fastapi", "starlette", "uvicorn", "redis", "psycopg", "orjson", "numpy",
        "pyarrow", "clickhouse_connect", "prometheus_client", "structlog", "typer", "opentelemetry",
    }  # fmt: skip
    assert heavy.isdisjoint(loaded.strip().split(","))
