"""Serves until cancelled: starts stores, loops and HTTP in order, and stops them in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

from weir.api.app import create_app
from weir.dashboard.site import routes as dashboard
from weir.errors import WeirError
from weir.model.open_files import raise_file_limit
from weir.serve.address import published_address
from weir.serve.bootstrap import bootstrap_tokens
from weir.serve.build import open_process
from weir.serve.collector import calm_collector
from weir.serve.forwarded import TrustedProxies
from weir.serve.server import bind, listening
from weir.serve.tls import certificate_files
from weir.settings import Settings, StoreUrls
from weir.warehouse.inspect import inspect_clickhouse

log = structlog.get_logger("weir.serve")


@asynccontextmanager
async def served(
    settings: Settings, urls: StoreUrls, *, accept_loss: bool = False, token_dir: Path | None = None
) -> AsyncIterator[str]:
    """Answer requests while the block runs; yields the base URL.

    With `token_dir`, the first tokens and the address of the API are kept there for other commands.
    """
    # Every waiting client needs one.
    raise_file_limit()
    tls = certificate_files(settings.api.tls_certificate, settings.api.tls_key)
    proxies = TrustedProxies(settings.api.trusted_proxies) if settings.api.trusted_proxies else None
    listener = bind(settings.api.host, settings.api.port)
    try:
        async with open_process(settings, urls, accept_loss=accept_loss) as process:
            services = process.services
            if token_dir is not None and services.tokens is not None:
                await bootstrap_tokens(services.tokens, token_dir)
            # Both block the event loop for 0.2 s and more, in which background loops would time out (0090).
            app = create_app(services, routes=dashboard())
            calm_collector()
            async with (
                process.supervisor.running(),
                listening(
                    app,
                    listener,
                    stopping=services.stopping.set,
                    limits=services.limits,
                    tls=tls,
                    proxies=proxies,
                ) as url,
            ):
                log.info("serving", url=url)
                try:
                    with published_address(token_dir, url):
                        yield url
                finally:
                    log.info("stopping")
    finally:
        listener.close()


async def serve(
    settings: Settings,
    urls: StoreUrls,
    *,
    accept_loss: bool = False,
    token_dir: Path | None = None,
    ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until cancelled."""
    async with served(settings, urls, accept_loss=accept_loss, token_dir=token_dir) as url:
        ready(url)
        await _look_at_charts(urls.clickhouse)
        await asyncio.Event().wait()


async def _look_at_charts(url: str) -> None:
    """Log at the start why charts cannot be read, such as a wrong password. Pushes do not need ClickHouse."""
    try:
        problems = (await inspect_clickhouse(url)).problems()
    except WeirError as error:
        problems = [error.message]
    for problem in problems:
        log.warning("charts cannot be read", error=problem)
