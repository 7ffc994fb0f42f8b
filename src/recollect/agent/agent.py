"""Agent: a thin conductor. Begin with what memory has, reason and act, tell, end behind the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from types import NoneType, TracebackType
from typing import Any, Self

from recollect.agent.answer import Answer, Event, EventKind
from recollect.agent.asked import Asked, Mode
from recollect.agent.end import BY, Told, end, tell
from recollect.agent.habits import AgentHabits, habits_of
from recollect.agent.handed import read_history
from recollect.agent.loop import Loop
from recollect.agent.start import Begun, begin
from recollect.agent.step import Step
from recollect.agent.tools.memory_tools import MEMORY_TOOLS, memory_tools
from recollect.agent.tools.tool import Tool
from recollect.agent.tools.toolbox import Toolbox
from recollect.agent.working import UNBOUNDED, WorkingMemory
from recollect.api import AsyncMemory
from recollect.errors import InvalidInput, InvalidSettings, RecollectError
from recollect.model.asked import read_scope
from recollect.model.ids import new_id
from recollect.model.scope import Scope
from recollect.model.text import checked_text
from recollect.models.chat import ConversingChat
from recollect.service import Service
from recollect.settings import Settings, load
from recollect.wiring import open_chat


@dataclass(frozen=True, slots=True)
class _Task:
    question: str
    state: str
    group: tuple[str, ...]
    steps: tuple[Step, ...]
    by: str


_REFUSED = "I could not begin: the tokens of this day are used up."


class Agent:
    """Reasons and acts with tools until it has an answer; with memory it begins with what it knows, and learns.

    `model` is a name at the settings' `llm_url`, or a chat of your own. Tools are `Tool`s or plain functions. Without
    memory, which is the default, it is a plain ReAct agent and nothing is kept.
    """

    def __init__(
        self,
        memory: AsyncMemory | Service | None = None,
        model: str | ConversingChat | None = None,
        tools: Sequence[Tool | Callable[..., Any]] | Toolbox = (),
        *,
        habits: AgentHabits | None = None,
        enable_memory: bool = False,
    ) -> None:
        if not isinstance(memory, (AsyncMemory, Service, NoneType)):
            raise InvalidInput(f"an agent takes an AsyncMemory, not a {type(memory).__name__}")
        self.memory = memory
        self._settings = memory.settings if isinstance(memory, AsyncMemory) else None
        self._model = model
        self._own: ConversingChat | None = None
        self.toolbox = tools if isinstance(tools, Toolbox) else Toolbox.of(tools)
        self.habits = habits or (habits_of(self._settings) if self._settings else AgentHabits())
        self._enabled = enable_memory
        # Found out once: what an endpoint refuses it goes on refusing.
        self._mode: Mode = "native" if self.habits.tool_calls == "auto" else self.habits.tool_calls
        self._ending: dict[Scope, asyncio.Task[None]] = {}

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
        task = _Task(checked_text(question, name="question"), state, tuple(group), read_history(history), by)
        enabled = self._enabled if enable_memory is None else enable_memory
        events = self._plain(task)
        if enabled:
            events = self._remembering(task, read_scope(user_id, project_id, session_id or new_id()))
        async with aclosing(events):
            async for event in events:
                yield event

    async def _plain(self, task: _Task) -> AsyncGenerator[Event, None]:
        """A run without memory."""
        asked = Asked(question=task.question, state=task.state, context=self.habits.context)
        loop = await self._loop(asked, self.toolbox.allowed(task.group), WorkingMemory(UNBOUNDED), task)
        async with aclosing(self._events(loop)) as events:
            async for event in events:
                yield event

    async def _remembering(self, task: _Task, scope: Scope) -> AsyncGenerator[Event, None]:
        """A run that begins with what memory has, and leaves there what it came to."""
        service = await self._service()
        # However long it takes: another model may take the place of the service's meanwhile.
        with service.uses.one():
            async with aclosing(self._run(service, task, scope)) as events:
                async for event in events:
                    yield event

    async def _run(self, service: Service, task: _Task, scope: Scope) -> AsyncGenerator[Event, None]:
        await self._ended(scope)
        if refused := await self._refusal(service, scope):
            answer = Answer(text=_REFUSED, ended="tokens", conversation_id=scope.session, notes=(refused,))
            yield Event(kind=EventKind.ANSWER, text=_REFUSED, answer=answer, failed=True)
            return
        begun = await begin(service, scope, task.question, state=task.state, habits=self.habits)
        tools = self.toolbox.with_tools(self._hands(service, scope, task.by)).allowed(task.group)
        asked = Asked(
            question=task.question,
            state=task.state,
            context=self.habits.context,
            recalled=begun.block,
            memory_tools=[name for name in tools if name in MEMORY_TOOLS],
        )
        working = WorkingMemory(self.habits.room, chat=await self._chat())
        loop = await self._loop(asked, tools, working, task)
        async with aclosing(self._events(loop)) as events:
            async for event in events:
                done = event.answer is not None
                yield await self._finish(service, scope, task, event, begun) if done else event

    async def settled(self) -> None:
        """Wait until what runs came to is kept."""
        while self._ending:
            await asyncio.gather(*self._ending.values())

    async def close(self) -> None:
        """Wait for what is being kept, and let go of the model; the memory stays its owner's."""
        await self.settled()
        own, self._own = self._own, None
        if own is not None:
            await own.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _loop(self, asked: Asked, tools: Mapping[str, Tool], working: WorkingMemory, task: _Task) -> Loop:
        for step in task.steps:
            await working.add(step)
        return Loop(
            chat=await self._chat(),
            asked=asked,
            tools=tools,
            working=working,
            limits=self.habits.limits,
            mode=self._mode,
            may_fall_back=self.habits.tool_calls == "auto",
        )

    async def _events(self, loop: Loop) -> AsyncGenerator[Event, None]:
        async with aclosing(loop.events()) as events:
            async for event in events:
                self._mode = loop.mode
                yield event

    async def _finish(self, service: Service, scope: Scope, task: _Task, event: Event, begun: Begun) -> Event:
        """The answer with what memory has to do with it; what was said is in the log, the rest is done behind."""
        assert event.answer is not None
        answer = replace(
            event.answer,
            run_id=new_id(),
            conversation_id=scope.session,
            facts=begun.facts,
            episodes=begun.episodes,
            notes=begun.notes,
        )
        told = await tell(service, scope, task.question, answer, habits=self.habits, by=task.by)
        self._end_behind(service, scope, task.question, answer, told)
        notes = (*answer.notes, told.note) if told.note else answer.notes
        return replace(event, kind=EventKind.ANSWER, answer=replace(answer, notes=notes))

    def _end_behind(self, service: Service, scope: Scope, question: str, answer: Answer, told: Told) -> None:
        before = self._ending.get(scope)

        async def work() -> None:
            try:
                with service.uses.one():
                    if before is not None:
                        await asyncio.wait([before])
                    model = (await self._chat()).model
                    await end(service, scope, question, answer, told=told, habits=self.habits, model=model)
            finally:
                if self._ending.get(scope) is task:
                    del self._ending[scope]

        task = self._ending[scope] = asyncio.create_task(work())

    async def _ended(self, scope: Scope) -> None:
        """Wait until what the last run of this conversation came to is kept: this one begins with it."""
        if (task := self._ending.get(scope)) is not None:
            await asyncio.wait([task])

    async def _refusal(self, service: Service, scope: Scope) -> str:
        """Why the model may not be asked for this user any more today; a memory that is away says nothing."""
        try:
            return await service.care.refusal(scope.user)
        except RecollectError:
            return ""

    def _hands(self, service: Service, scope: Scope, by: str) -> tuple[Tool, ...]:
        limits = self.habits.memory_tools
        if limits is None:
            return ()
        return memory_tools(service, scope, by=by, limits=limits, withheld=self.habits.withheld)

    async def _service(self) -> Service:
        if self.memory is None:
            raise InvalidInput("this agent has no memory; give it one, or leave enable_memory out")
        if isinstance(self.memory, Service):
            return self.memory
        service = await self.memory._open()
        if self.memory.settings.worker:
            service.care.start()
        return service

    async def _chat(self) -> ConversingChat:
        """The model; one that is only named is opened on first use."""
        if isinstance(self._model, ConversingChat):
            return self._model
        if self._own is None:
            settings = self._settings or load({}).settings
            self._own = open_agent_chat(settings, self._model)
        return self._own


def open_agent_chat(settings: Settings, model: str | None = None) -> ConversingChat:
    """The model that is named, or that of the settings; an InvalidSettings if there is none."""
    named = model or settings.agent_llm or settings.llm
    chat = open_chat(settings.model_copy(update={"llm": named}))
    if not isinstance(chat, ConversingChat):
        raise InvalidSettings("an agent needs a model: set agent_llm or llm")
    return chat
