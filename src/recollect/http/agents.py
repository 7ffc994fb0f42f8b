"""The agent of a server: its model, its tools, and one agent over the service, opened by the first who asks."""

from __future__ import annotations

import asyncio

from fastapi import Request

from recollect.agent.agent import Agent, open_agent_chat
from recollect.agent.habits import load_agent_config
from recollect.agent.tools.sources import ToolSources
from recollect.errors import InvalidSettings, ModelUnavailable
from recollect.models.chat import ConversingChat
from recollect.service import Service
from recollect.settings import Settings


class AgentProvider:
    """Gives the agent; the tools of a server that was away are there once it is back."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._chat: ConversingChat | None = None
        self._sources: ToolSources | None = None
        self._agent: Agent | None = None
        self._lock = asyncio.Lock()

    async def get(self, service: Service) -> Agent:
        """The agent over a service; a ModelUnavailable where none is set: who asks has done nothing wrong."""
        async with self._lock:
            if self._chat is None or self._sources is None:
                try:
                    self._chat = open_agent_chat(self._settings)
                except InvalidSettings as error:
                    raise ModelUnavailable(str(error)) from error
                self._sources = ToolSources(self._settings)
            toolbox = await self._sources.toolbox()
            if self._agent is None:
                self._agent = Agent(service, self._chat, toolbox, config=load_agent_config(self._settings))
            self._agent.toolbox = toolbox
            # Another embedding model comes with another service.
            self._agent.memory = service
            return self._agent

    async def close(self) -> None:
        """Wait until what runs came to is kept, then let go of everything."""
        if self._agent is not None:
            await self._agent.close()
        if self._sources is not None:
            await self._sources.close()
        if self._chat is not None:
            await self._chat.close()


async def get_agent_provider(request: Request) -> AgentProvider:
    """The agents of the application that is asked."""
    provider: AgentProvider = request.app.state.agents
    return provider
