"""The client's own connections speak HTTP/1.1 to real sockets, blocking and on an event loop alike."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from client.test_client import document
from support.raw_server import HANG_UP, SILENCE, RawServer, answer
from support.waiting import until
from weir import ApiError, AsyncWeir, OutgoingMessage, PushResult, ReceivedMessage, Unreachable, Weir
from weir.client.http1 import MAX_HEAD_BYTES, AnswerReader, ConnectionFailed
from weir.client.httpx_connections import new_http_client
from weir.client.places import MAX_CONNECTIONS
from weir.client.sync import LoopThread
from weir.model.asyncio_tasks import cancel_and_wait

from .place import QUEUE, Place

FIXTURES = Path(__file__).parents[1] / "fixtures"
BODY = b'{"items":[{"status":"accepted","id":"m1"}]}'
ACCEPTED = answer(BODY)
Push = Callable[..., list[PushResult]]


def push_blocking(url: str, *, count: int = 1, **options: Any) -> list[PushResult]:
    with Weir(url, **{"retry_delay": 0.001, **options}) as weir:
        return [weir.push("q", number) for number in range(count)]


def push_on_a_loop(url: str, *, count: int = 1, **options: Any) -> list[PushResult]:
    async def push() -> list[PushResult]:
        async with AsyncWeir(url, **{"retry_delay": 0.001, **options}) as weir:
            return [await weir.push("q", number) for number in range(count)]

    return asyncio.run(push())


@pytest.fixture(params=[push_blocking, push_on_a_loop], ids=["blocking", "loop"])
def push(request: pytest.FixtureRequest) -> Push:
    return request.param  # type: ignore[no-any-return]


def accepted(results: list[PushResult]) -> bool:
    return bool(results) and all(result.id == "m1" for result in results)


def test_requests_of_one_client_use_one_connection(push: Push) -> None:
    with RawServer(ACCEPTED) as server:
        assert accepted(push(server.url, count=3))
    assert [number for number, _ in server.requests] == [1, 1, 1]


def test_a_request_has_its_token_its_host_and_its_length(push: Push) -> None:
    with RawServer(ACCEPTED) as server:
        push(server.url + "/behind/a/prefix/", token="secret", project="a b")
        authority = server.url.removeprefix("http://")
    ((_, request),) = server.requests
    head, _, body = request.decode().partition("\r\n\r\n")
    line, *headers = head.split("\r\n")
    assert line == "POST /behind/a/prefix/api/v1/push HTTP/1.1"
    assert set(headers) == {
        f"host: {authority}",
        "user-agent: weir-python",
        "authorization: Bearer secret",
        "weir-project: a%20b",
        "content-type: application/json",
        f"content-length: {len(body)}",
    }


CHUNKED = (
    b"HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n"
    + b"%x;extension=1\r\n%s\r\n" % (10, BODY[:10])
    + b"%x\r\n%s\r\n0\r\ntrailer: 1\r\n\r\n" % (len(BODY) - 10, BODY[10:])
)
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"


@pytest.mark.parametrize("text", [CHUNKED, INTERIM + ACCEPTED], ids=["chunked", "interim"])
def test_answers_of_every_form_are_read_and_keep_their_connection(push: Push, text: bytes) -> None:
    with RawServer(text) as server:
        assert accepted(push(server.url, count=3))
    assert server.connections == 1


CLOSING = answer(BODY, headers=["connection: close"])
UNTIL_THE_END = b"HTTP/1.1 201 Created\r\n\r\n" + BODY
OLD = b"HTTP/1.0 201 Created\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY)


@pytest.mark.parametrize("text", [CLOSING, UNTIL_THE_END, OLD], ids=["close", "until the end", "1.0"])
def test_a_connection_that_the_server_ends_is_not_used_again(push: Push, text: bytes) -> None:
    with RawServer(text) as server:
        server.closing = {0, 1, 2}
        assert accepted(push(server.url, count=3))
    assert server.connections == 3


def test_bytes_behind_an_answer_end_the_connection(push: Push) -> None:
    with RawServer(ACCEPTED + b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", ACCEPTED) as server:
        assert accepted(push(server.url, count=2))
    assert server.connections == 2


def test_a_connection_that_went_stale_is_replaced_at_once(push: Push) -> None:
    with RawServer(ACCEPTED, HANG_UP, ACCEPTED) as server:
        # A pause would end the test: it is longer than the test may take.
        assert accepted(push(server.url, count=2, retry_delay=3_600, max_retry_delay=3_600))
    assert [number for number, _ in server.requests] == [1, 1, 2]


def test_a_request_that_is_tried_once_is_not_repeated_on_a_stale_connection(push: Push) -> None:
    with RawServer(ACCEPTED, HANG_UP, ACCEPTED) as server, pytest.raises(Unreachable):
        push(server.url, count=2, retry_attempts=1)
    assert len(server.requests) == 2


CUT = answer(BODY)[:-5]
GARBAGE = b"SSH-2.0-OpenSSH_9.2\r\n\r\n"


@pytest.mark.parametrize("text", [CUT, GARBAGE, HANG_UP], ids=["cut", "garbage", "nothing"])
def test_an_answer_that_cannot_be_read_is_asked_for_again(push: Push, text: bytes) -> None:
    with RawServer(text, ACCEPTED) as server:
        server.closing = {0}
        assert accepted(push(server.url))
        keys = {request.partition(b"idempotency_key")[2][:45] for _, request in server.requests}
    assert (len(server.requests), len(keys)) == (2, 1)


def test_a_redirect_is_a_refusal(push: Push) -> None:
    moved = answer(b"", status="302 Found", headers=["location: http://127.0.0.1:1/"])
    with RawServer(moved) as server, pytest.raises(ApiError) as refused:
        push(server.url)
    assert (refused.value.status, len(server.requests)) == (302, 1)


def test_silence_ends_at_the_timeout_and_the_late_answer_meets_nobody(push: Push) -> None:
    with RawServer(SILENCE, ACCEPTED) as server:
        with pytest.raises(Unreachable, match=r"no answer within 0\.05 s"):
            push(server.url, timeout=0.05, retry_attempts=1)
        assert accepted(push(server.url))


def test_nobody_listens(push: Push) -> None:
    with RawServer(ACCEPTED) as server:
        url = server.url
    with pytest.raises(Unreachable, match="does not answer"):
        push(url, retry_attempts=2)


def test_a_certificate_is_checked(push: Push, monkeypatch: pytest.MonkeyPatch) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(FIXTURES / "tls-server.pem")
    with RawServer(ACCEPTED, tls=tls) as server:
        with pytest.raises(Unreachable, match="certificate"):
            push(server.url, retry_attempts=1)
        monkeypatch.setenv("SSL_CERT_FILE", str(FIXTURES / "tls-certificate.pem"))
        assert accepted(push(server.url, count=2))


def test_a_proxy_of_the_environment_is_used_and_exceptions_from_it_too(
    push: Push, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RawServer(ACCEPTED) as proxy, RawServer(ACCEPTED) as server:
        monkeypatch.setenv("http_proxy", proxy.url)
        assert accepted(push("http://weir.example:8420"))
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert accepted(push(server.url))
    assert [request.partition(b" HTTP")[0] for _, request in proxy.requests] == [
        b"POST http://weir.example:8420/api/v1/push"
    ]
    assert len(server.requests) == 1


@pytest.mark.parametrize("make", [Weir, AsyncWeir])
def test_a_token_cannot_smuggle_a_header(make: type[Weir] | type[AsyncWeir]) -> None:
    with pytest.raises(ValueError, match="line break"):
        make("http://127.0.0.1:1", token="a\r\nx: y")


@pytest.mark.parametrize("lean", [True, False])
async def test_long_polls_keep_nobody_waiting(place: Place, lean: bool) -> None:
    http = None if lean else new_http_client()
    async with AsyncWeir(place.api.url, token=place.token, timeout=10, retry_attempts=1, http=http) as weir:
        await weir.push(QUEUE, 1)
        (message,) = await weir.pop(QUEUE, lease=60)
        polls = [asyncio.create_task(weir.pop(QUEUE, wait=25)) for _ in range(MAX_CONNECTIONS + 10)]
        await asyncio.sleep(0)
        try:
            await weir.extend(message, lease=60)
            await weir.ack(message)
            assert (await weir.push(QUEUE, 2)).accepted
            await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait(polls)
            await (http or weir).aclose()


async def test_pushes_keep_no_lease_waiting() -> None:
    """The server has answered nothing yet: the renewal is sent nevertheless."""
    with RawServer(SILENCE) as server:
        async with AsyncWeir(server.url, timeout=25, retry_attempts=1) as weir:
            lists = [
                asyncio.create_task(weir.push_many([OutgoingMessage(queue="q", payload=1)]))
                for _ in range(MAX_CONNECTIONS + 10)
            ]
            renewal = asyncio.create_task(weir.extend(ReceivedMessage.of(document("m1")), lease=1))
            await until(lambda: any(b"/extend" in request for _, request in server.requests))
            await cancel_and_wait([*lists, renewal])


def test_a_client_may_go_on_in_another_loop() -> None:
    with RawServer(CLOSING) as server:
        weir = AsyncWeir(server.url)
        for _ in range(2):
            assert accepted([asyncio.run(weir.push("q", 1))])
        asyncio.run(weir.aclose())


def test_what_a_loop_that_ended_had_on_its_way_stops_no_other_loop() -> None:
    async def leave_pushes(weir: AsyncWeir) -> None:
        pushes = [weir.push("q", n) for n in range(3)]
        kept.extend(asyncio.create_task(one) for one in pushes)
        await until(lambda: server.requests)

    async def push_and_close(weir: AsyncWeir) -> PushResult:
        async with weir, asyncio.timeout(10):
            return await weir.push("q", 1)

    kept: list[asyncio.Task[PushResult]] = []
    with RawServer(SILENCE, ACCEPTED) as server:
        weir = AsyncWeir(server.url, timeout=5)
        loop = asyncio.new_event_loop()
        loop.run_until_complete(leave_pushes(weir))
        assert accepted([asyncio.run(push_and_close(weir))])
        loop.run_until_complete(cancel_and_wait(kept))
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()


def test_one_dead_address_of_a_name_costs_the_call_nothing(
    push: Push, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full backlog swallows the packets of whoever connects, as a dead address does."""
    with RawServer(ACCEPTED) as server:
        port = int(server.url.rpartition(":")[2])
        with socket.socket() as swallowing:
            swallowing.bind(("127.0.0.2", port))
            swallowing.listen(0)
            fillers = [socket.socket() for _ in range(3)]
            for one in fillers:
                one.setblocking(False)
                one.connect_ex(("127.0.0.2", port))

            def both(host: str, *_: Any, **__: Any) -> list[Any]:
                return [
                    (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
                    for address in ("127.0.0.2", "127.0.0.1")
                ]

            monkeypatch.setattr(socket, "getaddrinfo", both)
            try:
                assert accepted(push(f"http://weir.example:{port}", timeout=30, retry_attempts=1))
                assert accepted(push(f"http://weir.example:{port}", timeout=3, retry_attempts=1))
            finally:
                for one in fillers:
                    one.close()


@pytest.mark.parametrize("make", [Weir, AsyncWeir])
def test_a_user_name_in_the_url_that_would_replace_the_token_is_refused(
    make: type[Weir] | type[AsyncWeir],
) -> None:
    with pytest.raises(ValueError, match="user name"):
        make("http://me:pass@127.0.0.1:1", token="weir_x")


def test_a_forked_process_opens_connections_of_its_own() -> None:
    with RawServer(ACCEPTED) as server, Weir(server.url) as weir:
        weir.push("q", 1)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                weir.push("q", 2)
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        weir.push("q", 3)
    assert [number for number, _ in server.requests] == [1, 2, 1]


def test_a_forked_process_is_told_that_a_client_with_a_thread_stayed_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with RawServer(ACCEPTED) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        with Weir("http://weir.example:8420") as weir:
            weir.push("q", 1)
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    weir.push("q", 2)
                except RuntimeError:
                    status = 0
                finally:
                    os._exit(status)
            assert os.waitpid(child, 0)[1] == 0
            weir.push("q", 3)


def test_an_interrupted_step_has_ended_before_the_next_one() -> None:
    thread = LoopThread()
    started, steps = threading.Event(), []

    async def step() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("ended")

    def interrupt() -> None:
        started.wait()
        # The caller is about to wait; nothing tells when it does.
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        thread.run(step())
    assert steps == ["ended"]
    thread.close()


def test_a_closed_client_says_so() -> None:
    with RawServer(ACCEPTED) as server:
        weir = Weir(server.url)
        weir.push("q", 1)
        weir.close()
        weir.close()
        with pytest.raises(RuntimeError, match="closed"):
            weir.push("q", 2)


def test_an_answer_that_is_too_long_is_refused() -> None:
    with pytest.raises(ConnectionFailed, match="over 10 bytes"):
        AnswerReader(most_bytes=10).feed(ACCEPTED)


def test_headers_that_do_not_end_are_refused() -> None:
    reader = AnswerReader(most_bytes=10)
    assert reader.feed(b"HTTP/1.1 200 OK\r\nx: " + b"x" * 1_000) is None
    with pytest.raises(ConnectionFailed, match="headers"):
        reader.feed(b"x" * MAX_HEAD_BYTES)
