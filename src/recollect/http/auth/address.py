"""Network addresses of peers: loopback, trusted networks, and what counts as one client."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import TypeAlias

from recollect.errors import InvalidSettings

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address."""
    if host == "localhost":
        return True
    address = parse_address(host.strip("[]"))
    return address is not None and address.is_loopback


@lru_cache(maxsize=4096)
def parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address, or None if it is invalid; an IPv4-mapped IPv6 address is IPv4."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


@lru_cache(maxsize=4096)
def client_network(text: str) -> str:
    """Return what counts as one client: an IPv4 address, or the /64 network of an IPv6 customer."""
    address = parse_address(text)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address) if address else text[:100]


def parse_networks(text: str) -> tuple[Network, ...]:
    """Parse networks such as 10.0.0.0/8, separated by commas; InvalidSettings for one that contains all addresses."""
    networks = []
    for each in filter(None, map(str.strip, text.split(","))):
        try:
            network = ipaddress.ip_network(each)
        except ValueError as error:
            raise InvalidSettings(f"trusted_gateways: {error}") from None
        if not network.prefixlen:
            raise InvalidSettings(f"trusted_gateways: {each} contains all addresses: name those of the gateways")
        networks.append(network)
    return tuple(networks)


@lru_cache(maxsize=4096)
def is_within(text: str, networks: tuple[Network, ...]) -> bool:
    """Return whether the address is in one of the networks."""
    address = parse_address(text)
    return address is not None and any(address in each for each in networks)
