"""Find procedures: how something is done, with all its steps, as the user told them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from recollect.write.rules.match import slug
from recollect.write.rules.pack import Pack
from recollect.write.sentences import Sentence

_MOST_CHARS = 1_500
_MOST_KEY_CHARS = 80
_NUMBERED = re.compile(r"(?<![\w.])(\d)[.)] ")
_LISTED = re.compile(r"[,;]\s*(?:and\s+)?|\s+and\s+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Procedure:
    """How something is done: all of it, what it is for, the places of its sentences, and if it `corrects` another."""

    text: str
    key: str | None
    places: range
    corrects: bool


def procedures(said: Sequence[Sentence], pack: Pack) -> list[Procedure]:
    """The procedures told."""
    found: list[Procedure] = []
    place = 0
    while place < len(said):
        end = _end_of_procedure(said, place, pack)
        if end > place:
            opening, corrects = _led_in(said[place].text, pack)
            first = replace(said[place], text=f"{opening[:1].upper()}{opening[1:]}") if corrects else said[place]
            text = _written([first, *said[place + 1 : end]])
            found.append(Procedure(text, _key(opening, pack), range(place, end), corrects))
        place = max(end, place + 1)
    return [each for each in found if len(each.text) <= _MOST_CHARS]


def _key(text: str, pack: Pack) -> str | None:
    """What it is the way to do: who tells it anew tells how it is done now."""
    found = pack.patterns["step_start"].match(text)
    parts = found.groupdict() if found else {}
    if what := parts.get("what"):
        # "The steps are as follows" says nothing of what they lead to.
        return slug(what, pack)[:_MOST_KEY_CHARS] if pack.patterns["named_way"].match(what) else None
    goal = next(filter(None, (parts.get(name) for name in ("goal", "here", "way", "how"))), "")
    # "To do this" may be to do anything.
    is_clear = pack.words["vague"].isdisjoint(goal.lower().split()) and slug(goal, pack)
    return f"how_to_{slug(goal, pack)}"[:_MOST_KEY_CHARS] if is_clear else None


def _end_of_procedure(said: Sequence[Sentence], place: int, pack: Pack) -> int:
    """The place after the last step of what begins here; the place itself if no procedure does."""
    first = said[place]
    if pack.cues["step_start"].isdisjoint(first.words):
        return place
    if first.asks or first.item:
        return place
    opening = pack.patterns["step_start"].match(text := _led_in(first.text, pack)[0])
    if opening is None:
        return place
    if pack.patterns["not_steps"].search(first.text):
        return place
    end, steps = place + 1, _steps_within(text, opening.end(), pack)
    # "How we work:" may be the title of anything.
    opens_list = first.text.rstrip().endswith(":")
    is_title = opening.groupdict().get("how") is not None
    while end < len(said) and not said[end].asks:
        is_step = pack.patterns["step_next"].match(said[end].text) or (said[end].item and (opens_list or steps))
        if not (is_step or (opens_list and not is_title and steps == 0 and end == place + 1)):
            break
        steps += 2 if said[end].item else 1
        end += 1
    # One "then" is enough after "to deploy": it takes two steps to stand between.
    return end if steps >= 1 else place


def _steps_within(text: str, start: int, pack: Pack) -> int:
    """How many steps one sentence tells: by words like "then", by numbers, or by a list of things to do."""
    steps = len(pack.patterns["step_mark"].findall(text))
    numbers = [int(number) for number in _NUMBERED.findall(text)]
    if len(numbers) > 1 and numbers == list(range(1, len(numbers) + 1)):
        steps += len(numbers)
    items = [item for item in _LISTED.split(text[start:].strip(" .!")) if item]
    if len(items) > 1 and all(pack.patterns["step_verb"].match(item) for item in items):
        steps += len(items)
    return steps


def _led_in(text: str, pack: Pack) -> tuple[str, bool]:
    """The text without a word that leads in, and whether that word corrects."""
    opening = pack.patterns["opens"].match(text)
    return (text[opening.end() :], opening["corrects"] is not None) if opening else (text, False)


def _written(said: Sequence[Sentence]) -> str:
    lines: list[str] = []
    for sentence in said:
        if sentence.item:
            lines.append(f"{sentence.item} {sentence.text}")
        elif lines and lines[-1][:1].isdigit():
            lines.append(sentence.text)
        elif lines:
            lines[-1] += f" {sentence.text}"
        else:
            lines.append(sentence.text)
    return "\n".join(lines).strip()
