"""What older steps come to: the gist as a model tells it, if there is one, and by rules what each call gave.

What tools gave and what was decided never depends on a model's summary: a line of each is kept beside it. Where there
is no room for all, results are shortened alike, then decisions go, then results get shorter, then the oldest go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recollect.agent.step import Step
from recollect.prompts.data import shortened
from recollect.read.budget import count_tokens, cut_words

_MOST_LINES = 200
# How many characters of each result are shown, tried in turn where there is less room; at last without decisions.
_ROOM_CHARS = (400, 240, 160, 100)
_TIGHT_CHARS = (160, 100, 60, 30)


@dataclass(frozen=True, slots=True)
class Line:
    """What a call gave, or what was decided."""

    did: str
    result: str = ""
    is_decision: bool = False

    def shown(self, chars: int) -> str:
        """The line with at most so many characters of each part."""
        did = shortened(self.did, max(chars, 60))
        if self.is_decision:
            return f"- decided: {did}"
        return f"- {did} -> {shortened(self.result, chars)}"


@dataclass(frozen=True, slots=True)
class Digest:
    """The gist, the lines, and how many lines had to go."""

    gist: str = ""
    lines: tuple[Line, ...] = ()
    gone: int = 0

    def with_steps(self, steps: Sequence[Step], gist: str = "") -> Digest:
        """The digest with more steps in it, and a new gist if there is one."""
        lines = [*self.lines, *(line for step in steps for line in _lines(step))]
        kept = lines[-_MOST_LINES:]
        return Digest(gist or self.gist, tuple(kept), self.gone + len(lines) - len(kept))

    def text(self, limit: int) -> str:
        """The digest in at most so many tokens; empty if there is nothing to tell."""
        if not self.gist and not self.lines:
            return ""
        gist = _cut(self.gist, limit // 2) if self.gist else ""
        room = limit - (count_tokens(gist) + 1 if gist else 0)
        lines = _fitting(self.lines, room, gone=self.gone)
        return "\n".join(filter(None, [gist, lines]))


def _lines(step: Step) -> list[Line]:
    results = {seen.call_id: seen for seen in step.observed}
    lines = [Line(_flat(step.decision), is_decision=True)] if step.decision and step.calls else []
    for call in step.calls:
        seen = results.get(call.id)
        told = "" if seen is None else f"failed: {seen.text}" if seen.failed else seen.text
        lines.append(Line(_flat(call.plain), _flat(told)))
    return lines


def _flat(text: str) -> str:
    return shortened(" ".join(text.split()), _ROOM_CHARS[0])


def _fitting(lines: Sequence[Line], limit: int, *, gone: int) -> str:
    for chars in _ROOM_CHARS:
        text = _told(lines, chars, gone)
        if count_tokens(text) <= limit:
            return text
    results = [line for line in lines if not line.is_decision]
    for chars in _TIGHT_CHARS:
        text = _told(results, chars, gone)
        if count_tokens(text) <= limit:
            return text
    least = _TIGHT_CHARS[-1]
    # The newest that fit; counted from the end, for each line has its own length.
    room, first = limit - count_tokens(_told((), least, gone + len(results))) - 1, len(results)
    while first and (needed := count_tokens(results[first - 1].shown(least)) + 1) <= room:
        room, first = room - needed, first - 1
    text = _told(results[first:], least, gone + first)
    return text if count_tokens(text) <= limit else ""


def _told(lines: Sequence[Line], chars: int, gone: int) -> str:
    before = [f"- ({gone} earlier lines)"] if gone else []
    return "\n".join([*before, *(line.shown(chars) for line in lines)])


def _cut(text: str, limit: int) -> str:
    return text if count_tokens(text) <= limit else cut_words(text, limit, tokens_of=count_tokens)
