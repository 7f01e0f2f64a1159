"""The addresses that an outbound request may reach: public ones, and subnets that the operator allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from weir.errors import InvalidInput

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
HOW_TO_ALLOW = "if it is meant, allow its subnet with `WEIR_WORKER__ALLOWED_SUBNETS`"
"""What an operator can do about a refusal."""

# Ranges that `ipaddress` calls global although they carry or tunnel other addresses.
_NAT64 = IPv6Network("64:ff9b::/96")
_NAT64_LOCAL = IPv6Network("64:ff9b:1::/48")
_COMPATIBLE = IPv6Network("::/96")
_TEREDO = IPv6Network("2001::/32")
_SEGMENT_ROUTING = IPv6Network("5f00::/16")


def unwrapped(address: Address) -> Address:
    """The IPv4 address inside an IPv6 address that carries one, else the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def is_public(address: Address) -> bool:
    """Whether the address, or the IPv4 address inside it, belongs to the public internet.

    `is_global` alone is also true for multicast, and for IPv6 forms that carry a private IPv4 address.
    """
    if isinstance(address, IPv6Address) and any(
        address in network for network in (_TEREDO, _NAT64_LOCAL, _SEGMENT_ROUTING)
    ):
        return False
    inner = unwrapped(address)
    return inner.is_global and not (inner.is_multicast or inner.is_reserved or inner.is_unspecified)


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """The subnets that an operator allows, such as `10.0.0.0/8`."""
    try:
        return tuple(ip_network(text) for text in texts)
    except ValueError as error:
        raise InvalidInput(f"an allowed subnet cannot be read: {error}; write it like `10.0.0.0/8`") from None


def may_reach(text: str, *, allowed: Iterable[Network] = ()) -> bool:
    """Whether Weir may connect to a resolved address."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return False
    inner = unwrapped(address)
    if any(inner in network for network in allowed if network.version == inner.version):
        return True
    return is_public(address)


def refusal(host: str, refused: Sequence[str]) -> str:
    """Why a host may not be reached: some of its addresses are not public, or it has none."""
    if not refused:
        return f"`{host}` has no address; check its name"
    return f"`{host}` is at `{', '.join(refused)}`, which is not public; {HOW_TO_ALLOW}"
