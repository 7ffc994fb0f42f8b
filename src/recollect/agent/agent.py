"""Agent: run the loop with tools and memory, and store the result in the background."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from types import NoneType
from typing import Any, Literal, Self, TypeAlias

from recollect.agent.loop import AgentLimits, AgentPrompt, Loop
from recollect.agent.modes import Mode
from recollect.agent.tools import EPISODES, FACTS, MEMORY_TOOLS, MemoryLimits, Tool, Toolbox, memory_tools
from recollect.agent.types import Answer, Call, Event, EventKind, Observation, Step, parse_history
from recollect.agent.working_memory import UNBOUNDED, WorkingMemory, WorkingMemoryLimits
from recollect.client import AsyncMemory
from recollect.config.settings import Settings, load
from recollect.errors import InvalidInput, InvalidSettings, RecollectError
from recollect.model.arguments import parse_scope
from recollect.model.change import Author, ModelUsage
from recollect.model.ids import new_id
from recollect.model.memory import Category
from recollect.model.result import Hit
from recollect.model.scope import Scope
from recollect.model.text import repair_text, validate_text
from recollect.model.times import now
from recollect.model.turn import Turn
from recollect.models.chat import ConversingChat
from recollect.observability.tracing import format_traceback
from recollect.prompts.rendering import shorten
from recollect.service.service import Service
from recollect.service.tool_memory import ToolMemory
from recollect.sessions.agent_runs import RecordedStep, RunRecord, StepKind
from recollect.text.time_expressions import TimeWords
from recollect.wiring import open_chat

_log = logging.getLogger("recollect")
BY = "agent"
# The extraction mode for turns of an agent.
_MODE = "task"
_MAX_LESSONS = 3
_LESSON_CHARS = 120


def lessons_of(answer: Answer) -> tuple[str, ...]:
    """Return a sentence for each failure and what worked instead; nothing if nothing failed."""
    outcomes = list(_calls(answer.steps))
    lessons = []
    for at, (call, observation) in enumerate(outcomes):
        if observation.failed:
            # A later successful call of the same tool, or else the next successful call.
            after = [later for later, later_observation in outcomes[at + 1 :] if not later_observation.failed]
            instead = next((later for later in after if later.tool == call.tool), after[0] if after else None)
            failure = f"{_short(call.signature)} failed: {_short(observation.text).rstrip('.')}"
            lessons.append(f"{failure}; {_short(instead.signature)} worked." if instead else f"{failure}.")
    if answer.ended not in ("answered", "failed"):
        lessons.insert(0, f"It was not finished within its {answer.ended} after {answer.actions} actions.")
    return tuple(dict.fromkeys(lessons))[:_MAX_LESSONS]


def _calls(steps: Sequence[Step]) -> Iterator[tuple[Call, Observation]]:
    for step in steps:
        by_call_id = {each.call_id: each for each in step.observations}
        yield from ((call, by_call_id[call.id]) for call in step.calls if call.id in by_call_id)


def _short(text: str) -> str:
    return shorten(" ".join(text.split()), _LESSON_CHARS)


async def record_turns(
    service: Service, scope: Scope, question: str, answer: Answer, *, config: AgentConfig, by: str = BY
) -> tuple[tuple[Turn, ...], str]:
    """Append question and answer to the log, to be learned from later; return the turns, or why there are none.

    They are durable when this returns.
    """
    if not config.learns:
        return (), ""
    messages = [{"role": "user", "content": repair_text(question)}]
    if answer.ended in ("answered", "iterations"):
        messages.append({"role": "assistant", "content": repair_text(answer.text)})
    try:
        remembered = await service.remember(scope, messages, by=Author(by), mode=_MODE)
    except RecollectError as error:
        return (), f"not remembered: {error}"
    return tuple(remembered.turns), ""


async def finish_run(
    service: Service,
    scope: Scope,
    question: str,
    answer: Answer,
    *,
    turns: tuple[Turn, ...],
    config: AgentConfig,
    model: str,
) -> None:
    """Store the invocation and, if it was a task, the episode of a run; errors are logged, since nobody waits."""
    work = tuple(_skip_memory_calls(answer.steps)) if config.records else ()
    run = RunRecord(
        id=answer.run_id,
        goal=repair_text(question),
        steps=tuple(_to_run_steps(work)),
        answer=repair_text(answer.text),
        success=answer.success,
        lessons=lessons_of(replace(answer, steps=work)) if config.records else (),
        turns=tuple(turn.id for turn in turns),
        last_turn=turns[-1].position if turns else 0,
        ended_at=now(),
    )
    usage = ModelUsage(
        user=scope.user,
        step=BY,
        model=model,
        calls=answer.model_calls,
        tokens_in=answer.tokens_in,
        tokens_out=answer.tokens_out,
        at=run.ended_at,
    )
    try:
        if usage.calls:
            await service.usage.record(usage)
        await service.sessions.end_run(scope, run)
    except RecollectError as error:
        _log.warning("a run is not stored: %s", error)
    except Exception as error:
        # A bug, or a part that was closed: the answer was returned, so there is no caller to raise it to.
        _log.error("a run is not stored. %s", format_traceback(error))


def _skip_memory_calls(steps: Sequence[Step]) -> Iterator[Step]:
    """Yield the steps without calls of memory tools, which are no work on the task."""
    for step in steps:
        calls = tuple(call for call in step.calls if call.tool not in MEMORY_TOOLS)
        ids = {call.id for call in calls}
        if calls or not step.calls:
            yield replace(
                step,
                calls=calls,
                observations=tuple(observation for observation in step.observations if observation.call_id in ids),
            )


def _to_run_steps(steps: Sequence[Step]) -> Iterator[RecordedStep]:
    for step in steps:
        failed = {observation.call_id for observation in step.observations if observation.failed}
        for item in step.items:
            is_failure = item.kind is StepKind.ACTION and item.metadata["call_id"] in failed
            yield RecordedStep(item.kind, repair_text(f"{item.content} (failed)" if is_failure else item.content))


_STYLE = "react-mem"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartContext:
    """The memories that a run starts with; `notes` say what is missing and why."""

    block: str = ""
    facts: tuple[str, ...] = ()
    episodes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


async def start_run(memory: ToolMemory, question: str, *, state: str, config: AgentConfig) -> StartContext:
    """Fetch memories for a run; without them if memory is unavailable. The question is embedded once."""
    texts = [question, f"{question}\n{state}"] if state else [question]
    facts: Sequence[Hit]
    try:
        async with asyncio.timeout(config.recall_s):
            vectors = await memory.service.embed_queries(texts)
            facts, episodes, conversation = await asyncio.gather(
                memory.search(texts[0], config.facts, among=FACTS, turns=False, vector=vectors[0]),
                memory.search(texts[-1], config.episodes, among=EPISODES, turns=False, vector=vectors[-1]),
                memory.service.conversation(memory.scope),
            )
    except TimeoutError:
        return StartContext(notes=(f"without memory: it took more than {config.recall_s:g} s",))
    except RecollectError as error:
        return StartContext(notes=(f"without memory: {error}",))
    episode_text = " ".join(hit.memory for hit in episodes)
    # Drop lessons that one of the episodes contains.
    facts = [hit for hit in facts if hit.record.category is not Category.LESSON or hit.memory not in episode_text]
    context = memory.service.format_context(
        _STYLE, [*facts, *episodes], budget_tokens=config.memory_tokens, conversation=conversation
    )
    return StartContext(
        block=context.text,
        facts=tuple(hit.id for hit in facts),
        episodes=tuple(hit.id for hit in episodes),
        notes=tuple(f"left out: {reason}" for reason in set(context.dropped.values())),
    )


# By the endpoint, as text, as JSON with a schema, or by the endpoint until it refuses.
ToolCalls: TypeAlias = Literal["auto", "native", "text", "schema"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """The configuration of all runs of an agent."""

    limits: AgentLimits = field(default_factory=AgentLimits)
    working_memory: WorkingMemoryLimits = field(default_factory=WorkingMemoryLimits)
    tool_calls: ToolCalls = "auto"
    context: str = ""
    facts: int = 5
    episodes: int = 3
    min_score: float = 0.0
    memory_tokens: int = 2048
    memory_tools: MemoryLimits | None = field(default_factory=MemoryLimits)
    learns: bool = True
    records: bool = True
    recall_s: float = 5.0
    time_words: TimeWords = "prefer"
    withheld: frozenset[str] = frozenset()


def load_agent_config(settings: Settings) -> AgentConfig:
    limits = ("iterations", "time_s", "tokens", "tool_s", "answer_tokens")
    return AgentConfig(
        limits=AgentLimits(**{name: getattr(settings, f"agent_{name}") for name in limits}),
        working_memory=_working_memory_limits(settings),
        tool_calls=settings.agent_tool_calls,
        context=settings.agent_context,
        facts=settings.agent_facts,
        episodes=settings.agent_episodes,
        min_score=settings.search_min_score,
        memory_tokens=settings.context_tokens,
        memory_tools=MemoryLimits(facts=settings.agent_facts or 1, episodes=settings.agent_episodes or 1)
        if settings.agent_memory_tools
        else None,
        learns=settings.agent_learn,
        records=settings.agent_store_episodes,
        recall_s=settings.recall_timeout_s,
        time_words=settings.time_words,
        withheld=settings.excluded_tags,
    )


def _working_memory_limits(settings: Settings) -> WorkingMemoryLimits:
    """Return the limits; for a local model at most half of its context window."""
    half = settings.llm_context_tokens // 2
    is_local = (settings.agent_llm or settings.llm).startswith("local:")
    tokens = settings.agent_working_tokens
    max_tokens = max(settings.agent_working_max_tokens, tokens)
    return WorkingMemoryLimits(
        tokens=min(tokens, half) if is_local else tokens,
        keep_steps=settings.agent_keep_steps,
        max_tokens=min(max_tokens, half) if is_local else max_tokens,
    )


@dataclass(frozen=True, slots=True)
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
            if (previous := self._finishing.get(scope)) is not None:
                # This run starts from what the last one of the conversation stores.
                await asyncio.wait([previous])
            refusal = ""
            with suppress(RecollectError):
                # If memory is unavailable, the run goes on without it.
                refusal = await service.usage.refusal(scope.user)
            if refusal:
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
        turns, note = await record_turns(service, scope, task.question, answer, config=self.config, by=task.by)
        self._finish_in_background(service, scope, task.question, answer, turns)
        notes = (*answer.notes, note) if note else answer.notes
        return replace(event, kind=EventKind.ANSWER, answer=replace(answer, notes=notes))

    def _finish_in_background(
        self, service: Service, scope: Scope, question: str, answer: Answer, turns: tuple[Turn, ...]
    ) -> None:
        previous = self._finishing.get(scope)

        async def work() -> None:
            try:
                with service.use_count.track():
                    if previous is not None:
                        await asyncio.wait([previous])
                    model = (await self._chat()).model
                    await finish_run(service, scope, question, answer, turns=turns, config=self.config, model=model)
            finally:
                if self._finishing.get(scope) is task:
                    del self._finishing[scope]

        task = self._finishing[scope] = asyncio.create_task(work())

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
