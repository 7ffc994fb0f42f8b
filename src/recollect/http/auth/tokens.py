"""JSON Web Tokens: verification with the keys that the issuer publishes.

Only asymmetric signatures are accepted, and only keys from the URL that the operator set: URLs in tokens are ignored.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from recollect.errors import InvalidInput, InvalidSettings, MissingExtra, Unauthenticated, Unavailable
from recollect.http.auth.address import is_forbidden, is_loopback
from recollect.http.auth.caller import Caller
from recollect.model.scope import Scope

if TYPE_CHECKING:
    import httpx


_log = logging.getLogger("recollect")
_KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_MAX_TOKEN_CHARS = 16_384
# How long a verified token is cached.
CACHE_S = 5.0
MAX_CACHED = 10_000
# Keys are refreshed after this time; for an unknown key sooner, but never more often than the second one.
REFRESH_S, RETRY_S = 300.0, 10.0
# How long the old keys are used while they cannot be refreshed.
MAX_STALE_S = 3600.0
FETCH_S = 5.0
_MAX_BYTES = 1 << 20


_KEYS_UNAVAILABLE = "The keys that verify tokens cannot be fetched from jwt_jwks_url"


def check_jwks_url(url: str) -> str:
    """Return the URL; InvalidSettings without HTTPS, because the keys could be forged."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise InvalidSettings("jwt_jwks_url must start with https://; http:// is allowed for this machine only")
    if not host or is_forbidden(host) or parts.username is not None:
        raise InvalidSettings("jwt_jwks_url must name a host that publishes keys, without credentials")
    return url


