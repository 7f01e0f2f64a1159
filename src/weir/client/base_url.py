"""Takes a base URL apart, and says which ones the lean connections can serve."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

_PORTS = {"http": 80, "https": 443}
_PLAIN_PATH = re.compile(r"[!-~]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientUrls:
    """The URLs that a client was given."""

    api: tuple[str, ...]
    redis: str | None = None
    """The URL of Redis in direct mode."""
    token: str = ""

    @classmethod
    def of(cls, urls: str | Sequence[str], *, token: str) -> ClientUrls:
        """Tell the URLs apart. In direct mode `WEIR_URL` and `WEIR_TOKEN` replace what is not given."""
        given = [url.rstrip("/") for url in ((urls,) if isinstance(urls, str) else urls)]
        redis = [url for url in given if _is_redis(url)]
        api = [url for url in given if not _is_redis(url)]
        if not redis:
            return cls(api=tuple(api), token=token)
        if len(redis) > 1:
            raise ValueError("give one URL of Redis; a cluster is named by any of its nodes")
        if not api and "WEIR_URL" not in os.environ:
            raise ValueError(
                "direct mode needs the API too, at the start and while Redis is away; set WEIR_URL to its "
                "address, or give that address beside the URL of Redis"
            )
        known = api or [os.environ["WEIR_URL"].rstrip("/")]
        return cls(api=tuple(known), redis=redis[0], token=token or os.environ.get("WEIR_TOKEN", ""))

    @property
    def names_cluster(self) -> bool:
        """Whether direct mode speaks to a Redis Cluster."""
        return self.redis is not None and "+cluster://" in self.redis


def _is_redis(url: str) -> bool:
    return url.partition("://")[0] in ("redis", "rediss", "redis+cluster", "rediss+cluster")


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseUrl:
    """Where requests go."""

    host: str
    port: int
    secure: bool
    prefix: str
    """The path in front of each request's path; empty, or with a slash in front."""

    @property
    def authority(self) -> str:
        """The value of the `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS["https" if self.secure else "http"] else f"{host}:{self.port}"


def lean_base_urls(urls: Iterable[str]) -> dict[str, BaseUrl] | None:
    """The URLs taken apart; None if one of them needs more than a plain connection.

    httpx2 serves URLs with a proxy in the environment, a user name, or a host name beyond ASCII.
    """
    found = {url: _taken_apart(url) for url in urls}
    plain = {url: base for url, base in found.items() if base is not None}
    return plain if len(plain) == len(found) else None


def _taken_apart(url: str) -> BaseUrl | None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    host = parts.hostname
    if parts.scheme not in _PORTS or not host or not _is_plain(parts) or _has_proxy(parts.scheme, host):
        return None
    return BaseUrl(
        host=host,
        port=_PORTS[parts.scheme] if port is None else port,
        secure=parts.scheme == "https",
        prefix=parts.path.rstrip("/"),
    )


def _is_plain(parts: SplitResult) -> bool:
    if "@" in parts.netloc or parts.query or parts.fragment or not parts.netloc.isascii():
        return False
    return _PLAIN_PATH.fullmatch(parts.path) is not None


def _has_proxy(scheme: str, host: str) -> bool:
    proxies = getproxies()
    return bool(proxies.get(scheme) or proxies.get("all")) and not proxy_bypass(host)


def tls_context() -> ssl.SSLContext:
    """The certificates that httpx2 trusts too, so that both ways to connect trust the same servers."""
    # Imported here, because it takes longer than everything else of the client together.
    import httpx2

    return httpx2.create_ssl_context()
