"""Working memory: the last steps of a run word for word, and a digest of the older ones.

The digest has a model's summary, if there is a model, and a line for each call and decision, so that results never
depend on the summary. If the lines do not fit, results are shortened, then decisions dropped, then the oldest lines.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from recollect.agent.types import OVERHEAD_TOKENS, Call, Step, StepItem, TokenUsage
from recollect.errors import BrokenAnswer, InvalidInput, RecollectError
from recollect.models.chat import ConversingChat
from recollect.prompts import prompt
from recollect.prompts.rendering import json_line, new_delimiter, shorten
from recollect.text.tokens import count_tokens, truncate_words

_log = logging.getLogger("recollect")
MIN_TOKENS = 400
_GIST_CHARS = 2_000
_GIST_TOKENS = 1_024
_GIST_TIMEOUT_S = 20.0
# Per item in the prompt that asks for a summary.
_MAX_ITEM_CHARS = 2_000
_MAX_LINES = 200
# Lengths of results to try in turn; the second row is for lines without decisions.
_RESULT_CHARS = (400, 240, 160, 100)
_TIGHT_CHARS = (160, 100, 60, 30)


# A call and its result, or a decision and None.
_Line: TypeAlias = tuple[str, str | None]


def _step_lines(step: Step) -> list[_Line]:
    results = {each.call_id: f"failed: {each.text}" if each.failed else each.text for each in step.observations}
    lines: list[_Line] = [(_flat(step.decision), None)] if step.decision and step.calls else []
    return [*lines, *((_flat(call.signature), _flat(results.get(call.id, ""))) for call in step.calls)]


def _flat(text: str) -> str:
    return shorten(" ".join(text.split()), _RESULT_CHARS[0])


def _fit_lines(lines: Sequence[_Line], limit: int, *, dropped: int) -> str:
    """Return the lines in at most `limit` tokens."""
    results = [line for line in lines if line[1] is not None]
    for shown, chars in [(lines, chars) for chars in _RESULT_CHARS] + [(results, chars) for chars in _TIGHT_CHARS]:
        text = _render_lines(shown, chars, dropped)
        if count_tokens(text) <= limit:
            return text
    min_chars = _TIGHT_CHARS[-1]
    # The newest lines that fit.
    budget, first = limit - count_tokens(_render_lines((), min_chars, dropped + len(results))) - 1, len(results)
    while first and (needed := count_tokens(_render_lines([results[first - 1]], min_chars, 0)) + 1) <= budget:
        budget, first = budget - needed, first - 1
    text = _render_lines(results[first:], min_chars, dropped + first)
    return text if count_tokens(text) <= limit else ""


def _render_lines(lines: Sequence[_Line], chars: int, dropped: int) -> str:
    rendered = [f"- ({dropped} earlier lines)"] if dropped else []
    for action, result in lines:
        short = shorten(action, max(chars, 60))
        rendered.append(f"- decided: {short}" if result is None else f"- {short} -> {shorten(result, chars)}")
    return "\n".join(rendered)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingMemoryLimits:
    """Older steps than the last `keep_steps` are summarised above `tokens`; `max_tokens` is the limit of the whole.

    0 tokens is no limit.
    """

    tokens: int = 2000
    keep_steps: int = 3
    max_tokens: int = 16_000

    def __post_init__(self) -> None:
        if self.tokens and not MIN_TOKENS <= self.tokens <= self.max_tokens:
            raise InvalidInput(f"`tokens` must be 0 or from {MIN_TOKENS} to `max_tokens`, got {self.tokens}")
        if not 1 <= self.keep_steps <= 20:
            raise InvalidInput(f"`keep_steps` must be from 1 to 20, got {self.keep_steps}")

    @property
    def max_digest_tokens(self) -> int:
        return self.tokens // 4

    @property
    def max_step_tokens(self) -> int:
        return (self.max_tokens - self.max_digest_tokens) // self.keep_steps


UNBOUNDED = WorkingMemoryLimits(tokens=0)


class WorkingMemory:
    """The steps of one run; older ones are summarised by the model, or by rules without one.

    `usage` counts all calls of the model in the run.
    """

    def __init__(self, limits: WorkingMemoryLimits | None = None, *, chat: ConversingChat | None = None) -> None:
        self.limits = limits or WorkingMemoryLimits()
        self.steps: tuple[Step, ...] = ()
        self.compressed = 0
        self.usage = TokenUsage()
        # The digest: the model's summary, the lines, and how many lines were dropped.
        self._gist, self._dropped = "", 0
        self._lines: list[_Line] = []
        # Steps that the model has not summarised yet.
        self._unsummarized: tuple[Step, ...] = ()
        self._chat = chat

    @property
    def summary(self) -> str:
        """Return the digest of the older steps; empty if there are none."""
        limit = self.limits.max_digest_tokens
        if not limit or not (self._gist or self._lines):
            return ""
        gist = _truncate(self._gist, limit // 2)
        budget = limit - (count_tokens(gist) + 1 if gist else 0)
        return "\n".join(filter(None, [gist, _fit_lines(self._lines, budget, dropped=self._dropped)]))

    @property
    def items(self) -> tuple[StepItem, ...]:
        """Return the items of the last steps in order."""
        return tuple(item for step in self.steps for item in step.items)

    @property
    def tokens(self) -> int:
        """Return an upper estimate of its tokens in a prompt."""
        return _total(self.steps) + count_tokens(self.summary)

    async def add(self, step: Step, *, within_s: float | None = None) -> Step:
        """Add a step, shortened if necessary, summarise older ones above the limit, and return the step as stored.

        A model that takes longer than `within_s` is not waited for.
        """
        if not self.limits.tokens:
            self.steps = (*self.steps, step)
            return step
        step = fit_step(step, self.limits.max_step_tokens)
        steps = (*self.steps, step)
        older = steps[: -self.limits.keep_steps]
        if older and _total(steps) + count_tokens(self.summary) > self.limits.tokens:
            steps = steps[-self.limits.keep_steps :]
            self._gist = await self._summarize(older, within_s) or self._gist
            self._lines += (line for each in older for line in _step_lines(each))
            surplus = max(0, len(self._lines) - _MAX_LINES)
            self._dropped += surplus
            del self._lines[:surplus]
            self.compressed += len(older)
        self.steps = steps
        return step

    async def _summarize(self, older: Sequence[Step], within_s: float | None) -> str:
        """Return the model's summary of the steps; empty if there is no usable one."""
        limit_s = _GIST_TIMEOUT_S if within_s is None else min(_GIST_TIMEOUT_S, within_s)
        self._unsummarized = (*self._unsummarized, *older)
        # Asking for every step would cost more than it saves; the digest has a line of each call in any case.
        if self._chat is None or limit_s <= 0 or _total(self._unsummarized) < self.limits.tokens // 2:
            return ""
        unsummarized, self._unsummarized = self._unsummarized, ()
        lines = [
            json_line({str(item.kind): shorten(item.content, _MAX_ITEM_CHARS)})
            for each in unsummarized
            for item in each.items
        ]
        question = prompt("agent_compress").fill(
            fence=new_delimiter(),
            summary=json_line({"summary so far": self._gist or None}),
            steps="\n".join(lines),
        )
        messages = [{"role": "user", "content": question}]
        try:
            async with asyncio.timeout(limit_s):
                reply = await self._chat.converse(messages, max_tokens=_GIST_TOKENS)
        except (RecollectError, TimeoutError) as error:
            if isinstance(error, BrokenAnswer):
                self.usage.add(error, messages)
            _log.info("working memory is summarised by rules: %s", error or f"no answer in {limit_s:g} s")
            return ""
        self.usage.add(reply, messages)
        text = reply.text.strip()
        return "" if reply.cut_off or len(text) > _GIST_CHARS else text


