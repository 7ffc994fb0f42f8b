"""Agent: run the loop with tools and memory, and store the result in the background."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from types import NoneType
from typing import Any, Self

from recollect.agent.config import AgentConfig, load_agent_config
from recollect.agent.finish import BY, RecordedTurns, StartContext, finish_run, record_turns, start_run
from recollect.agent.loop import AgentPrompt, Loop
from recollect.agent.modes import Mode
from recollect.agent.tools.memory_tools import MEMORY_TOOLS, memory_tools
from recollect.agent.tools.tool import Tool, Toolbox
from recollect.agent.types import Answer, Event, EventKind, Step, parse_history
from recollect.agent.working_memory import UNBOUNDED, WorkingMemory
from recollect.client import AsyncMemory
from recollect.config.settings import Settings, load
from recollect.errors import InvalidInput, InvalidSettings, RecollectError
from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.arguments import parse_scope
from recollect.model.change import Author
from recollect.model.ids import new_id
from recollect.model.scope import Scope
from recollect.model.text import validate_text
from recollect.models.chat import ConversingChat
from recollect.service.service import Service
from recollect.service.tool_memory import ToolMemory
from recollect.wiring import open_chat


@frozen_dataclass
class _Task:
    question: str
    state: str
    group: tuple[str, ...]
    steps: tuple[Step, ...]
    by: str


_OVER_BUDGET = "I could not begin: the tokens of this day are used up."


class Agent:
    """A ReAct agent that calls tools until it has an answer; with memory it starts from memories, and learns.

    `model` is a name at the settings' `llm_url`, or a chat model object. Tools are `Tool`s or plain functions.
    Without memory, or with `enable_memory=False`, it is a plain ReAct agent and nothing is stored.
    """

    def __init__(
        self,
        memory: AsyncMemory | Service | None = None,
        model: str | ConversingChat | None = None,
        tools: Sequence[Tool | Callable[..., Any]] | Toolbox = (),
        *,
        config: AgentConfig | None = None,
        enable_memory: bool | None = None,
    ) -> None:
        if not isinstance(memory, (AsyncMemory, Service, NoneType)):
            raise InvalidInput(f"an agent takes an AsyncMemory, not a {type(memory).__name__}")
        self.memory = memory
        self._settings = memory.settings if isinstance(memory, AsyncMemory) else None
        self._model = model
        self._own_chat: ConversingChat | None = None
        self.toolbox = tools if isinstance(tools, Toolbox) else Toolbox.of(tools)
        self.config = config or (load_agent_config(self._settings) if self._settings else AgentConfig())
        self._enabled = memory is not None if enable_memory is None else enable_memory
        # Detected once: an endpoint that refuses tools always does.
        self._mode: Mode = "native" if self.config.tool_calls == "auto" else self.config.tool_calls
        self._finishing: dict[Scope, asyncio.Task[None]] = {}

    async def run(self, question: str, **more: Any) -> Answer:
        """Return the answer of a run; takes the same options as `stream`."""
        answer: Answer | None = None
        async with aclosing(self.stream(question, **more)) as events:
            async for event in events:
                answer = event.answer or answer
        assert answer is not None
        return answer

    async def stream(
        self,
        question: str,
        *,
        user_id: str = "",
        project_id: str | None = None,
        session_id: str | None = None,
        history: Sequence[Step | Mapping[str, Any]] = (),
        state: str = "",
        group: Sequence[str] = (),
        enable_memory: bool | None = None,
        by: str = BY,
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of a run as they happen: thoughts, actions, observations, and at last the answer.

        Closing the generator stops the run. `history` are earlier steps, `state` describes the state of the work,
        `group` names the groups of tools that may be used, and `by` is the author in the memory's history.
        """
        task = _Task(validate_text(question, name="question"), state, tuple(group), parse_history(history), by)
        if self._enabled if enable_memory is None else enable_memory:
            events = self._run_with_memory(task, parse_scope(user_id, project_id, session_id or new_id()))
        else:
            prompt = AgentPrompt(question=task.question, state=task.state, context=self.config.context)
            events = self._run_loop(prompt, self.toolbox.allowed(task.group), WorkingMemory(UNBOUNDED), task)
        async with aclosing(events):
            async for event in events:
                yield event

    async def _run_with_memory(self, task: _Task, scope: Scope) -> AsyncGenerator[Event, None]:
        service = await self._service()
        # The service stays in use for the whole run, even if it is replaced by one with another model.
        with service.use_count.track():
            await self._wait_for_previous_run(scope)
            if refusal := await self._refusal(service, scope):
                answer = Answer(text=_OVER_BUDGET, ended="tokens", conversation_id=scope.session, notes=(refusal,))
                yield Event(kind=EventKind.ANSWER, text=_OVER_BUDGET, answer=answer, failed=True)
                return
            memory = ToolMemory(
                service=service,
                scope=scope,
                by=Author(task.by),
                source=BY,
                min_score=self.config.min_score,
                time_words=self.config.time_words,
                withheld=self.config.withheld,
            )
            context = await start_run(memory, task.question, state=task.state, config=self.config)
            limits = self.config.memory_tools
            memory_toolset = memory_tools(memory, limits) if limits is not None else ()
            tools = self.toolbox.with_tools(memory_toolset).allowed(task.group)
            prompt = AgentPrompt(
                question=task.question,
                state=task.state,
                context=self.config.context,
                recalled=context.block,
                memory_tools=[name for name in tools if name in MEMORY_TOOLS],
            )
            working = WorkingMemory(self.config.working_memory, chat=await self._chat())
            async with aclosing(self._run_loop(prompt, tools, working, task)) as events:
                async for event in events:
                    done = event.answer is not None
                    yield await self._finish(service, scope, task, event, context) if done else event

    async def _run_loop(
        self, prompt: AgentPrompt, tools: Mapping[str, Tool], working: WorkingMemory, task: _Task
    ) -> AsyncGenerator[Event, None]:
        for step in task.steps:
            await working.add(step)
        loop = Loop(
            chat=await self._chat(),
            prompt=prompt,
            tools=tools,
            working=working,
            limits=self.config.limits,
            mode=self._mode,
            may_fall_back=self.config.tool_calls == "auto",
        )
        async with aclosing(loop.events()) as events:
            async for event in events:
                self._mode = loop.mode
                yield event

    async def settled(self) -> None:
        """Wait until the results of all runs are stored."""
        while self._finishing:
            await asyncio.gather(*self._finishing.values())

    async def close(self) -> None:
        """Wait until all results are stored, and close the model; the caller closes the memory."""
        await self.settled()
        own, self._own_chat = self._own_chat, None
        if own is not None:
            await own.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _finish(
        self, service: Service, scope: Scope, task: _Task, event: Event, context: StartContext
    ) -> Event:
        """Record the turns of an answer, and store the rest of the run in the background."""
        assert event.answer is not None
        answer = replace(
            event.answer,
            run_id=new_id(),
            conversation_id=scope.session,
            facts=context.facts,
            episodes=context.episodes,
            notes=context.notes,
        )
        recorded = await record_turns(service, scope, task.question, answer, config=self.config, by=task.by)
        self._finish_in_background(service, scope, task.question, answer, recorded)
        notes = (*answer.notes, recorded.note) if recorded.note else answer.notes
        return replace(event, kind=EventKind.ANSWER, answer=replace(answer, notes=notes))

    def _finish_in_background(
        self, service: Service, scope: Scope, question: str, answer: Answer, recorded: RecordedTurns
    ) -> None:
        previous = self._finishing.get(scope)

        async def work() -> None:
            try:
                with service.use_count.track():
                    if previous is not None:
                        await asyncio.wait([previous])
                    model = (await self._chat()).model
                    await finish_run(
                        service, scope, question, answer, recorded=recorded, config=self.config, model=model
                    )
            finally:
                if self._finishing.get(scope) is task:
                    del self._finishing[scope]

        task = self._finishing[scope] = asyncio.create_task(work())

    async def _wait_for_previous_run(self, scope: Scope) -> None:
        """Wait until the last run of this conversation is stored, since this one starts from it."""
        if (task := self._finishing.get(scope)) is not None:
            await asyncio.wait([task])

    async def _refusal(self, service: Service, scope: Scope) -> str:
        """Return why the user's LLM budget forbids a run; empty if it does not, or if memory is unavailable."""
        try:
            return await service.usage.refusal(scope.user)
        except RecollectError:
            return ""

    async def _service(self) -> Service:
        if self.memory is None:
            raise InvalidInput("this agent has no memory; pass one, or leave out enable_memory")
        if isinstance(self.memory, Service):
            return self.memory
        service = await self.memory.service()
        if self.memory.settings.worker:
            service.jobs.start()
        return service

    async def _chat(self) -> ConversingChat:
        """Return the model; open it on first use if only its name is set."""
        if isinstance(self._model, ConversingChat):
            return self._model
        if self._own_chat is None:
            settings = self._settings or load({}).settings
            self._own_chat = open_agent_chat(settings, self._model)
        return self._own_chat


def open_agent_chat(settings: Settings, model: str | None = None) -> ConversingChat:
    """Open the named model, or that of the settings; raise InvalidSettings if there is none."""
    named = model or settings.agent_llm or settings.llm
    chat = open_chat(settings.model_copy(update={"llm": named}))
    if not isinstance(chat, ConversingChat):
        raise InvalidSettings("an agent needs a model: set agent_llm or llm")
    return chat
