"""Chats answered by a model on this machine, which is loaded by the first of them."""

from __future__ import annotations

from dataclasses import replace

from recollect.errors import ModelUnavailable, UpstreamUnavailable
from recollect.http.upstream.plain import HttpUpstream
from recollect.http.upstream.protocol import UpstreamRequest, UpstreamResponse
from recollect.models.local_chat import LocalChat, LocalEndpoint

LOCAL_PREFIX = "local:"


class LocalUpstream:
    """A GGUF model run by llama.cpp beside us."""

    def __init__(self, name: str, *, context_tokens: int, connect_s: float, idle_s: float) -> None:
        self.name = name
        self._chat = LocalChat(name.removeprefix(LOCAL_PREFIX), context_tokens=context_tokens, timeout_s=idle_s)
        self._connect_s, self._idle_s = connect_s, idle_s
        self._current: tuple[LocalEndpoint, HttpUpstream] | None = None

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        try:
            endpoint = await self._chat.endpoint()
        except ModelUnavailable as error:
            raise UpstreamUnavailable(str(error)) from error
        # A model that had to be started again answers elsewhere.
        if self._current is None or self._current[0] != endpoint:
            await self._disconnect()
            upstream = HttpUpstream(self.name, endpoint.base_url, connect_s=self._connect_s, idle_s=self._idle_s)
            self._current = endpoint, upstream
        headers = [each for each in request.headers if each[0].lower() != b"authorization"]
        key = (b"authorization", f"Bearer {endpoint.api_key}".encode())
        return await self._current[1].send(replace(request, headers=[*headers, key]))

    async def close(self) -> None:
        await self._disconnect()
        await self._chat.close()

    async def _disconnect(self) -> None:
        if self._current is not None:
            await self._current[1].close()
            self._current = None
