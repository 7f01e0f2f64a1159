"""Guards everything that Weir sends out: the address is checked when a request connects.

The name is resolved here, every address of it is checked, and the connection goes to an address that was
checked. So a name that resolves to a private address the second time gains nothing. Redirects are not
followed, and proxies of the environment are not used.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpcore2
import httpx2

from weir.errors import InvalidInput
from weir.outbound.addresses import HOW_TO_ALLOW, Network, may_reach, refusal

Resolver = Callable[[str, int], Awaitable[list[str]]]


class AddressRefused(InvalidInput):
    """Weir may not reach the destination; trying again does not help."""

    code = "destination_refused"
    title = "Destination refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardPolicy:
    """Where outbound requests may go."""

    allowed: tuple[Network, ...] = ()
    """Private subnets that the operator allows."""
    ports: frozenset[int] | None = None
    """None allows every port."""
    https_only: bool = False


def check_url(url: str, *, policy: GuardPolicy) -> str:
    """Return `url` if it can be a destination. Its address is checked later, on connecting."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise AddressRefused(f"`{url:.200}` is not a URL; expected `https://host/path`") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise AddressRefused(f"`{url:.200}` is not an HTTP URL; expected `https://host/path`")
    if policy.https_only and parts.scheme != "https":
        raise AddressRefused(f"`{url:.200}` is not encrypted; use `https`")
    if parts.username is not None or parts.password is not None:
        raise AddressRefused("a URL with a user name or password is refused; sign the request instead")
    if policy.ports is not None and (port or (443 if parts.scheme == "https" else 80)) not in policy.ports:
        raise AddressRefused(f"port {port} is not one of {sorted(policy.ports)}")
    address = "127.0.0.1" if _is_local(parts.hostname) else parts.hostname
    if _looks_numeric(address) and not may_reach(address, allowed=policy.allowed):
        raise AddressRefused(f"`{parts.hostname}` is not a public address; {HOW_TO_ALLOW}")
    return url


def _is_local(host: str) -> bool:
    """Whether a name always means this host (RFC 6761)."""
    name = host.rstrip(".").lower()
    return name == "localhost" or name.endswith(".localhost")


def guarded_client(
    policy: GuardPolicy, *, timeout_s: float = 15.0, resolver: Resolver | None = None
) -> httpx2.AsyncClient:
    """A client that refuses private addresses, follows no redirect and uses no proxy of the environment."""
    return httpx2.AsyncClient(
        transport=GuardedTransport(policy, resolver=resolver or resolve),
        timeout=timeout_s,
        follow_redirects=False,
        trust_env=False,
    )


class GuardedTransport(httpx2.AsyncHTTPTransport):
    """httpx2's transport over a pool whose connections are guarded."""

    def __init__(self, policy: GuardPolicy, *, resolver: Resolver) -> None:
        super().__init__(trust_env=False)
        self._policy = policy
        # httpx2's own limits; its pool is replaced because it takes no network backend.
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=httpx2.create_ssl_context(trust_env=False),
            max_connections=100,
            max_keepalive_connections=20,
            keepalive_expiry=5.0,
            network_backend=_GuardedBackend(policy, resolver),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        check_url(str(request.url), policy=self._policy)
        return await super().handle_async_request(request)


class _GuardedBackend(httpcore2.AsyncNetworkBackend):
    def __init__(self, policy: GuardPolicy, resolver: Resolver) -> None:
        self._policy = policy
        self._resolver = resolver
        self._inner = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        addresses = await self._resolve(host, port, timeout)
        refused = [one for one in addresses if not may_reach(one, allowed=self._policy.allowed)]
        # One private address is enough to refuse the host: otherwise a name with a public and a private
        # address could be used.
        if refused or not addresses:
            raise AddressRefused(refusal(host, refused))
        return await self._inner.connect_tcp(
            addresses[0], port, timeout=timeout, local_address=local_address, socket_options=socket_options
        )

    async def _resolve(self, host: str, port: int, timeout: float | None) -> list[str]:
        try:
            return await asyncio.wait_for(self._resolver(host, port), timeout)
        except TimeoutError:
            raise httpcore2.ConnectTimeout(f"resolving `{host}` took too long") from None
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(f"`{host}` does not resolve: {error}") from None

    async def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        raise AddressRefused("a unix socket is not a destination")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def resolve(host: str, port: int) -> list[str]:
    """Every address of a host, in the order in which the system prefers them."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _looks_numeric(host: str) -> bool:
    """Whether some resolver reads the host as an address: dotted, decimal, octal or hexadecimal."""
    if ":" in host:
        return True
    labels = host.rstrip(".").split(".")
    return all(label.isdigit() or label.startswith("0x") for label in labels)
