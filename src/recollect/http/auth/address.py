"""Network addresses: loopback, trusted networks, what counts as one client, and where requests may be sent.

Requests may be sent to the addresses of the settings, but never to a cloud metadata service. A host name can be
pointed anywhere, so the addresses it resolves to are checked for each connection.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import TypeAlias
from urllib.parse import urlsplit

from recollect.errors import InvalidSettings, UpstreamUnavailable

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
    address = parse_address(text)
    return address is not None and any(address in each for each in networks)


# Numbers that some resolvers read as an IPv4 address and `ipaddress` does not.
_ODD_NUMBER = re.compile(r"(?:0[xX][0-9a-fA-F]*|[0-9]+)(?:\.(?:0[xX][0-9a-fA-F]*|[0-9]+)){0,3}\.?")
# ASCII only: a resolver may normalize other characters to an address.
_HOST = re.compile(r"[a-zA-Z0-9._-]+|[0-9a-fA-F:.]+(?:%[a-zA-Z0-9._-]+)?")
# IPv4-compatible IPv6 addresses, and the NAT64 prefix.
_IPV4_IN_IPV6 = (ipaddress.ip_network("::/96"), ipaddress.ip_network("64:ff9b::/96"))
_BROADCAST = ipaddress.ip_address("255.255.255.255")
# Metadata services that are not link-local.
_METADATA = frozenset(map(ipaddress.ip_address, ("100.100.100.200", "fd00:ec2::254", "192.0.0.192")))


def checked_url(url: str, *, name: str) -> str:
    """Return a base URL without a trailing slash; raises InvalidSettings if nothing may be sent there."""
    parts = urlsplit(url.strip())
    try:
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidSettings(f"{name} {url!r} is not a URL: {error}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidSettings(f"{name} {url!r} must start with http:// or https:// and name a host")
    if not _HOST.fullmatch(host):
        raise InvalidSettings(f"{name}: {host!r} is not a plain host name; write other names in their xn-- form")
    if parts.username is not None or parts.query or parts.fragment:
        raise InvalidSettings(f"{name} must be a base URL such as https://host/v1, without user, query or fragment")
    if is_forbidden(host) or (_ODD_NUMBER.fullmatch(host) and parse_address(host) is None):
        raise InvalidSettings(f"{name}: {host} is a forbidden address; name the endpoint's host")
    return url.strip().rstrip("/")


def check_resolved(host: str, addresses: list[str]) -> None:
    """Raise UpstreamUnavailable if a host name resolves to a forbidden address."""
    for address in addresses:
        if is_forbidden(address):
            raise UpstreamUnavailable(f"{host} resolves to {address}, a forbidden address")


def is_forbidden(host: str) -> bool:
    """Return whether this is a metadata, link-local, multicast, broadcast or unspecified address."""
    address = parse_address(host.strip("[]"))
    if address is None:
        return False
    candidates: list[ipaddress.IPv4Address | ipaddress.IPv6Address] = [address]
    if isinstance(address, ipaddress.IPv6Address):
        candidates += [address.sixtofour] if address.sixtofour is not None else []
        if not address.is_loopback and any(address in each for each in _IPV4_IN_IPV6):
            candidates.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return any(
        each.is_link_local or each.is_multicast or each.is_unspecified or each == _BROADCAST or each in _METADATA
        for each in candidates
    )
