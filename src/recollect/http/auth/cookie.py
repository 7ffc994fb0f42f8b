"""The page's cookie: an API key that a browser sends and no script can read.

Browsers send cookies with requests that other sites cause. SameSite=Strict prevents that for other sites, but not for
other ports of this host; therefore a request that is authenticated by the cookie must come from our own page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.types import Scope

from recollect.errors import NotAllowed
from recollect.http.auth.address import Network, is_within
from recollect.http.routing import API_PREFIX

COOKIE_NAME = "recollect_key"
PAGE_HEADER = b"x-recollect-page"
_NAME = COOKIE_NAME.encode()
_MAX_AGE_S = 30 * 86_400
_SAFE_METHODS = ("GET", "HEAD")
# Besides the REST API: what the page needs to chat.
_CHAT_PATHS = frozenset(["/v1/chat/completions", "/v1/models"])


def accepts_cookie(path: str) -> bool:
    """Return whether the cookie authenticates requests for this path."""
    return path.startswith(f"{API_PREFIX}/") or path in _CHAT_PATHS


def read_cookie(header: bytes) -> str:
    """Return the key in a Cookie header, or an empty text."""
    for part in header.split(b";"):
        name, _, value = part.strip().partition(b"=")
        if name == _NAME:
            return value.strip().strip(b'"').decode("latin-1")
    return ""


def without_cookie(header: bytes) -> bytes:
    """Return a Cookie header without ours."""
    parts = [part.strip() for part in header.split(b";")]
    return b"; ".join(part for part in parts if part and part.partition(b"=")[0].strip() != _NAME)


def check_own_page(scope: Scope) -> None:
    """Raise NotAllowed unless a request with the cookie was sent by our own page or typed by the user.

    Another site cannot send the page's header: its browser would first ask this server, which does not allow it.
    `HostGuardMiddleware` has compared Origin with the host.
    """
    headers = dict(scope["headers"])
    if headers.get(b"sec-fetch-site", b"none") not in (b"same-origin", b"none"):
        raise NotAllowed("Pages of other sites may not use the cookie of this one")
    if scope["method"] not in _SAFE_METHODS and headers.get(PAGE_HEADER) != b"1":
        raise NotAllowed("A change that is authenticated by cookie needs the header X-Recollect-Page: 1")


def cookie_header(key: str, scope: Scope, *, base_path: str, proxies: Sequence[Network]) -> str:
    """Return the Set-Cookie header that stores a key, or deletes it if it is empty."""
    forwarded = forwarded_headers(scope, proxies)
    path = forwarded.get(b"x-forwarded-prefix", b"").decode("latin-1").rstrip("/") or base_path
    if not path.startswith("/") or any(character in path for character in ";,\\ \r\n"):
        path = ""
    age_s = _MAX_AGE_S if key else 0
    attributes = [f"{COOKIE_NAME}={key}", f"Path={path or '/'}", f"Max-Age={age_s}", "HttpOnly", "SameSite=Strict"]
    return "; ".join([*attributes, "Secure"] if is_https(scope, forwarded) else attributes)


def is_https(scope: Scope, forwarded: Mapping[bytes, bytes]) -> bool:
    """Return whether the client's connection is encrypted, to this server or to the proxy."""
    return scope["scheme"] == "https" or forwarded.get(b"x-forwarded-proto", b"").lower() == b"https"


def forwarded_headers(scope: Scope, proxies: Sequence[Network]) -> Mapping[bytes, bytes]:
    """Return the headers, if a trusted proxy has sent them."""
    address = scope["client"][0] if scope.get("client") else ""
    return dict(scope["headers"]) if is_within(address, tuple(proxies)) else {}
