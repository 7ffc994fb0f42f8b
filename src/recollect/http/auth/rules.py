"""From settings to rules: who has to show what."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from enum import StrEnum

from recollect.errors import InvalidSettings
from recollect.http.auth.address import Network, is_loopback, read_networks
from recollect.http.auth.tokens import Tokens, read_jwks_url
from recollect.settings import Settings

_log = logging.getLogger("recollect")
_MODES = ("auto", "off", "keys", "gateway", "jwt")
_HEADER = re.compile(r"[a-z0-9-]{1,100}")


class Open(StrEnum):
    """When somebody who shows nothing is the owner."""

    NEVER = "never"
    WITHOUT_KEYS = "while there are no keys"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What is accepted of whom."""

    keys: bool
    open: Open
    # Whose word is taken for who is asking, and whose for where a request comes from.
    gateways: tuple[Network, ...] = ()
    proxies: tuple[Network, ...] = ()
    user_header: bytes = b""
    project_header: bytes = b""
    tokens: Tokens | None = None


def read_rules(settings: Settings) -> Rules:
    """The rules that the settings make; InvalidSettings where they contradict each other or lack something."""
    modes = modes_of(settings)
    auto, alone = "auto" in modes, is_loopback(settings.host)
    gateway = "gateway" in modes or (auto and bool(settings.trusted_gateways))
    jwt = "jwt" in modes or (auto and bool(settings.jwt_jwks_url))
    opened = Open.NEVER
    if alone and "off" in modes:
        opened = Open.ALWAYS
    elif alone and auto and not (gateway or jwt):
        opened = Open.WITHOUT_KEYS
    networks = read_networks(settings.trusted_gateways)
    if gateway and not networks:
        raise InvalidSettings("auth = gateway needs trusted_gateways: the addresses whose headers are believed")
    return Rules(
        keys=auto or "keys" in modes or "off" in modes,
        open=opened,
        gateways=networks if gateway else (),
        proxies=networks,
        user_header=_header(settings.gateway_user_header, "gateway_user_header"),
        project_header=_header(settings.gateway_project_header, "gateway_project_header", optional=True),
        tokens=_tokens(settings) if jwt else None,
    )


def modes_of(settings: Settings) -> frozenset[str]:
    """The ways to authenticate that are named."""
    modes = frozenset(filter(None, (each.strip().lower() for each in settings.auth.split(","))))
    if unknown := modes - set(_MODES):
        raise InvalidSettings(f"auth: {min(unknown)!r} is not one of {', '.join(_MODES)}")
    if not modes or (len(modes) > 1 and modes & {"auto", "off"}):
        raise InvalidSettings("auth is auto, off, or some of keys, gateway and jwt, separated by commas")
    return modes


def check_bind(settings: Settings, *, has_keys: bool) -> None:
    """Raise if other machines could reach a server that asks nobody who they are."""
    rules = read_rules(settings)
    if is_loopback(settings.host):
        return
    if "off" in modes_of(settings):
        raise InvalidSettings(
            f"host {settings.host} can be reached from other machines, and auth is off, so there would be no "
            f"authentication: use 127.0.0.1, or another auth"
        )
    if not rules.keys or has_keys or rules.gateways or rules.tokens:
        return
    if "keys" in modes_of(settings):
        # Whoever asks for keys by name may make the first one later; until then nobody gets in.
        _log.warning("there is no key yet, so nobody is let in: `recollect keys add` makes one")
    else:
        raise InvalidSettings(
            f"host {settings.host} can be reached from other machines, and there is no authentication yet: make a "
            f"key with `recollect keys add`, set trusted_gateways or jwt_jwks_url, or use 127.0.0.1"
        )


def _header(name: str, setting: str, *, optional: bool = False) -> bytes:
    name = name.strip().lower()
    if not (_HEADER.fullmatch(name) or (optional and not name)):
        raise InvalidSettings(f"{setting}: {name!r} is no name of a header")
    return name.encode()


def _tokens(settings: Settings) -> Tokens:
    for name in ("jwt_jwks_url", "jwt_issuer", "jwt_audience", "jwt_user_claim"):
        if not getattr(settings, name):
            raise InvalidSettings(f"auth = jwt needs {name}: without it, tokens made for others would be accepted")
    return Tokens(
        read_jwks_url(settings.jwt_jwks_url),
        issuer=settings.jwt_issuer,
        audience=settings.jwt_audience,
        user_claim=settings.jwt_user_claim,
        project_claim=settings.jwt_project_claim,
        skew_s=settings.jwt_skew_s,
    )
