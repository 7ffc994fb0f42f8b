"""The loop: reason, act, observe, until there is an answer or a limit is reached.

Whatever goes wrong with a call (an unknown tool, arguments that cannot be read, an error, a tool that hangs) is an
observation, and the model goes on from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from recollect.agent.answer import Answer, Ended, Event, EventKind
from recollect.agent.asked import Asked, Mode
from recollect.agent.habits import Limits
from recollect.agent.held import by_schema, schema_of
from recollect.agent.spoken import Spoken, by_endpoint, in_words
from recollect.agent.step import Call, Observed, Step
from recollect.agent.tools.tool import Tool
from recollect.agent.working import WorkingMemory
from recollect.errors import BrokenAnswer, InvalidInput, InvalidSettings, ModelUnavailable, RecollectError
from recollect.model.text import mended_text
from recollect.models.chat import AnsweringChat, ConversingChat, Said
from recollect.read.budget import count_tokens

_ABOUT_TOOLS = ("tool", "jinja", "function")
_LOST = "Write an Action with its Action Input, or a Final Answer."
_TOO_MANY = "not called: {most} calls at once are the limit; call it again if you still need it"
_UNFINISHED: Mapping[Ended, str] = {
    "time": "I could not finish: the time for it is used up.",
    "tokens": "I could not finish: the tokens for it are used up.",
    "iterations": "I could not finish: the steps for it are used up.",
    "failed": "I could not finish: the model does not answer.",
}
_MOST_BROKEN = 2


@dataclass(slots=True, kw_only=True)
class Loop:
    """One run; `mode` is how tools are called: with `may_fall_back` in words, once the endpoint refuses."""

    chat: ConversingChat
    asked: Asked
    tools: Mapping[str, Tool]
    working: WorkingMemory
    limits: Limits
    mode: Mode = "native"
    may_fall_back: bool = True
    steps: list[Step] = field(default_factory=list)
    tokens_in: int = 0
    tokens_out: int = 0
    times_asked: int = 0
    _deadline: float = 0.0

    async def events(self) -> AsyncGenerator[Event, None]:
        """What happens, as it happens; the last event is the answer."""
        self._deadline = _clock() + self.limits.time_s
        broken = 0
        for _ in range(self.limits.iterations):
            if (ended := self._used_up()) is not None:
                yield self._unfinished(ended)
                return
            wrong: Exception | None = None
            try:
                spoken = self._read(await self._ask())
                broken = 0
            except BrokenAnswer as error:
                self._spend(error)
                broken += 1
                if broken < _MOST_BROKEN:
                    continue
                wrong = error
            except (RecollectError, TimeoutError) as error:
                wrong = error
            if wrong is not None:
                for event in self._failed(wrong):
                    yield event
                return
            if spoken.answer is not None:
                if spoken.thought:
                    yield Event(kind=EventKind.THOUGHT, text=spoken.thought)
                yield self._answered(spoken.answer)
                return
            async with aclosing(self._act(spoken)) as acting:
                async for event in acting:
                    yield event
        yield await self._last_word()

    async def _act(self, spoken: Spoken) -> AsyncGenerator[Event, None]:
        """Do what the model wants done, and take it into working memory."""
        if spoken.thought:
            yield Event(kind=EventKind.THOUGHT, text=spoken.thought)
        for call in spoken.calls:
            yield Event(kind=EventKind.ACTION, text=call.plain, tool=call.tool, arguments=call.arguments)
        observed = await asyncio.gather(*(self._observe(at, call) for at, call in enumerate(spoken.calls)))
        if not spoken.calls:
            observed = [Observed(call_id="", tool="", text=_LOST, failed=True)]
        for seen in observed:
            yield Event(kind=EventKind.OBSERVATION, text=seen.text, tool=seen.tool, failed=seen.failed)
        step = Step(thought=spoken.thought, calls=spoken.calls, observed=tuple(observed))
        self.steps.append(step)
        await self.working.add(step, within_s=self._deadline - _clock())

    async def _observe(self, at: int, call: Call) -> Observed:
        """What comes of one call, whatever that is."""
        failed = True
        left_s = min(self.limits.tool_s, self._deadline - _clock())
        if call.wrong:
            text = call.wrong
        elif at >= self.limits.calls:
            text = _TOO_MANY.format(most=self.limits.calls)
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
                # Somebody else's code: whatever it raises is for the model to read.
                text = f"{type(error).__name__}: {error}"
        text = mended_text(text)[: self.limits.observed_chars]
        return Observed(call_id=call.id, tool=call.tool, text=text or "(nothing)", failed=failed)

    async def _ask(self, *, last: bool = False) -> Said:
        """What the model says next, within the time that is left."""
        while True:
            messages = self.asked.messages(self.mode, self.tools, self.working, last=last)
            native = self.mode == "native" and not (last and not self.working.steps)
            tools = [tool.on_wire for tool in self.tools.values()] if native else []
            try:
                async with asyncio.timeout_at(self._deadline):
                    said = await self._said(messages, tools, held=self.mode == "schema" and not last)
            except (InvalidInput, ModelUnavailable) as error:
                if not self._can_fall_back(error, tools):
                    raise
                self.mode = "text"
                continue
            self._spend(said, messages)
            return said

    async def _said(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], *, held: bool) -> Said:
        most = self.limits.answer_tokens
        if not held or not isinstance(self.chat, AnsweringChat):
            return await self.chat.converse(messages, tools=tools, max_tokens=most)
        told = await self.chat.answer(messages, max_tokens=most, schema=schema_of(self.tools))
        return Said(text=told.text, tokens_in=told.tokens_in, tokens_out=told.tokens_out, cut_off=told.cut_off)

    def _can_fall_back(self, error: RecollectError, tools: Sequence[Any]) -> bool:
        """Whether the endpoint may only have refused the tools: then they are told of in words."""
        if not tools or not self.may_fall_back or isinstance(error, (InvalidSettings, BrokenAnswer)):
            return False
        return any(word in str(error).casefold() for word in _ABOUT_TOOLS)

    def _read(self, said: Said) -> Spoken:
        if self.mode == "native":
            return by_endpoint(said, self.tools)
        read = in_words if self.mode == "text" else by_schema
        spoken = read(said.text, self.tools, number=len(self.steps))
        lost_before = self.steps and not self.steps[-1].calls
        if spoken.answer is None and not spoken.calls and lost_before:
            # It was told how, and says the same again: then that is what it has to say.
            return replace(spoken, thought="", answer=spoken.thought)
        return spoken

    async def _last_word(self) -> Event:
        """The answer of a model that has no steps left."""
        if (ended := self._used_up()) is not None:
            return self._unfinished(ended)
        try:
            said = await self._ask(last=True)
        except (RecollectError, TimeoutError):
            return self._unfinished("iterations")
        read = by_schema if self.mode == "schema" else in_words
        spoken = by_endpoint(said, {}) if self.mode == "native" else read(said.text, {}, number=0)
        text = spoken.answer if spoken.answer is not None else spoken.thought
        return self._event(text, "iterations") if text else self._unfinished("iterations")

    def _used_up(self) -> Ended | None:
        if _clock() >= self._deadline:
            return "time"
        most = self.limits.tokens
        summing = self.working.cost
        spent = self.tokens_in + self.tokens_out + summing.tokens_in + summing.tokens_out
        return "tokens" if most and spent >= most else None

    def _spend(self, said: Said | BrokenAnswer, messages: Sequence[Mapping[str, Any]] = ()) -> None:
        """Count what it cost; where the server does not say, on the safe side."""
        text = said.text if isinstance(said, Said) else ""
        self.times_asked += 1
        self.tokens_in += said.tokens_in or sum(count_tokens(str(each.get("content"))) for each in messages)
        self.tokens_out += said.tokens_out or count_tokens(text)

    def _failed(self, error: Exception) -> list[Event]:
        ended: Ended = "time" if isinstance(error, TimeoutError) or self._used_up() == "time" else "failed"
        told = [] if ended == "time" else [Event(kind=EventKind.ERROR, text=str(error), failed=True)]
        return [*told, self._unfinished(ended)]

    def _answered(self, text: str) -> Event:
        return self._event(text, "answered")

    def _unfinished(self, ended: Ended) -> Event:
        return self._event(_UNFINISHED[ended], ended)

    def _event(self, text: str, ended: Ended) -> Event:
        answer = Answer(
            text=text,
            ended=ended,
            steps=tuple(self.steps),
            tokens_in=self.tokens_in + self.working.cost.tokens_in,
            tokens_out=self.tokens_out + self.working.cost.tokens_out,
            asked=self.times_asked + self.working.cost.calls,
        )
        return Event(kind=EventKind.ANSWER, text=text, answer=answer, failed=ended != "answered")


def _clock() -> float:
    return asyncio.get_running_loop().time()
