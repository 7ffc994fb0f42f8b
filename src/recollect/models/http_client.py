"""The HTTP client of OpenAI-compatible servers: a POST with retries, deadline, breaker and translated errors."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping
from typing import Any

import httpx

from recollect.aio.breaker import Permit
from recollect.errors import BrokenAnswer, InvalidInput, InvalidSettings, ModelUnavailable
from recollect.frozen_dataclass import frozen_dataclass
from recollect.lazy_pattern import lazy_pattern
from recollect.models.llm_breaker import breaker_of
from recollect.models.server_errors import describe_refusal

TRIES = 3
FIRST_PAUSE_S = 0.25

# A server that asks for more patience than this is reported as unavailable: the caller knows better whether to wait.
MAX_PAUSE_S = 10.0

RETRYABLE_STATUSES = frozenset({408, 429, 500, 502, 503, 504, 529})

_SENDABLE_KEY = lazy_pattern("[!-~]*")


@frozen_dataclass
class _Response:
    status: int
    body: bytes
    retry_after_s: float


@frozen_dataclass
class _Call:
    sent: bytes
    deadline: float
    counts_timeout: bool


class ModelHttpClient:
    """Posts JSON to {base_url}{path} and returns the body of the first successful response.

    `timeout_s` is for all tries together. What is asked through here can be asked twice without harm, so a lost
    connection, a 429 and a 5xx are tried again a few times; anything else is raised at once. Redirects are not
    followed, so the key goes to the server of the settings and nowhere else. With `has_breaker`, a circuit breaker
    counts every try.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        path: str,
        model: str,
        timeout_s: float,
        max_answer_bytes: int,
        transport: httpx.AsyncBaseTransport | None = None,
        has_breaker: bool = False,
    ) -> None:
        if timeout_s <= 0:
            raise InvalidSettings("the timeout of a model must be positive")
        api_key = api_key.strip()
        # The HTTP library would name the whole key in its complaint.
        if not _SENDABLE_KEY.fullmatch(api_key):
            raise InvalidSettings("the API key holds characters that no key has; was something else pasted?")
        self.timeout_s = timeout_s
        self._model = model
        self._api_key = api_key
        self._max_answer_bytes = max_answer_bytes
        url = _endpoint(base_url, path)
        # A URL may carry a password, and the HTTP library logs whole URLs.
        login = (url.username, url.password) if url.userinfo else None
        self._url = url.copy_with(userinfo=b"")
        self.display_url = str(self._url.copy_with(query=None))
        self.breaker = breaker_of(model, self.display_url, api_key) if has_breaker else None
        headers = {"Content-Type": "application/json"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        # No timeout of httpx: it counts each read anew, and a server that trickles would never be late.
        self._client = httpx.AsyncClient(
            headers=headers,
            auth=login,
            timeout=None,  # noqa: S113 - each request has one
            follow_redirects=False,
            transport=transport,
        )

    async def post(self, body: Mapping[str, Any], *, timeout_s: float | None = None) -> bytes:
        """Return the body of the first successful response, or raise the error of the last one."""
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        # Lone surrogates cannot be sent.
        sent = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        deadline = asyncio.get_running_loop().time() + limit_s
        # A caller with little time says nothing about the model.
        call = _Call(sent, deadline, counts_timeout=limit_s >= self.timeout_s)
        try:
            answer = await self._post(call)
        except TimeoutError as error:
            raise ModelUnavailable(f"{self.display_url} did not answer in {limit_s:g} s") from error
        if not 200 <= answer.status < 300:
            raise self._refusal(answer, body)
        return answer.body

    async def close(self) -> None:
        await self._client.aclose()

    async def _post(self, call: _Call) -> _Response:
        """Return the first successful response, or the last one."""
        clock = asyncio.get_running_loop().time
        for tries_left in range(TRIES - 1, -1, -1):
            jitter = random.uniform(0.5, 1.0)  # noqa: S311 - no secret
            pause_s = jitter * FIRST_PAUSE_S * 2 ** (TRIES - 1 - tries_left)
            try:
                answer = await self._try(call)
            except httpx.RequestError as error:
                if not tries_left or self._is_paused or clock() + pause_s >= call.deadline:
                    raise ModelUnavailable(f"{self.display_url} cannot be reached: {error}") from error
            else:
                if 200 <= answer.status < 300:
                    return answer
                pause_s = max(pause_s, answer.retry_after_s)
                may_help = answer.status in RETRYABLE_STATUSES and pause_s <= MAX_PAUSE_S and not self._is_paused
                if not may_help or not tries_left or clock() + pause_s >= call.deadline:
                    return answer
            await asyncio.sleep(pause_s)
        raise AssertionError("the last try returns or raises")

    async def _try(self, call: _Call) -> _Response:
        """Send one request, and report its outcome to the circuit breaker."""
        # A probe that is given up early tells nothing, and would keep a caller with time waiting.
        permit = self.breaker.admit(yields=not call.counts_timeout) if self.breaker else Permit.CALL
        failed: bool | None = None
        try:
            async with asyncio.timeout_at(call.deadline):
                answer = await self._post_once(call.sent)
            # A refused key says nothing about the model: others may have a key of their own.
            failed = answer.status in RETRYABLE_STATUSES
            return answer
        except TimeoutError:
            failed = True if call.counts_timeout else None
            raise
        except httpx.RequestError:
            failed = True
            raise
        except BrokenAnswer:
            failed = False
            raise
        finally:
            if self.breaker and failed is not None:
                self.breaker.record(permit, failed=failed)

    @property
    def _is_paused(self) -> bool:
        return self.breaker is not None and self.breaker.is_open

    async def _post_once(self, sent: bytes) -> _Response:
        async with self._client.stream("POST", self._url, content=sent) as response:
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > self._max_answer_bytes:
                    raise BrokenAnswer(f"{self.display_url} answered more than {self._max_answer_bytes:,} bytes")
            return _Response(response.status_code, bytes(body), _retry_after_s(response))

    def _refusal(self, answer: _Response, sent: Mapping[str, Any]) -> InvalidInput | ModelUnavailable:
        """Return the error for a failed response, without the key and the request."""
        status = answer.status
        summary = f"{self.display_url} answered {status}"
        if status in (401, 403):
            # Without the server's words: they tend to repeat a part of the key.
            return InvalidSettings(f"{summary}: the API key was refused")
        if 300 <= status < 400:
            return ModelUnavailable(f"{summary}: redirects are not followed; set the base URL to where it leads")
        detail = describe_refusal(answer.body, sent, secret=self._api_key)
        ending = f": {detail}" if detail else ""
        if status == 404:
            model = f" and the model {self._model}" if self._model else ""
            return InvalidSettings(f"{summary}: check the base URL{model}{ending}")
        if 400 <= status < 500 and status not in RETRYABLE_STATUSES:
            return InvalidInput(f"{summary}{ending}")
        return ModelUnavailable(f"{summary}{ending}")


def _endpoint(base_url: str, path: str) -> httpx.URL:
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL as error:
        raise InvalidSettings(f"the base URL of a model cannot be read: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise InvalidSettings("the base URL of a model must start with http:// or https:// and name a host")
    return url.copy_with(path=url.path.rstrip("/") + path)


def _retry_after_s(answer: httpx.Response) -> float:
    """Return the delay of the Retry-After header; 0 if there is none, or a date."""
    try:
        return max(0.0, float(answer.headers.get("Retry-After", "")))
    except ValueError:
        return 0.0
