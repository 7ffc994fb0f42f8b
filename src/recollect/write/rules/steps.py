"""Find procedures: how something is done, with all its steps, as the user told them."""

from __future__ import annotations

from collections.abc import Sequence

from recollect.write.rules.pack import Pack
from recollect.write.rules.sentences import Sentence

_MOST_CHARS = 1_500


def procedures(said: Sequence[Sentence], pack: Pack) -> list[tuple[str, range]]:
    """The procedures told, each with the places of the sentences it takes."""
    found: list[tuple[str, range]] = []
    place = 0
    while place < len(said):
        end = _end_of_procedure(said, place, pack)
        if end > place:
            found.append((_written(said[place:end]), range(place, end)))
        place = max(end, place + 1)
    return [(text, places) for text, places in found if len(text) <= _MOST_CHARS]


def _end_of_procedure(said: Sequence[Sentence], place: int, pack: Pack) -> int:
    """The place after the last step of what begins here; the place itself if no procedure does."""
    first = said[place]
    if pack.cues["step_start"].isdisjoint(first.words):
        return place
    if first.asks or first.item or not pack.patterns["step_start"].match(_led_in(first.text, pack)):
        return place
    if pack.patterns["not_steps"].search(first.text):
        return place
    end, steps = place + 1, len(pack.patterns["step_mark"].findall(first.text))
    opens_list = first.text.rstrip().endswith(":")
    while end < len(said) and not said[end].asks:
        is_step = pack.patterns["step_next"].match(said[end].text) or (said[end].item and (opens_list or steps))
        if not (is_step or (opens_list and steps == 0 and end == place + 1)):
            break
        steps += 2 if said[end].item else 1
        end += 1
    # One "then" is enough after "to deploy": it takes two steps to stand between.
    return end if steps >= 1 else place


def _led_in(text: str, pack: Pack) -> str:
    opening = pack.patterns["opens"].match(text)
    return text[opening.end() :] if opening and not opening["corrects"] else text


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
