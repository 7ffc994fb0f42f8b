"""The HTTP client of OpenAI-compatible servers: one POST with retries, deadline and translated errors."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from recollect.errors import BrokenAnswer, InvalidInput, InvalidSettings, ModelUnavailable
from recollect.models.server_errors import describe_refusal

TRIES = 3
FIRST_PAUSE_S = 0.25

# A server that asks for more patience than this is reported as unavailable: the caller knows better whether to wait.
MAX_PAUSE_S = 10.0

RETRYABLE_STATUSES = frozenset({408, 429, 500, 502, 503, 504, 529})

_SENDABLE_KEY = re.compile("[!-~]*")


@dataclass(frozen=True, slots=True)
class _Response:
    status: int
    body: bytes
    retry_after_s: float


class ModelHttpClient:
    """Posts JSON to {base_url}{path} and returns the body of the first successful response.

    `timeout_s` is for all tries together. What is asked through here can be asked twice without harm, so a lost
    connection, a 429 and a 5xx are tried again a few times; anything else is raised at once. Redirects are not
    followed, so the key goes to the server of the settings and nowhere else.
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
        headers = {"Content-Type": "application/json"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        # No timeout of its own: httpx counts each read anew, and a server that trickles would never be late.
        self._client = httpx.AsyncClient(
            headers=headers,
            auth=login,
            timeout=None,  # noqa: S113
            follow_redirects=False,
            transport=transport,
        )

    async def post(self, body: Mapping[str, Any], *, timeout_s: float | None = None) -> bytes:
        """Return the body of the first successful response, or raise the error of the last one."""
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        # Lone surrogates cannot be sent.
        sent = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        deadline = asyncio.get_running_loop().time() + limit_s
        try:
            async with asyncio.timeout_at(deadline):
                answer = await self._post(sent, deadline)
        except TimeoutError as error:
            raise ModelUnavailable(f"{self.display_url} did not answer in {limit_s:g} s") from error
        if not 200 <= answer.status < 300:
            raise self._refusal(answer, body)
        return answer.body

    async def close(self) -> None:
        await self._client.aclose()

    async def _post(self, sent: bytes, deadline: float) -> _Response:
        """Return the first successful response, or the last one."""
        clock = asyncio.get_running_loop().time
        for tries_left in range(TRIES - 1, -1, -1):
            pause_s = random.uniform(0.5, 1.0) * FIRST_PAUSE_S * 2 ** (TRIES - 1 - tries_left)
            try:
                answer = await self._post_once(sent)
            except httpx.RequestError as error:
                if not tries_left:
                    raise ModelUnavailable(f"{self.display_url} cannot be reached: {error}") from error
            else:
                if 200 <= answer.status < 300:
                    return answer
                pause_s = max(pause_s, answer.retry_after_s)
                may_help = answer.status in RETRYABLE_STATUSES and pause_s <= MAX_PAUSE_S
                if not may_help or not tries_left or clock() + pause_s >= deadline:
                    return answer
            await asyncio.sleep(pause_s)
        raise AssertionError("the last try returns or raises")

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
