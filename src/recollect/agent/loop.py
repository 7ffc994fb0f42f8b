"""The loop: reason, act, observe, until there is an answer or a limit is reached.

A failed call (unknown tool, invalid arguments, error, timeout) becomes an observation that the model reacts to.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from recollect.agent.modes import PARSERS, RENDERERS, Message, Mode, ParsedReply, reply_schema
from recollect.agent.tools import Tool
from recollect.agent.types import Answer, Call, EndReason, Event, EventKind, Observation, Step
from recollect.agent.working_memory import WorkingMemory
from recollect.errors import BrokenAnswer, InvalidInput, InvalidSettings, ModelUnavailable, RecollectError
from recollect.model.text import repair_text
from recollect.models.chat import AnsweringChat, ChatReply, ConversingChat
from recollect.prompts import prompt
from recollect.prompts.rendering import new_delimiter

_ABOUT_TOOLS = ("tool", "jinja", "function")
_FORMAT_HINT = "Write an Action with its Action Input, or a Final Answer."
_TOO_MANY = (
    "not called: {most} calls at once are the limit, and the reply has {count:,} calls; "
    "call it again if you still need it"
)
_UNFINISHED: Mapping[EndReason, str] = {
    "time": "I could not finish: the time for it is used up.",
    "tokens": "I could not finish: the tokens for it are used up.",
    "iterations": "I could not finish: the steps for it are used up.",
    "failed": "I could not finish: the model does not answer.",
}
_MAX_BROKEN = 2
# Of many more calls than the limit, only these times as many are reported to the model.
_MAX_REPORTED = 3
_MAX_ID_CHARS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLimits:
    """The limits of one run; 0 tokens is no limit."""

    iterations: int = 10
    time_s: float = 120.0
    tokens: int = 100_000
    tool_s: float = 30.0
    answer_tokens: int = 2048
    # Per reply of the model; further calls are refused.
    calls: int = 8
    observed_chars: int = 100_000


@dataclass(slots=True, kw_only=True)
class Loop:
    """One run; with `may_fall_back`, tools are called in text once the endpoint refuses them."""

    chat: ConversingChat
    prompt: AgentPrompt
    tools: Mapping[str, Tool]
    working: WorkingMemory
    limits: AgentLimits
    mode: Mode = "native"
    may_fall_back: bool = True
    steps: list[Step] = field(default_factory=list)
    _deadline: float = 0.0

    async def events(self) -> AsyncGenerator[Event, None]:
        """Yield the events of the run; the last one is the answer."""
        self._deadline = _clock() + self.limits.time_s
        broken = 0
        for _ in range(self.limits.iterations):
            if (ended := self._exceeded_limit()) is not None:
                yield self._unfinished(ended)
                return
            failure: Exception | None = None
            try:
                parsed = self._parse(await self._next_reply())
                broken = 0
            except BrokenAnswer as error:
                self.working.usage.add(error, ())
                broken += 1
                if broken < _MAX_BROKEN:
                    continue
                failure = error
            except (RecollectError, TimeoutError) as error:
                failure = error
            if failure is not None:
                for event in self._failed(failure):
                    yield event
                return
            if parsed.answer is not None:
                if parsed.thought:
                    yield Event(kind=EventKind.THOUGHT, text=parsed.thought)
                yield self._event(parsed.answer, "answered")
                return
            async with aclosing(self._act(parsed)) as acting:
                async for event in acting:
                    yield event
        yield await self._final_answer()

    async def _act(self, parsed: ParsedReply) -> AsyncGenerator[Event, None]:
        """Run the calls of a reply, and add the step to working memory."""
        if parsed.thought:
            yield Event(kind=EventKind.THOUGHT, text=parsed.thought)
        count = len(parsed.calls)
        parsed = replace(parsed, calls=_with_unique_ids(parsed.calls[: _MAX_REPORTED * self.limits.calls]))
        for call in parsed.calls:
            yield Event(kind=EventKind.ACTION, text=call.signature, tool=call.tool, arguments=call.arguments)
        observations = await asyncio.gather(*(self._observe(at, call, count) for at, call in enumerate(parsed.calls)))
        if not parsed.calls:
            observations = [Observation(call_id="", tool="", text=_FORMAT_HINT, failed=True)]
        for observation in observations:
            yield Event(
                kind=EventKind.OBSERVATION, text=observation.text, tool=observation.tool, failed=observation.failed
            )
        step = Step(thought=parsed.thought, calls=parsed.calls, observations=tuple(observations))
        self.steps.append(step)
        await self.working.add(step, within_s=self._deadline - _clock())

    async def _observe(self, at: int, call: Call, count: int) -> Observation:
        failed = True
        left_s = min(self.limits.tool_s, self._deadline - _clock())
        if call.error:
            text = call.error
        elif at >= self.limits.calls:
            text = _TOO_MANY.format(most=self.limits.calls, count=count)
        else:
            try:
                async with asyncio.timeout(left_s):
                    text = await self.tools[call.tool].run(call.arguments)
                failed = False
            except TimeoutError:
                text = f"{call.tool} did not answer in {max(0.0, left_s):.3g} s"
            except RecollectError as error:
                text = str(error)
            except Exception as error:
                # Code of the application: the model reads whatever it raises.
                text = f"{type(error).__name__}: {error}"
        text = repair_text(text)[: self.limits.observed_chars]
        return Observation(call_id=call.id, tool=call.tool, text=text or "(nothing)", failed=failed)

    async def _next_reply(self, *, last: bool = False) -> ChatReply:
        """Return the next reply of the model, within the remaining time."""
        while True:
            messages = self.prompt.messages(self.mode, self.tools, self.working, last=last)
            native = self.mode == "native" and not (last and not self.working.steps)
            tools = [tool.openai_schema for tool in self.tools.values()] if native else []
            try:
                async with asyncio.timeout_at(self._deadline):
                    reply = await self._call_model(messages, tools, use_schema=self.mode == "schema" and not last)
            except (InvalidInput, ModelUnavailable) as error:
                if not self._can_fall_back(error, tools):
                    raise
                self.mode = "text"
                continue
            self.working.usage.add(reply, messages)
            return reply

    async def _call_model(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], *, use_schema: bool
    ) -> ChatReply:
        max_tokens = self.limits.answer_tokens
        if not use_schema or not isinstance(self.chat, AnsweringChat):
            return await self.chat.converse(messages, tools=tools, max_tokens=max_tokens)
        answer = await self.chat.answer(messages, max_tokens=max_tokens, schema=reply_schema(self.tools))
        return ChatReply(
            text=answer.text, tokens_in=answer.tokens_in, tokens_out=answer.tokens_out, cut_off=answer.cut_off
        )

    def _can_fall_back(self, error: RecollectError, tools: Sequence[Any]) -> bool:
        """Return whether the endpoint may have refused only the tools."""
        if not tools or not self.may_fall_back or isinstance(error, (InvalidSettings, BrokenAnswer)):
            return False
        return any(word in str(error).casefold() for word in _ABOUT_TOOLS)

    def _parse(self, reply: ChatReply) -> ParsedReply:
        parsed = PARSERS[self.mode](reply, self.tools, len(self.steps))
        was_unparsed = self.steps and not self.steps[-1].calls
        if parsed.answer is None and not parsed.calls and was_unparsed:
            # It was given the format and ignores it again, so take its text as the answer.
            return replace(parsed, thought="", answer=parsed.thought)
        return parsed

    async def _final_answer(self) -> Event:
        """Ask for an answer after the last iteration."""
        if (ended := self._exceeded_limit()) is not None:
            return self._unfinished(ended)
        try:
            reply = await self._next_reply(last=True)
        except (RecollectError, TimeoutError):
            return self._unfinished("iterations")
        parsed = PARSERS[self.mode](reply, {}, 0)
        text = parsed.answer if parsed.answer is not None else parsed.thought
        return self._event(text, "iterations") if text else self._unfinished("iterations")

    def _exceeded_limit(self) -> EndReason | None:
        if _clock() >= self._deadline:
            return "time"
        max_tokens = self.limits.tokens
        return "tokens" if max_tokens and self.working.usage.total >= max_tokens else None

    def _failed(self, error: Exception) -> list[Event]:
        ended: EndReason = "time" if isinstance(error, TimeoutError) or self._exceeded_limit() == "time" else "failed"
        events = [] if ended == "time" else [Event(kind=EventKind.ERROR, text=str(error), failed=True)]
        return [*events, self._unfinished(ended)]

    def _unfinished(self, ended: EndReason) -> Event:
        return self._event(_UNFINISHED[ended], ended)

    def _event(self, text: str, ended: EndReason) -> Event:
        usage = self.working.usage
        answer = Answer(
            text=text,
            ended=ended,
            steps=tuple(self.steps),
            tokens_in=usage.tokens_in,
            tokens_out=usage.tokens_out,
            model_calls=usage.calls,
        )
        return Event(kind=EventKind.ANSWER, text=text, answer=answer, failed=ended != "answered")


def _with_unique_ids(calls: Sequence[Call]) -> tuple[Call, ...]:
    """Return the calls with an id of its own for each, by which its result is found."""
    ids: set[str] = set()
    result = []
    for at, call in enumerate(calls):
        call = replace(call, id=f"{call.id[:_MAX_ID_CHARS]}_{at}") if call.id in ids else call
        ids.add(call.id)
        result.append(call)
    return tuple(result)


def _clock() -> float:
    return asyncio.get_running_loop().time()


_NOW_ANSWER = "You have no steps left. Answer the user now with what you know; call no tool."
_WITH_TOOLS = "With {names} you can look for more, and keep what will matter again."


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPrompt:
    """The prompt of one run; `recalled` is None if memory is off."""

    question: str
    state: str = ""
    context: str = ""
    recalled: str | None = None
    memory_tools: Sequence[str] = ()
    # The same in all requests of a run, so that endpoints can cache the prefix.
    fence: str = field(default_factory=new_delimiter)

    def messages(
        self, mode: Mode, tools: Mapping[str, Tool], working: WorkingMemory, *, last: bool = False
    ) -> list[Message]:
        """Return the messages of the next request; with `last` the model must answer now."""
        messages: list[Message] = [{"role": "system", "content": self._system(mode, tools)}]
        if self.recalled:
            block = prompt("agent_recalled").fill(fence=self.fence, memories=self.recalled)
            messages.append({"role": "user", "content": block})
        messages.append({"role": "user", "content": self._task(working)})
        for step in working.steps:
            messages += RENDERERS[mode](step)
        if last:
            messages.append({"role": "user", "content": _NOW_ANSWER})
        return messages

    def _system(self, mode: Mode, tools: Mapping[str, Tool]) -> str:
        parts = [prompt("agent").fill(context=self.context).strip()]
        if self.recalled is not None:
            hint = _WITH_TOOLS.format(names=", ".join(self.memory_tools)) if self.memory_tools else ""
            parts.append(prompt("agent_memory").fill(tools=hint).strip())
        if mode != "native" and tools:
            listed = "\n".join(
                f"{tool.name}: {tool.description} {json.dumps(dict(tool.parameters), ensure_ascii=False)}"
                for tool in tools.values()
            )
            parts.append(
                prompt("agent_text").fill(tools=listed, names=", ".join(tools))
                if mode == "text"
                else prompt("agent_schema").fill(tools=listed)
            )
        return "\n\n".join(parts)

    def _task(self, working: WorkingMemory) -> str:
        if self.recalled is None:
            return f"State: {self.state}\n\n{self.question}" if self.state else self.question
        return prompt("agent_task").fill(
            state=f"State: {self.state}" if self.state else "The question below.",
            working=working.summary or "- the steps below, if any",
            question=self.question,
        )
