"""The HTTP server around the application: one socket, one event loop, a graceful end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp

from weir.api.limits import Limits
from weir.errors import Misconfigured
from weir.model.asyncio_tasks import cancel_and_wait
from weir.serve.accept import Acceptor
from weir.serve.forwarded import TrustedProxies
from weir.serve.protocol import LimitedProtocol
from weir.serve.shedding import SheddingProtocol, shedder_of
from weir.serve.stranger_turns import StrangerTurns
from weir.serve.tls import CertificateFiles
from weir.serve.unfinished import UnfinishedRequests

GRACE_S = 20
"""How long requests in progress may take after a stop; systemd units kill a process after 40 s."""
BACKLOG = 2_048
KEEP_ALIVE_S = 30


class HttpServer(uvicorn.Server):
    """uvicorn with limits, with `Acceptor` instead of its servers, and without its signal handlers."""

    def __init__(
        self,
        config: uvicorn.Config,
        limits: Limits,
        *,
        tls: CertificateFiles | None = None,
        proxies: TrustedProxies | None = None,
    ) -> None:
        super().__init__(config)
        self._limits = limits
        self._tls = tls
        self._proxies = proxies
        self.unfinished = UnfinishedRequests(limits)
        self._shedder = shedder_of(config.app)
        self._strangers = StrangerTurns()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        self.servers += [
            Acceptor(  # type: ignore[misc]
                listener,
                self._protocol,
                backlog=self.config.backlog,
                relieve=self._relieve,
                tls=self._tls,
                unfinished=self.unfinished,
            )
            for listener in sockets or ()
        ]

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers, because the command that runs the server handles signals."""
        yield

    def _protocol(self) -> asyncio.Protocol:
        return SheddingProtocol(
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            limits=self._limits,
            unfinished=self.unfinished,
            shedder=self._shedder,
            strangers=self._strangers,
            proxies=self._proxies,
        )

    def _relieve(self, count: int) -> None:
        """Close idle connections, then the connections whose request has been arriving longest."""
        for connection in list(self.server_state.connections):
            if count and isinstance(connection, LimitedProtocol) and connection.idle:
                connection.transport.close()
                count -= 1
        self.unfinished.relieve(count)


def bind(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """Bind a socket to an address; port 0 picks a free one. `reuse_port` lets several processes share it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if reuse_port:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise Misconfigured(
            f"cannot listen on `{host}:{port}` ({error.strerror}); choose another port"
        ) from None
    return listener


@asynccontextmanager
async def listening(
    app: ASGIApp,
    listener: socket.socket,
    *,
    stopping: Callable[[], None],
    limits: Limits | None = None,
    grace_s: int = GRACE_S,
    tls: CertificateFiles | None = None,
    proxies: TrustedProxies | None = None,
) -> AsyncIterator[str]:
    """Answer requests while the block runs; yields the base URL.

    At its end `stopping` is called, new connections are refused, and requests in progress may finish.
    """
    server = HttpServer(_config(app, grace_s), limits or Limits(), tls=tls, proxies=proxies)
    task = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    watch = asyncio.create_task(tls.watch(), name="certificate") if tls is not None else None
    try:
        await _wait_started(server, task)
        yield base_url(listener, secure=tls is not None)
    finally:
        if watch is not None:
            await cancel_and_wait([watch])
        stopping()
        server.should_exit = True
        await task
        listener.close()


def base_url(listener: socket.socket, *, secure: bool = False) -> str:
    host, port = listener.getsockname()[:2]
    scheme = "https" if secure else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _config(app: ASGIApp, grace_s: int) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=SheddingProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        # uvicorn logs a warning for every request that is not HTTP, and anyone can send such requests.
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=grace_s,
    )


async def _wait_started(server: HttpServer, task: asyncio.Task[None]) -> None:
    while not server.started:
        if task.done():
            await task
        await asyncio.sleep(0.005)
