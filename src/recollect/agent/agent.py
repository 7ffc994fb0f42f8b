"""Agent: a thin conductor. Begin with what memory has, reason and act, tell, end behind the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from types import NoneType, TracebackType
from typing import Any, Self

from recollect.agent.config import AgentConfig, load_agent_config
from recollect.agent.finish import BY, RecordedTurns, finish_run, record_turns
from recollect.agent.loop import Loop
from recollect.agent.prompt import AgentPrompt, Mode
from recollect.agent.start import StartContext, start_run
from recollect.agent.tools.memory_tools import MEMORY_TOOLS, memory_tools
from recollect.agent.tools.tool import Tool, Toolbox
from recollect.agent.types import Answer, Event, EventKind, Step, parse_history
from recollect.agent.working_memory import UNBOUNDED, WorkingMemory
from recollect.client import AsyncMemory
from recollect.config.settings import Settings, load
from recollect.errors import InvalidInput, InvalidSettings, RecollectError
from recollect.model.arguments import parse_scope
from recollect.model.ids import new_id
from recollect.model.scope import Scope
from recollect.model.text import validate_text
from recollect.models.chat import ConversingChat
from recollect.service.service import Service
from recollect.wiring import open_chat


@dataclass(frozen=True, slots=True)
class _Task:
    question: str
    state: str
    group: tuple[str, ...]
    steps: tuple[Step, ...]
    by: str


_OVER_BUDGET = "I could not begin: the tokens of this day are used up."


class Agent:
    """Reasons and acts with tools until it has an answer; with memory it begins with what it knows, and learns.

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
        # Found out once: what an endpoint refuses it goes on refusing.
        self._mode: Mode = "native" if self.config.tool_calls == "auto" else self.config.tool_calls
        self._finishing: dict[Scope, asyncio.Task[None]] = {}

    async def run(self, question: str, **more: Any) -> Answer:
        """The answer, and how it came about; takes what `stream` takes."""
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
        """What happens, as it happens: thoughts, actions, observations, and at last the answer.

        Who stops listening stops the run. `history` are steps that were taken before, `state` says where the work
        stands, `group` which tools may be used, `by` who history says it was that had something kept.
        """
        task = _Task(validate_text(question, name="question"), state, tuple(group), parse_history(history), by)
        enabled = self._enabled if enable_memory is None else enable_memory
        events = self._run_without_memory(task)
        if enabled:
            events = self._run_with_memory(task, parse_scope(user_id, project_id, session_id or new_id()))
        async with aclosing(events):
            async for event in events:
                yield event

    async def _run_without_memory(self, task: _Task) -> AsyncGenerator[Event, None]:
        """A run without memory."""
        prompt = AgentPrompt(question=task.question, state=task.state, context=self.config.context)
        loop = await self._make_loop(prompt, self.toolbox.allowed(task.group), WorkingMemory(UNBOUNDED), task)
        async with aclosing(self._events(loop)) as events:
            async for event in events:
                yield event

    async def _run_with_memory(self, task: _Task, scope: Scope) -> AsyncGenerator[Event, None]:
        """A run that begins with what memory has, and leaves there what it came to."""
        service = await self._service()
        # However long it takes: another model may take the place of the service's meanwhile.
        with service.use_count.track():
            async with aclosing(self._run(service, task, scope)) as events:
                async for event in events:
                    yield event

    async def _run(self, service: Service, task: _Task, scope: Scope) -> AsyncGenerator[Event, None]:
        await self._wait_for_previous_run(scope)
        if refusal := await self._refusal(service, scope):
            answer = Answer(text=_OVER_BUDGET, ended="tokens", conversation_id=scope.session, notes=(refusal,))
            yield Event(kind=EventKind.ANSWER, text=_OVER_BUDGET, answer=answer, failed=True)
            return
        context = await start_run(service, scope, task.question, state=task.state, config=self.config)
        tools = self.toolbox.with_tools(self._memory_tools(service, scope, task.by)).allowed(task.group)
        prompt = AgentPrompt(
            question=task.question,
            state=task.state,
            context=self.config.context,
            recalled=context.block,
            memory_tools=[name for name in tools if name in MEMORY_TOOLS],
        )
        working = WorkingMemory(self.config.working_memory, chat=await self._chat())
        loop = await self._make_loop(prompt, tools, working, task)
        async with aclosing(self._events(loop)) as events:
            async for event in events:
                done = event.answer is not None
                yield await self._finish(service, scope, task, event, context) if done else event

    async def settled(self) -> None:
        """Wait until what runs came to is kept."""
        while self._finishing:
            await asyncio.gather(*self._finishing.values())

    async def close(self) -> None:
        """Wait for what is being kept, and let go of the model; the memory stays its owner's."""
        await self.settled()
        own, self._own_chat = self._own_chat, None
        if own is not None:
            await own.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _make_loop(
        self, prompt: AgentPrompt, tools: Mapping[str, Tool], working: WorkingMemory, task: _Task
    ) -> Loop:
        for step in task.steps:
            await working.add(step)
        return Loop(
            chat=await self._chat(),
            prompt=prompt,
            tools=tools,
            working=working,
            limits=self.config.limits,
            mode=self._mode,
            may_fall_back=self.config.tool_calls == "auto",
        )

    async def _events(self, loop: Loop) -> AsyncGenerator[Event, None]:
        async with aclosing(loop.events()) as events:
            async for event in events:
                self._mode = loop.mode
                yield event

    async def _finish(
        self, service: Service, scope: Scope, task: _Task, event: Event, context: StartContext
    ) -> Event:
        """The answer with what memory has to do with it; what was said is in the log, the rest is done behind."""
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
        """Wait until what the last run of this conversation came to is kept: this one begins with it."""
        if (task := self._finishing.get(scope)) is not None:
            await asyncio.wait([task])

    async def _refusal(self, service: Service, scope: Scope) -> str:
        """Why the model may not be asked for this user any more today; a memory that is away says nothing."""
        try:
            return await service.usage.refusal(scope.user)
        except RecollectError:
            return ""

    def _memory_tools(self, service: Service, scope: Scope, by: str) -> tuple[Tool, ...]:
        limits = self.config.memory_tools
        if limits is None:
            return ()
        return memory_tools(service, scope, by=by, limits=limits, withheld=self.config.withheld)

    async def _service(self) -> Service:
        if self.memory is None:
            raise InvalidInput("this agent has no memory; give it one, or leave enable_memory out")
        if isinstance(self.memory, Service):
            return self.memory
        service = await self.memory.service()
        if self.memory.settings.worker:
            service.jobs.start()
        return service

    async def _chat(self) -> ConversingChat:
        """The model; one that is only named is opened on first use."""
        if isinstance(self._model, ConversingChat):
            return self._model
        if self._own_chat is None:
            settings = self._settings or load({}).settings
            self._own_chat = open_agent_chat(settings, self._model)
        return self._own_chat


def open_agent_chat(settings: Settings, model: str | None = None) -> ConversingChat:
    """The model that is named, or that of the settings; an InvalidSettings if there is none."""
    named = model or settings.agent_llm or settings.llm
    chat = open_chat(settings.model_copy(update={"llm": named}))
    if not isinstance(chat, ConversingChat):
        raise InvalidSettings("an agent needs a model: set agent_llm or llm")
    return chat
