"""JSON Web Tokens: signature, issuer, audience, expiry, and the keys of the issuer."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from jwt.algorithms import get_default_algorithms

from recollect.errors import Unauthenticated, Unavailable
from recollect.http.auth import tokens as tokens_module
from recollect.http.auth.tokens import TokenVerifier
from tests.support.auth_samples import OUTSIDE, bearer, make_key, serving

ISSUER, AUDIENCE = "https://id.example.org/", "recollect"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
KEYS: dict[str, Any] = {
    "RS256": RSA,
    "PS256": RSA,
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}
STRANGER = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def published(algorithm: str, kid: str, private: Any = None, **more: Any) -> dict[str, Any]:
    """Return a public key as an issuer publishes it."""
    public = (private or KEYS[algorithm]).public_key()
    made: dict[str, Any] = get_default_algorithms()[algorithm].to_jwk(public, as_dict=True)  # type: ignore[call-arg]
    return {**made, "kid": kid, "use": "sig", **more}


def token(algorithm: str = "RS256", key: Any = None, kid: str | None = "one", **claims: Any) -> str:
    usual = {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 600, "iat": time.time()}
    options = {name: value for name, value in {**usual, **claims}.items() if value is not None}
    headers = {"kid": kid} if kid else {}
    return jwt.encode(options, key or KEYS[algorithm], algorithm=algorithm, headers=headers)


class Issuer:
    """A server that publishes keys and counts requests."""

    def __init__(self) -> None:
        self.keys: Any = [published("RS256", "one")]
        self.status = 200
        self.raw: bytes | None = None
        self.request_count = 0
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.request_count += 1
                body = issuer.raw if issuer.raw is not None else json.dumps({"keys": issuer.keys}).encode()
                self.send_response(issuer.status)
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/keys"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Clock:
    at = 1000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    issuer = Issuer()
    yield issuer
    issuer.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def tokens(issuer: Issuer, clock: Clock) -> AsyncIterator[TokenVerifier]:
    tokens = TokenVerifier(issuer.url, issuer=ISSUER, audience=AUDIENCE, clock=clock)
    yield tokens
    await tokens.close()


async def test_a_token_of_the_issuer_names_the_user(issuer: Issuer, tokens: TokenVerifier) -> None:
    issuer.keys = [published(name, name) for name in KEYS]
    for algorithm in KEYS:
        caller = await tokens.verify(token(algorithm, kid=algorithm))
        assert (caller.kind, caller.user, caller.project, caller.admin) == ("jwt", "ann", None, False)
        assert (caller.reads, caller.writes) == (True, True)


async def test_a_token_with_invalid_claims_is_rejected(tokens: TokenVerifier) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"exp": time.time() - 3600}, "expired"),
        ({"exp": None}, "is invalid"),
        ({"nbf": time.time() + 3600}, "is invalid"),
        ({"iat": time.time() + 3600}, "is invalid"),
        ({"aud": "someone-else"}, "audience"),
        ({"aud": None}, "is invalid"),
        ({"aud": ["x", "y"]}, "audience"),
        ({"iss": "https://evil.example.org/"}, "issuer"),
        ({"iss": None}, "is invalid"),
        ({"sub": None}, "names no user"),
        ({"sub": ""}, "names no user"),
        ({"sub": "a\r\nb"}, "names no user"),
        ({"sub": "x" * 301}, "names no user"),
    ]
    for claims, problem in cases:
        with pytest.raises(Unauthenticated, match=problem):
            await tokens.verify(token(**claims))


def encoded(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def unsigned(header: dict[str, Any], sign: Any = None) -> str:
    claims = {"sub": "bob", "iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 600}
    text = f"{encoded(header)}.{encoded(claims)}"
    return f"{text}.{encoded(sign(text.encode())) if sign else ''}"


PEM = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


async def test_a_forged_token_is_rejected(issuer: Issuer, tokens: TokenVerifier) -> None:
    shared = {"kty": "oct", "kid": "shared", "k": encoded(b"secret"), "alg": "HS256"}
    issuer.keys = [published("RS256", "one"), shared]
    for forged in (
        unsigned({"alg": "none", "kid": "one"}),
        unsigned({"alg": "None", "kid": "one"}),
        unsigned({"alg": "RS256", "kid": "one"}),
        # The public key used as a shared secret.
        unsigned({"alg": "HS256", "kid": "one"}, lambda text: hmac.digest(PEM, text, hashlib.sha256)),
        unsigned({"alg": "HS256", "kid": "shared"}, lambda text: hmac.digest(b"secret", text, hashlib.sha256)),
        token(key=STRANGER),
        token(key=STRANGER, kid=None),
        token("ES256", kid="one"),
        token(kid="other"),
        token().rpartition(".")[0] + ".",
        token()[:-6] + "AAAAAA",
        "ey.ey.ey",
        "not a token",
        "",
        ".",
        "x" * 20_000,
    ):
        with pytest.raises(Unauthenticated):
            await tokens.verify(forged)
        assert not tokens.is_cached(forged)


def signed(header: dict[str, Any] | bytes, claims: dict[str, Any] | bytes = b"") -> str:
    """Return a token that the issuer signed, whatever it contains."""
    usual = {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 600}
    header = {"alg": "RS256", "kid": "one", **header} if isinstance(header, dict) else header
    text = f"{encoded(header)}.{encoded({**usual, **claims} if isinstance(claims, dict) else claims or usual)}"
    return f"{text}.{encoded(RSA.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


ODD_TOKENS = {
    "an unknown critical header": lambda: signed({"crit": ["https://x.example/new"], "https://x.example/new": 1}),
    "an unencoded payload": lambda: signed({"crit": ["b64"], "b64": False}),
    "two users": lambda: signed({}, json.dumps(CLAIMS).replace('"sub"', '"sub": "bob", "sub"').encode()),
    "two audiences": lambda: signed({}, json.dumps(CLAIMS).replace('"aud"', '"aud": "other", "aud"').encode()),
    "two algorithms": lambda: signed(b'{"alg": "none", "alg": "RS256", "kid": "one"}'),
    "a key id that is a path": lambda: signed({"kid": "../../keys/one"}),
    "a key id with quotes": lambda: signed({"kid": "one' OR '1'='1"}),
    "a key id that is no text": lambda: signed({"kid": ["one"]}),
    "a long key id": lambda: signed({"kid": "x" * 9_000}),
    "a list of algorithms": lambda: signed({"alg": ["RS256"]}),
    "a deep header": lambda: signed(b'{"alg": "RS256", "kid": "one", "x": ' + b"[" * 5_000 + b"]" * 5_000 + b"}"),
    "deep claims": lambda: signed({}, b'{"x": ' + b"[" * 5_500 + b"]" * 5_500 + b"}"),
    "claims that are no object": lambda: signed({}, b"[7]"),
    "claims that are no text": lambda: signed({}, b"\xff\xfe"),
    "no number as expiry": lambda: signed({}, json.dumps(CLAIMS).replace("9999999999", "NaN").encode()),
    "an infinite expiry": lambda: signed({}, json.dumps(CLAIMS).replace("9999999999", "Infinity").encode()),
    "a user that is no text": lambda: signed({}, {"sub": {"id": "ann"}}),
    "half a character as user": lambda: signed({}, {"sub": "\ud800"}),
    "issuers in a list": lambda: signed({}, {"iss": [ISSUER]}),
    "audiences in an object": lambda: signed({}, {"aud": {AUDIENCE: 1}}),
    "a character of two halves": lambda: "\ud800.\ud800.\ud800",
    "letters that are not ASCII": lambda: "\u00e9.\u00e9.\u00e9",
    "four parts": lambda: f"{token()}.e30",
    "an encrypted token": lambda: ".".join(["e30"] * 5),
}
CLAIMS = {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "exp": 9999999999}


@pytest.mark.parametrize("make", ODD_TOKENS.values(), ids=ODD_TOKENS)
async def test_an_odd_token_is_rejected_even_if_the_issuer_signed_it(
    tokens: TokenVerifier, make: Callable[[], str]
) -> None:
    with pytest.raises(Unauthenticated):
        await tokens.verify(make())


async def test_a_token_that_never_expires_is_cached_for_a_moment_only(tokens: TokenVerifier, clock: Clock) -> None:
    eternal = signed({}, json.dumps(CLAIMS).replace("9999999999", "1" + "0" * 400).encode())
    assert (await tokens.verify(eternal)).user == "ann"
    clock.at += 3600
    assert (await tokens.verify(eternal)).user == "ann"


async def test_unsafe_keys_of_the_issuer_are_not_used(issuer: Issuer, tokens: TokenVerifier, clock: Clock) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
        by_weak = token(key=weak)
    whole = get_default_algorithms()["RS256"].to_jwk(RSA, as_dict=True)  # type: ignore[call-arg]
    for key, signed_token in (
        (published("RS256", "one", weak), by_weak),
        ({**whole, "kid": "one"}, token()),
        (published("RS256", "one", key_ops=["encrypt"]), token()),
        (published("RS256", "one", use="enc"), token()),
        ({"kty": "RSA", "kid": "one", "n": 7, "e": "AQAB"}, token()),
        ({"kty": "RSA", "kid": "one", "n": "_" * 200_000, "e": "AQAB"}, token()),
    ):
        issuer.keys = [key]
        clock.at += tokens_module.REFRESH_S
        with pytest.raises((Unauthenticated, Unavailable)):
            await tokens.verify(signed_token)


async def test_an_issuer_that_sends_its_keys_slowly_is_given_up(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens_module, "FETCH_S", 0.2)
    is_closed = asyncio.Event()

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        with suppress(OSError):
            while not writer.is_closing():
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.02)
        writer.transport.abort()
        is_closed.set()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    tokens = TokenVerifier(
        f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", issuer=ISSUER, audience=AUDIENCE, clock=clock
    )
    with pytest.raises(Unavailable, match="TimeoutError"):
        await tokens.verify(token())
    await tokens.close()
    await is_closed.wait()
    server.close()
    await server.wait_closed()


async def test_urls_of_keys_in_a_token_are_ignored(issuer: Issuer, tokens: TokenVerifier) -> None:
    evil = Issuer()
    try:
        evil.keys = [published("RS256", "one", STRANGER)]
        headers = {"kid": "one", "jku": evil.url, "x5u": evil.url, "jwk": evil.keys[0]}
        claims = {"sub": "bob", "iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 600}
        with pytest.raises(Unauthenticated):
            await tokens.verify(jwt.encode(claims, STRANGER, algorithm="RS256", headers=headers))
        assert not evil.request_count
    finally:
        evil.close()


async def test_a_small_clock_skew_is_tolerated(tokens: TokenVerifier) -> None:
    assert (await tokens.verify(token(exp=time.time() - 10))).user == "ann"
    assert (await tokens.verify(token(nbf=time.time() + 10))).user == "ann"
    with pytest.raises(Unauthenticated):
        await tokens.verify(token(exp=time.time() - 40))


async def test_keys_are_fetched_once_until_the_issuer_changes_them(
    issuer: Issuer, tokens: TokenVerifier, clock: Clock
) -> None:
    for number in range(5):
        await tokens.verify(token(jti=str(number)))
    assert issuer.request_count == 1
    issuer.keys = [published("RS256", "two", STRANGER)]
    clock.at += tokens_module.RETRY_S
    assert (await tokens.verify(token(key=STRANGER, kid="two"))).user == "ann"
    assert issuer.request_count == 2
    # The old key is not published any more.
    with pytest.raises(Unauthenticated):
        await tokens.verify(token(jti="after"))


async def test_unknown_key_ids_cause_few_requests_to_the_issuer(issuer: Issuer, tokens: TokenVerifier) -> None:
    for number in range(50):
        with pytest.raises(Unauthenticated):
            await tokens.verify(token(key=STRANGER, kid=f"made-up-{number}"))
    assert issuer.request_count == 1


async def test_old_keys_are_used_while_the_issuer_is_unavailable(
    issuer: Issuer, tokens: TokenVerifier, clock: Clock
) -> None:
    await tokens.verify(token())
    issuer.status = 503
    clock.at += tokens_module.REFRESH_S
    assert (await tokens.verify(token(jti="later"))).user == "ann"
    clock.at += tokens_module.MAX_STALE_S
    with pytest.raises(Unavailable):
        await tokens.verify(token(jti="much later"))


async def test_without_keys_tokens_cannot_be_verified(issuer: Issuer, tokens: TokenVerifier, clock: Clock) -> None:
    wrong_bodies = (b"nonsense", b"{}", b"[]", b'{"keys": 7}', b'{"keys": [7]}', b" " * (2 << 20))
    for status, raw in [(500, b""), (302, b""), (404, b"{}"), *((200, each) for each in wrong_bodies)]:
        issuer.status, issuer.raw = status, raw
        clock.at += tokens_module.RETRY_S
        with pytest.raises(Unavailable):
            await tokens.verify(token())
    assert issuer.request_count == 9


async def test_a_verified_token_is_cached_until_it_expires(
    tokens: TokenVerifier, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified: list[str] = []
    decode = jwt.decode

    def count_and_decode(text: str, *args: Any, **kwargs: Any) -> Any:
        verified.append(text)
        return decode(text, *args, **kwargs)

    monkeypatch.setattr(jwt, "decode", count_and_decode)
    good = token()
    for _ in range(20):
        await tokens.verify(good)
    assert len(verified) == 1
    clock.at += tokens_module.CACHE_S
    await tokens.verify(good)
    assert len(verified) == 2
    # The skew that is tolerated is 30 s, so that this one ends in at most 3 s, before the cache would.
    short = token(exp=time.time() - 27)
    await tokens.verify(short)
    clock.at += 3.5
    await tokens.verify(good)
    assert len(verified) == 3
    with suppress(Unauthenticated):
        await tokens.verify(short)
    assert len(verified) == 4


async def test_the_cache_of_tokens_is_bounded(tokens: TokenVerifier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "MAX_CACHED", 5)
    made = [token(jti=str(number)) for number in range(12)]
    for each in made:
        await tokens.verify(each)
    assert [tokens.is_cached(each) for each in made] == [False] * 7 + [True] * 5


def test_the_server_accepts_tokens_and_keys(tmp_path: Path, issuer: Issuer) -> None:
    rules = {"jwt_jwks_url": issuer.url, "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
    with serving(tmp_path, peer=OUTSIDE, auth="jwt, keys", jwt_user_claim="email", **rules) as client:
        answer = client.get("/whoami", headers=bearer(token(email="ann@example.org"))).json()
        assert answer["scope"]["user"] == "ann@example.org"
        named = client.get("/whoami", headers=bearer(token(email="ann")), params={"user_id": "bob"})
        assert named.status_code == 403
        assert client.get("/whoami", headers=bearer(token())).status_code == 401
        assert client.get("/whoami", headers=bearer(make_key(client, user="cleo"))).json()["user"] == "cleo"
        assert client.get("/whoami").status_code == 401


def test_tokens_name_a_project_and_wrong_ones_lock_out_an_address(tmp_path: Path, issuer: Issuer) -> None:
    rules = {"jwt_jwks_url": issuer.url, "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_project_claim": "org"}
    with serving(tmp_path, peer=OUTSIDE, **rules) as client:
        good = bearer(token(org="p"))
        assert client.get("/whoami", headers=good).json()["scope"]["project"] == "p"
        wrong = [token(), token(org=["p"]), *(token(org="p", aud=f"x{n}") for n in range(10))]
        forged = [client.get("/whoami", headers=bearer(each)).status_code for each in wrong]
        assert forged == [401] * 10 + [429] * 2
        assert client.get("/whoami", headers=good).status_code == 200
