"""Which addresses chats may be sent to: those an operator set, and never one that machines keep their secrets at.

A host name can be made to point anywhere, so what it resolves to is looked at each time a connection is opened.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from recollect.errors import InvalidSettings, UpstreamUnavailable

# Numbers that some resolvers read as an IPv4 address, and our check would not.
_ODD_NUMBER = re.compile(r"(?:0[xX][0-9a-fA-F]*|[0-9]+)(?:\.(?:0[xX][0-9a-fA-F]*|[0-9]+)){0,3}\.?")
# In other letters a resolver may see an address that is not seen here.
_HOST = re.compile(r"[a-zA-Z0-9._-]+|[0-9a-fA-F:.]+(?:%[a-zA-Z0-9._-]+)?")
# Before an IPv4 address: the old way to write one as IPv6, and the prefix of networks that have only IPv6.
_IPV4_IN_IPV6 = (ipaddress.ip_network("::/96"), ipaddress.ip_network("64:ff9b::/96"))
_BROADCAST = ipaddress.ip_address("255.255.255.255")
# Where cloud machines are told their secrets, besides all that is link-local.
_METADATA = frozenset(map(ipaddress.ip_address, ("100.100.100.200", "fd00:ec2::254", "192.0.0.192")))


def checked_url(url: str, *, name: str) -> str:
    """The base URL without a slash at its end; InvalidSettings if chats must not or cannot go there."""
    parts = urlsplit(url.strip())
    try:
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidSettings(f"{name} {url!r} is not a URL: {error}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidSettings(f"{name} {url!r} must start with http:// or https:// and name a host")
    if not _HOST.fullmatch(host):
        raise InvalidSettings(f"{name}: {host!r} is not the plain name of a host; write others in their xn-- form")
    if parts.username is not None or parts.query or parts.fragment:
        raise InvalidSettings(f"{name} is a base URL such as https://host/v1, without user, query or fragment")
    if is_forbidden(host) or (_ODD_NUMBER.fullmatch(host) and not _is_ip_address(host)):
        raise InvalidSettings(f"{name}: {host} is an address that nothing is sent to; name the endpoint's host")
    return url.strip().rstrip("/")


def check_resolved(host: str, addresses: list[str]) -> None:
    """Raise if a host name points where nothing may be sent."""
    for address in addresses:
        if is_forbidden(address):
            raise UpstreamUnavailable(f"{host} points to {address}, an address that nothing is sent to")


def is_forbidden(host: str) -> bool:
    """Whether it is the address of a machine's metadata, of everyone, or of nobody."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0].strip("[]"))
    except ValueError:
        return False
    candidates: list[ipaddress.IPv4Address | ipaddress.IPv6Address] = [address]
    if isinstance(address, ipaddress.IPv6Address):
        candidates += [each for each in (address.ipv4_mapped, address.sixtofour) if each is not None]
        if not address.is_loopback and any(address in each for each in _IPV4_IN_IPV6):
            candidates.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return any(_is_blocked(each) for each in candidates)


def _is_blocked(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    special = address.is_link_local or address.is_multicast or address.is_unspecified
    return special or address == _BROADCAST or address in _METADATA


def _is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
