"""Addresses of peers: whether only this machine is meant, who is a gateway, and who counts as one."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import TypeAlias

from recollect.errors import InvalidSettings

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    address = parse_address(host.strip("[]"))
    return address is not None and address.is_loopback


@lru_cache(maxsize=4096)
def parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address, or None if it is none; IPv4 that comes in IPv6's clothes is IPv4."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


@lru_cache(maxsize=4096)
def client_network(text: str) -> str:
    """What counts as one peer: an IPv4 address, or the network that one IPv6 customer is given."""
    address = parse_address(text)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address) if address else text[:100]


def parse_networks(text: str) -> tuple[Network, ...]:
    """Networks such as 10.0.0.0/8, separated by commas; InvalidSettings for nonsense and for everyone."""
    networks = []
    for each in filter(None, map(str.strip, text.split(","))):
        try:
            network = ipaddress.ip_network(each)
        except ValueError as error:
            raise InvalidSettings(f"trusted_gateways: {error}") from None
        if not network.prefixlen:
            raise InvalidSettings(f"trusted_gateways: {each} is everyone: name the addresses of the gateways")
        networks.append(network)
    return tuple(networks)


@lru_cache(maxsize=4096)
def is_within(text: str, networks: tuple[Network, ...]) -> bool:
    """Whether the address is in one of the networks."""
    address = parse_address(text)
    return address is not None and any(address in each for each in networks)
