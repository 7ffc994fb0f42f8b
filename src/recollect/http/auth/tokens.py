"""Tokens that another server signed: who they speak for, by the keys which that server publishes.

Only asymmetric signatures count, and only keys from the address that the operator set: what a token itself says about
where its key is, is not looked at.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from recollect.errors import InvalidInput, InvalidSettings, MissingExtra, Unauthenticated, Unavailable
from recollect.http.auth.address import is_loopback
from recollect.http.auth.caller import Caller
from recollect.http.upstream.ssrf_guard import is_forbidden
from recollect.model.scope import Scope

if TYPE_CHECKING:
    import httpx


_log = logging.getLogger("recollect")
_KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_MAX_TOKEN_CHARS = 16_384
# A token that was good is not verified again for so long.
_CACHE_S = 5.0
_MAX_CACHED = 10_000
# Keys are fetched anew after so long; for an unknown one sooner, but never more often than this.
_REFRESH_S, _RETRY_S = 300.0, 10.0
# While they cannot be fetched, the old ones go on being good.
_MAX_STALE_S = 3600.0
_FETCH_S = 5.0
_MAX_BYTES = 1 << 20


def check_jwks_url(url: str) -> str:
    """The address itself, or an InvalidSettings: keys that come in the clear could be anybody's."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise InvalidSettings("jwt_jwks_url must start with https://; http:// is for this machine only")
    if not host or is_forbidden(host) or parts.username is not None:
        raise InvalidSettings("jwt_jwks_url must name the host that publishes the keys, and nothing secret")
    return url


class TokenVerifier:
    """Verifies tokens of one issuer for one audience."""

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
        self._checks = {"issuer": issuer, "audience": audience, "leeway": skew_s}
        self._user_claim, self._project_claim = user_claim, project_claim
        self._clock = clock
        self._cache: dict[bytes, tuple[Caller, float]] = {}
        self._keys: list[Mapping[str, Any]] = []
        self._fetched_at = self._tried_at = float("-inf")
        self._fetching = asyncio.Lock()
        self._client: httpx.AsyncClient | None = None

    async def verify(self, token: str) -> Caller:
        """Whom the token speaks for; Unauthenticated if it does not hold, Unavailable if there are no keys."""
        if len(token) > _MAX_TOKEN_CHARS:
            raise Unauthenticated("the token is too long")
        hash = hashlib.sha256(token.encode("latin-1", "replace")).digest()
        caller, until = self._cache.get(hash, (None, 0.0))
        if caller is not None and self._clock() < until:
            return caller
        try:
            claims = await self._decode(token)
            caller = self._to_caller(claims)
        except Unauthenticated:
            # One that has ended counts like any other that does not hold.
            self._cache.pop(hash, None)
            raise
        left_s = float(claims["exp"]) + self._checks["leeway"] - time.time()  # type: ignore[operator]
        self._cache.pop(hash, None)
        if len(self._cache) >= _MAX_CACHED:
            del self._cache[next(iter(self._cache))]
        self._cache[hash] = (caller, self._clock() + min(_CACHE_S, left_s))
        return caller

    def is_cached(self, token: str) -> bool:
        """Whether the token was good a moment ago, without asking anyone."""
        return hashlib.sha256(token.encode("latin-1", "replace")).digest() in self._cache

    def _to_caller(self, claims: Mapping[str, Any]) -> Caller:
        user = claims.get(self._user_claim)
        project = claims.get(self._project_claim) if self._project_claim else None
        if self._project_claim and not project:
            raise Unauthenticated(f"the token lacks the claim {self._project_claim}")
        try:
            scope = Scope(user, project or "")  # type: ignore[arg-type]
        except InvalidInput:
            raise Unauthenticated(f"the token's claim {self._user_claim} names no user") from None
        return Caller(kind="jwt", name="jwt", user=scope.user, project=scope.project or None)

    async def _decode(self, token: str) -> Mapping[str, Any]:
        jwt = self._jwt
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            raise Unauthenticated("the token is not a JWT") from None
        algorithm = header.get("alg")
        if algorithm not in ALGORITHMS:
            raise Unauthenticated("the token is not signed by a method that is accepted")
        key = await self._get_key(header.get("kid"), algorithm)
        try:
            claims: Mapping[str, Any] = jwt.decode(
                token,
                jwt.PyJWK(dict(key), algorithm=algorithm),
                algorithms=[algorithm],
                options={"require": ["exp", "iss", "aud"]},
                **self._checks,
            )
        except jwt.ExpiredSignatureError:
            raise Unauthenticated("the token has expired") from None
        except jwt.InvalidAudienceError:
            raise Unauthenticated("the token is for another audience") from None
        except jwt.InvalidIssuerError:
            raise Unauthenticated("the token is from another issuer") from None
        except (jwt.PyJWTError, ValueError, TypeError):
            raise Unauthenticated("the token does not hold") from None
        return claims

    async def _get_key(self, kid: object, algorithm: str) -> Mapping[str, Any]:
        moment = self._clock()
        if moment - self._fetched_at >= _REFRESH_S:
            await self._refresh_keys(moment)
        key = self._match_key(kid, algorithm)
        if key is None and moment - self._tried_at >= _RETRY_S:
            # They may have changed their keys; a flood of made-up ones must not become a flood to them.
            await self._refresh_keys(moment)
            key = self._match_key(kid, algorithm)
        if key is None:
            raise Unauthenticated("the token is signed with a key that its issuer does not publish")
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
        # Without a name it must be clear which is meant.
        return matching[0] if len(matching) == 1 or (matching and kid is not None) else None

    async def _refresh_keys(self, moment: float) -> None:
        async with self._fetching:
            if self._clock() - self._tried_at < _RETRY_S:
                # Somebody else has just asked.
                if self._keys:
                    return
                raise Unavailable("the keys that tokens are verified by cannot be had")
            self._tried_at = self._clock()
            try:
                self._keys = await self._download_keys()
                self._fetched_at = self._clock()
            except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
                if not self._keys or self._clock() - self._fetched_at >= _MAX_STALE_S:
                    raise Unavailable(
                        f"the keys that tokens are verified by cannot be had: {_describe_error(error)}"
                    ) from None
                _log.warning("the keys that tokens are verified by cannot be had anew: %s", _describe_error(error))

    async def _download_keys(self) -> list[Mapping[str, Any]]:
        import httpx

        if self._client is None:
            self._client = httpx.AsyncClient(timeout=_FETCH_S, follow_redirects=False)
        raw = bytearray()
        try:
            async with asyncio.timeout(_FETCH_S), self._client.stream("GET", self._url) as response:
                if response.status_code != 200:
                    raise OSError(f"it answered {response.status_code}")
                async for chunk in response.aiter_bytes():
                    raw += chunk
                    if len(raw) > _MAX_BYTES:
                        raise ValueError("it is far too long")
        except (httpx.HTTPError, TimeoutError) as error:
            raise OSError(type(error).__name__) from None
        keys = json.loads(raw)["keys"]
        usable = [key for key in keys if isinstance(key, Mapping) and key.get("kty") in _KEY_TYPES.values()]
        if not usable:
            raise ValueError("there is no key that can be used")
        return usable

    async def close(self) -> None:
        """Let go of the connection."""
        if self._client is not None:
            await self._client.aclose()


def _describe_error(error: Exception) -> str:
    return str(error) if isinstance(error, OSError) else "the answer is no set of keys"
