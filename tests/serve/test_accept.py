"""Taking connections: a crowd at the door is let in at once, and a full house waits."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import ExitStack

import pytest
import uvloop
from starlette.types import Receive, Scope, Send

from weir.serve import accept
from weir.serve.accept import MAX_PER_TURN, Acceptor
from weir.serve.server import bind, listening

CROWD = 3 * MAX_PER_TURN


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


class _Troubled(socket.socket):
    """A listening socket: twice its process has no file descriptor left, then a client was gone already."""

    troubles = (errno.EPROTO, errno.ECONNABORTED, errno.EMFILE, errno.EMFILE)

    def accept(self) -> tuple[socket.socket, object]:
        if self.troubles:
            *self.troubles, trouble = self.troubles  # type: ignore[assignment]
            raise OSError(trouble, "no")
        return super().accept()


class _Greeter(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"hello")
        transport.close()


def test_a_crowd_is_let_in_within_some_turns_of_the_loop() -> None:
    async def turns() -> int:
        listener = bind("127.0.0.1", 0)
        async with listening(_answer, listener, stopping=lambda: None, grace_s=1):
            with ExitStack() as stack:
                clients = [
                    stack.enter_context(socket.create_connection(listener.getsockname()))
                    for _ in range(CROWD)
                ]
                for client in clients:
                    client.sendall(b"GET / HTTP/1.1\r\nhost: weir\r\n\r\n")
                    client.setblocking(False)
                return await _turns_until_answered(clients[-1])

    assert uvloop.run(turns()) < 20


async def _turns_until_answered(client: socket.socket) -> int:
    for turn in range(CROWD * 4):
        await asyncio.sleep(0)
        try:
            assert client.recv(100).startswith(b"HTTP/1.1 204")
        except BlockingIOError:
            continue
        return turn
    raise AssertionError("never answered")


async def test_what_cannot_be_taken_now_is_taken_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accept, "_PAUSE_S", 0.01)
    with _Troubled(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind(("127.0.0.1", 0))
        acceptor = Acceptor(listener, _Greeter, backlog=10)
        async with asyncio.timeout(5):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            assert await reader.read() == b"hello"
            writer.close()
        assert not listener.troubles
        acceptor.close()
        await acceptor.wait_closed()


async def test_a_closed_door_lets_nobody_in() -> None:
    listener = bind("127.0.0.1", 0)
    acceptor = Acceptor(listener, _Greeter, backlog=10)
    acceptor.close()
    acceptor.close()
    await acceptor.wait_closed()
    with socket.create_connection(listener.getsockname()) as client:
        client.setblocking(False)
        for _ in range(10):
            await asyncio.sleep(0)
        with pytest.raises(BlockingIOError):
            client.recv(1)
    listener.close()
