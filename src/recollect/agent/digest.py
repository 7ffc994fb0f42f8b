"""What older steps come to: the gist as a model tells it, if there is one, and by rules what each call gave.

What tools gave and what was decided never depends on a model's summary: a line of each is kept beside it. Where there
is no room for all, results are shortened alike, then decisions go, then results get shorter, then the oldest go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recollect.agent.step import Step
from recollect.prompts.data import shorten
from recollect.read.budget import count_tokens, truncate_words

_MAX_LINES = 200
# How many characters of each result are shown, tried in turn where there is less room; at last without decisions.
_RESULT_CHARS = (400, 240, 160, 100)
_TIGHT_CHARS = (160, 100, 60, 30)


@dataclass(frozen=True, slots=True)
class DigestLine:
    """What a call gave, or what was decided."""

    action: str
    result: str = ""
    is_decision: bool = False

    def render(self, chars: int) -> str:
        """The line with at most so many characters of each part."""
        action = shorten(self.action, max(chars, 60))
        if self.is_decision:
            return f"- decided: {action}"
        return f"- {action} -> {shorten(self.result, chars)}"


@dataclass(frozen=True, slots=True)
class Digest:
    """The gist, the lines, and how many lines had to go."""

    gist: str = ""
    lines: tuple[DigestLine, ...] = ()
    dropped: int = 0

    def with_steps(self, steps: Sequence[Step], gist: str = "") -> Digest:
        """The digest with more steps in it, and a new gist if there is one."""
        lines = [*self.lines, *(line for step in steps for line in _step_lines(step))]
        recent = lines[-_MAX_LINES:]
        return Digest(gist or self.gist, tuple(recent), self.dropped + len(lines) - len(recent))

    def text(self, limit: int) -> str:
        """The digest in at most so many tokens; empty if there is nothing to tell."""
        if not self.gist and not self.lines:
            return ""
        gist = _cut_to_tokens(self.gist, limit // 2) if self.gist else ""
        budget = limit - (count_tokens(gist) + 1 if gist else 0)
        lines = _fit_lines(self.lines, budget, dropped=self.dropped)
        return "\n".join(filter(None, [gist, lines]))


def _step_lines(step: Step) -> list[DigestLine]:
    results = {observation.call_id: observation for observation in step.observations}
    lines = [DigestLine(_flat(step.decision), is_decision=True)] if step.decision and step.calls else []
    for call in step.calls:
        observation = results.get(call.id)
        outcome = (
            "" if observation is None else f"failed: {observation.text}" if observation.failed else observation.text
        )
        lines.append(DigestLine(_flat(call.signature), _flat(outcome)))
    return lines


def _flat(text: str) -> str:
    return shorten(" ".join(text.split()), _RESULT_CHARS[0])


def _fit_lines(lines: Sequence[DigestLine], limit: int, *, dropped: int) -> str:
    for chars in _RESULT_CHARS:
        text = _render_lines(lines, chars, dropped)
        if count_tokens(text) <= limit:
            return text
    results = [line for line in lines if not line.is_decision]
    for chars in _TIGHT_CHARS:
        text = _render_lines(results, chars, dropped)
        if count_tokens(text) <= limit:
            return text
    min_chars = _TIGHT_CHARS[-1]
    # The newest that fit; counted from the end, for each line has its own length.
    budget, first = limit - count_tokens(_render_lines((), min_chars, dropped + len(results))) - 1, len(results)
    while first and (needed := count_tokens(results[first - 1].render(min_chars)) + 1) <= budget:
        budget, first = budget - needed, first - 1
    text = _render_lines(results[first:], min_chars, dropped + first)
    return text if count_tokens(text) <= limit else ""


def _render_lines(lines: Sequence[DigestLine], chars: int, dropped: int) -> str:
    header = [f"- ({dropped} earlier lines)"] if dropped else []
    return "\n".join([*header, *(line.render(chars) for line in lines)])


def _cut_to_tokens(text: str, limit: int) -> str:
    return text if count_tokens(text) <= limit else truncate_words(text, limit, count=count_tokens)