def _total(steps: Sequence[Step]) -> int:
    return sum(step.tokens for step in steps)


def fit_step(step: Step, limit: int) -> Step:
    """Return the step in at most `limit` tokens: long parts are cut, and calls dropped that still do not fit."""
    if step.tokens <= limit:
        return step
    parts = 2 * max(1, len(step.calls))
    # A quarter for the thought, and equal shares of the rest for calls and observations.
    thought = step.thought
    if count_tokens(thought) > limit // 4:
        # Its beginning and its last sentence.
        end = _truncate(step.decision, limit // 8)
        thought = "\n".join(filter(None, [_truncate(thought, limit // 4 - count_tokens(end) - 1), end]))
    left = limit - replace(step, thought=thought, calls=(), observations=()).tokens
    share = left // parts
    calls = tuple(_cut_call(call, share) for call in step.calls)
    left -= replace(step, thought="", calls=calls, observations=()).tokens
    share = left // max(1, len(step.observations)) - OVERHEAD_TOKENS
    observations = tuple(replace(each, text=_truncate(each.text, share)) for each in step.observations)
    cut = replace(step, thought=thought, calls=calls, observations=observations)
    while cut.tokens > limit and cut.calls:
        # Very many calls: drop the last ones with their observations.
        ids = {call.id for call in cut.calls[:-1]}
        remaining = tuple(each for each in cut.observations if each.call_id in ids)
        cut = replace(cut, calls=cut.calls[:-1], observations=remaining)
    return cut


def _cut_call(call: Call, limit: int) -> Call:
    """Return the call with its arguments cut, or without them."""
    if count_tokens(call.signature) + OVERHEAD_TOKENS <= limit:
        return call
    short = replace(call, arguments={name: _truncate(str(value), 12) for name, value in call.arguments.items()})
    return short if count_tokens(short.signature) + OVERHEAD_TOKENS <= limit else replace(call, arguments={})


def _truncate(text: str, limit: int) -> str:
    if count_tokens(text) <= limit:
        return text
    return truncate_words(text, limit, count=count_tokens) if limit > 0 else ""
