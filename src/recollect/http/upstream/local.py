"""Chats answered by a model on this machine, which is loaded by the first of them."""

from __future__ import annotations

from dataclasses import replace

from recollect.errors import ModelUnavailable, UpstreamUnavailable
from recollect.http.upstream.plain import PlainUpstream
from recollect.http.upstream.protocol import Ask, Reply
from recollect.models.local_chat import Endpoint, LocalChat

PREFIX = "local:"


class LocalUpstream:
    """A GGUF model run by llama.cpp beside us."""

    def __init__(self, name: str, *, context_tokens: int, connect_s: float, idle_s: float) -> None:
        self.name = name
        self._chat = LocalChat(name.removeprefix(PREFIX), context_tokens=context_tokens, timeout_s=idle_s)
        self._connect_s, self._idle_s = connect_s, idle_s
        self._at: tuple[Endpoint, PlainUpstream] | None = None

    async def send(self, ask: Ask) -> Reply:
        try:
            endpoint = await self._chat.endpoint()
        except ModelUnavailable as error:
            raise UpstreamUnavailable(str(error)) from error
        # A model that had to be started again answers elsewhere.
        if self._at is None or self._at[0] != endpoint:
            await self._leave()
            found = PlainUpstream(self.name, endpoint.base_url, connect_s=self._connect_s, idle_s=self._idle_s)
            self._at = endpoint, found
        headers = [each for each in ask.headers if each[0].lower() != b"authorization"]
        key = (b"authorization", f"Bearer {endpoint.api_key}".encode())
        return await self._at[1].send(replace(ask, headers=[*headers, key]))

    async def close(self) -> None:
        await self._leave()
        await self._chat.close()

    async def _leave(self) -> None:
        if self._at is not None:
            await self._at[1].close()
            self._at = None
