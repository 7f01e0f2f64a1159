"""Finds the client of a request that came through a proxy, from the headers of trusted proxies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address


class TrustedProxies:
    """The proxies whose X-Forwarded-For and X-Forwarded-Proto are believed."""

    def __init__(self, networks: Iterable[str]) -> None:
        self._networks: tuple[IPv4Network | IPv6Network, ...] = tuple(map(ip_network, networks))

    def trust(self, host: str) -> bool:
        found = _address(host)
        return found is not None and any(found in network for network in self._networks)

    def client(self, headers: Sequence[tuple[bytes, bytes]]) -> str | None:
        """The last address that is not that of a trusted proxy; None if the headers name no address.

        The client itself may have written the addresses before it, and can write anything.
        """
        found: str | None = None
        for word in reversed(_words(headers, b"x-forwarded-for")):
            address = _address(word)
            if address is None:
                break
            found = str(address)
            if not self.trust(found):
                break
        return found

    def scheme(self, headers: Sequence[tuple[bytes, bytes]]) -> str | None:
        """How the client reached the last proxy."""
        word = next(reversed(_words(headers, b"x-forwarded-proto")), "").lower()
        return word if word in ("http", "https") else None


def _words(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> list[str]:
    values = [value for key, value in headers if key == name]
    return [word.strip() for word in b",".join(values).decode("latin-1").split(",") if word.strip()]


def _address(text: str) -> Address | None:
    """An address, which may stand with its port: `192.0.2.1:80`, `[2001:db8::1]:80`."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found