class TokenVerifier:
    """Verifies tokens of one issuer for one audience; keys and results are cached."""

    def __init__(
        self,
        url: str,
        *,
        issuer: str,
        audience: str,
        user_claim: str = "sub",
        project_claim: str = "",
        skew_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        try:
            import jwt
        except ImportError:
            raise MissingExtra("auth by JWT", "jwt") from None
        self._jwt = jwt
        self._url = url
        self._issuer, self._audience, self._skew_s = issuer, audience, skew_s
        self._user_claim, self._project_claim = user_claim, project_claim
        self._clock = clock
        self._cache: dict[bytes, tuple[Caller, float]] = {}
        self._keys: list[Mapping[str, Any]] = []
        self._fetched_at = self._tried_at = float("-inf")
        self._fetching = asyncio.Lock()
        self._client: httpx.AsyncClient | None = None

    async def verify(self, token: str) -> Caller:
        """Return the caller; Unauthenticated if the token is invalid, Unavailable if the keys cannot be fetched."""
        if len(token) > _MAX_TOKEN_CHARS:
            raise Unauthenticated(f"The token is longer than {_MAX_TOKEN_CHARS} characters")
        if not token.isascii():
            raise Unauthenticated("The token is not a JWT")
        digest = _digest(token)
        caller, until = self._cache.get(digest, (None, 0.0))
        if caller is not None and self._clock() < until:
            return caller
        # An expired token must not count as cached any more, and a new entry goes to the end.
        self._cache.pop(digest, None)
        claims = await self._decode(token)
        caller = self._to_caller(claims)
        # As an integer: a number of any size can be compared.
        left_s = min(int(claims["exp"]), time.time() + CACHE_S) + self._skew_s - time.time()
        if len(self._cache) >= MAX_CACHED:
            del self._cache[next(iter(self._cache))]
        self._cache[digest] = (caller, self._clock() + min(CACHE_S, left_s))
        return caller

    def is_cached(self, token: str) -> bool:
        return _digest(token) in self._cache

    def _to_caller(self, claims: Mapping[str, Any]) -> Caller:
        user = claims.get(self._user_claim)
        project = claims.get(self._project_claim) if self._project_claim else None
        if self._project_claim and not project:
            raise Unauthenticated(f"The token has no claim {self._project_claim}")
        try:
            scope = Scope(user, project or "")  # type: ignore[arg-type]
        except InvalidInput:
            raise Unauthenticated(f"The token's claim {self._user_claim} names no user") from None
        return Caller(kind="jwt", name="jwt", user=scope.user, project=scope.project or None)

    async def _decode(self, token: str) -> Mapping[str, Any]:
        jwt = self._jwt
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            raise Unauthenticated("The token is not a JWT") from None
        algorithm = header.get("alg")
        if algorithm not in ALGORITHMS:
            raise Unauthenticated(f"The token must be signed with one of {', '.join(ALGORITHMS)}")
        key = await self._get_key(header.get("kid"), algorithm)
        try:
            claims: Mapping[str, Any] = jwt.decode(
                token,
                jwt.PyJWK(dict(key), algorithm=algorithm),
                algorithms=[algorithm],
                options={"require": ["exp", "iss", "aud"], "enforce_minimum_key_length": True},
                issuer=self._issuer,
                audience=self._audience,
                leeway=self._skew_s,
            )
            _check_unique_names(token)
        except jwt.ExpiredSignatureError:
            raise Unauthenticated("The token has expired") from None
        except jwt.InvalidAudienceError:
            raise Unauthenticated("The token is for another audience") from None
        except jwt.InvalidIssuerError:
            raise Unauthenticated("The token is from another issuer") from None
        except (jwt.PyJWTError, ValueError, TypeError):
            raise Unauthenticated("The token is invalid") from None
        return claims

    async def _get_key(self, kid: object, algorithm: str) -> Mapping[str, Any]:
        moment = self._clock()
        if moment - self._fetched_at >= REFRESH_S:
            await self._refresh_keys(moment)
        key = self._match_key(kid, algorithm)
        if key is None and moment - self._tried_at >= RETRY_S:
            # The issuer may have new keys; many tokens with made-up keys must not cause many requests.
            await self._refresh_keys(moment)
            key = self._match_key(kid, algorithm)
        if key is None:
            raise Unauthenticated("The token is signed with a key that its issuer does not publish")
        return key

    def _match_key(self, kid: object, algorithm: str) -> Mapping[str, Any] | None:
        kind = _KEY_TYPES[algorithm[:2]]
        matching = [
            key
            for key in self._keys
            if key.get("kty") == kind
            and key.get("use", "sig") == "sig"
            and key.get("alg", algorithm) == algorithm
            and (kid is None or key.get("kid") == kid)
        ]
        # Without a key id there must be only one candidate.
        return matching[0] if len(matching) == 1 or (matching and kid is not None) else None

    async def _refresh_keys(self, moment: float) -> None:
        async with self._fetching:
            if self._clock() - self._tried_at < RETRY_S:
                # Another request has just tried.
                if self._keys:
                    return
                raise Unavailable(_KEYS_UNAVAILABLE)
            self._tried_at = self._clock()
            try:
                self._keys = await self._download_keys()
                self._fetched_at = self._clock()
            except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
                if not self._keys or self._clock() - self._fetched_at >= MAX_STALE_S:
                    raise Unavailable(f"{_KEYS_UNAVAILABLE}: {_describe_error(error)}") from None
                _log.warning("%s: %s", _KEYS_UNAVAILABLE, _describe_error(error))

    async def _download_keys(self) -> list[Mapping[str, Any]]:
        import httpx

        if self._client is None:
            # Uncompressed, so that a few bytes cannot expand to many.
            headers = {"Accept-Encoding": "identity"}
            self._client = httpx.AsyncClient(timeout=FETCH_S, follow_redirects=False, headers=headers)
        raw = bytearray()
        try:
            async with asyncio.timeout(FETCH_S), self._client.stream("GET", self._url) as response:
                if response.status_code != 200:
                    raise OSError(f"the server answered {response.status_code}")
                async for chunk in response.aiter_bytes():
                    raw += chunk
                    if len(raw) > _MAX_BYTES:
                        raise ValueError("the response is too long")
        except (httpx.HTTPError, TimeoutError) as error:
            raise OSError(type(error).__name__) from None
        keys = json.loads(raw)["keys"]
        usable = [key for key in keys if isinstance(key, Mapping) and _is_usable(key)]
        if not usable:
            raise ValueError("the response has no usable key")
        return usable

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


def _is_usable(key: Mapping[str, Any]) -> bool:
    """Return whether a published key verifies signatures; one with its private part does not, since anyone has it."""
    return key.get("kty") in _KEY_TYPES.values() and "d" not in key and "verify" in key.get("key_ops", ("verify",))


def _check_unique_names(token: str) -> None:
    """Raise ValueError if a name occurs twice in an object of a verified token: another reader may use the other."""

    def check(members: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(unique := dict(members)) < len(members):
            raise ValueError("a name occurs twice")
        return unique

    for part in token.split(".")[:2]:
        json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)), object_pairs_hook=check)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("latin-1", "replace")).digest()


def _describe_error(error: Exception) -> str:
    return str(error) if isinstance(error, OSError) else "the response is not a JSON Web Key Set"
