"""The authentication rules of the settings."""

from __future__ import annotations

import logging
import re
from enum import StrEnum

from recollect.config.settings import Settings
from recollect.errors import InvalidSettings
from recollect.frozen_dataclass import frozen_dataclass
from recollect.http.auth.address import Network, is_loopback, parse_networks
from recollect.http.auth.tokens import TokenVerifier, check_jwks_url

_log = logging.getLogger("recollect")
_MODES = ("auto", "off", "keys", "gateway", "jwt")
_HEADER = re.compile(r"[a-z0-9-]{1,100}")


class AnonymousAccess(StrEnum):
    """When a request without credentials is the owner's."""

    NEVER = "never"
    WITHOUT_KEYS = "while there are no keys"
    ALWAYS = "always"


@frozen_dataclass(kw_only=True)
class AuthRules:
    """The accepted credentials."""

    keys: bool
    anonymous: AnonymousAccess
    # The addresses whose user header is trusted, and those whose X-Forwarded-For is.
    gateways: tuple[Network, ...] = ()
    proxies: tuple[Network, ...] = ()
    user_header: bytes = b""
    project_header: bytes = b""
    tokens: TokenVerifier | None = None
    allows_anonymous_proxy: bool = False
    # The path below which a reverse proxy serves this server.
    base_path: str = ""


def load_auth_rules(settings: Settings) -> AuthRules:
    """Return the rules of the settings; InvalidSettings if they are contradictory or incomplete."""
    modes = parse_auth_modes(settings)
    auto, is_local = "auto" in modes, is_loopback(settings.host)
    gateway = "gateway" in modes or (auto and bool(settings.trusted_gateways))
    jwt = "jwt" in modes or (auto and bool(settings.jwt_jwks_url))
    anonymous = AnonymousAccess.NEVER
    if is_local and "off" in modes:
        anonymous = AnonymousAccess.ALWAYS
    elif is_local and auto and not (gateway or jwt):
        anonymous = AnonymousAccess.WITHOUT_KEYS
    networks = parse_networks(settings.trusted_gateways)
    if gateway and not networks:
        raise InvalidSettings("auth = gateway needs trusted_gateways: the addresses whose headers are trusted")
    return AuthRules(
        keys=auto or "keys" in modes or "off" in modes,
        anonymous=anonymous,
        gateways=networks if gateway else (),
        proxies=networks,
        user_header=_parse_header_name(settings.gateway_user_header, "gateway_user_header"),
        project_header=_parse_header_name(settings.gateway_project_header, "gateway_project_header", optional=True),
        tokens=_create_verifier(settings) if jwt else None,
        allows_anonymous_proxy=settings.allow_anonymous_proxy,
        base_path=settings.base_path,
    )


def parse_auth_modes(settings: Settings) -> frozenset[str]:
    modes = frozenset(filter(None, (each.strip().lower() for each in settings.auth.split(","))))
    if unknown := modes - set(_MODES):
        raise InvalidSettings(f"auth: {min(unknown)!r} is not one of {', '.join(_MODES)}")
    if not modes or (len(modes) > 1 and modes & {"auto", "off"}):
        raise InvalidSettings("auth must be auto, off, or some of keys, gateway and jwt, separated by commas")
    return modes


def check_bind(settings: Settings, *, has_keys: bool) -> None:
    """Raise InvalidSettings if other machines could reach a server without authentication."""
    rules = load_auth_rules(settings)
    if is_loopback(settings.host):
        return
    if "off" in parse_auth_modes(settings):
        raise InvalidSettings(
            f"host {settings.host} can be reached from other machines, and auth is off, so there would be no "
            f"authentication: use 127.0.0.1, or another auth"
        )
    if not rules.keys or has_keys or rules.gateways or rules.tokens:
        return
    if "keys" in parse_auth_modes(settings):
        # With an explicit `auth = keys` the first key may be created later; until then all requests are rejected.
        _log.warning("there is no key yet, so all requests are rejected: `recollect keys add` creates one")
    else:
        raise InvalidSettings(
            f"host {settings.host} can be reached from other machines, and there is no authentication yet: create a "
            f"key with `recollect keys add`, set trusted_gateways or jwt_jwks_url, or use 127.0.0.1"
        )


def _parse_header_name(name: str, setting: str, *, optional: bool = False) -> bytes:
    name = name.strip().lower()
    if not (_HEADER.fullmatch(name) or (optional and not name)):
        raise InvalidSettings(f"{setting}: {name!r} is not a header name")
    return name.encode()


def _create_verifier(settings: Settings) -> TokenVerifier:
    for name in ("jwt_jwks_url", "jwt_issuer", "jwt_audience", "jwt_user_claim"):
        if not getattr(settings, name):
            raise InvalidSettings(f"auth = jwt needs {name}: without it tokens for other services would be accepted")
    return TokenVerifier(
        check_jwks_url(settings.jwt_jwks_url),
        issuer=settings.jwt_issuer,
        audience=settings.jwt_audience,
        user_claim=settings.jwt_user_claim,
        project_claim=settings.jwt_project_claim,
        skew_s=settings.jwt_skew_s,
    )
