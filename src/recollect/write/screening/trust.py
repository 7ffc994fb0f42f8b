"""Whose words they are: facts come from the user, an assistant gives context, anyone else nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence

from recollect.model.learned import Learned
from recollect.model.turn import Role, Turn
from recollect.write.screening.imperatives import imperative_in

# What a user quotes or pastes: lines marked as a quotation, blocks between fences.
_QUOTED_LINE = re.compile(r"^[ \t]{0,3}>.*$", re.MULTILINE)
_FENCE = re.compile(r"^[ \t]{0,3}(?:`{3,}|~{3,})", re.MULTILINE)


def words_of_user(turns: Sequence[Turn]) -> str:
    """What the user said in the turns in words of their own: without quoted lines and fenced blocks."""
    return "\n".join(filter(None, (_own_words(turn.content) for turn in turns if turn.role is Role.USER)))


def said_by_user(learned: Learned, turns: Sequence[Turn]) -> bool:
    """Whether it rests on the user's own words alone.

    All its evidence must be turns of the user's among these. If it instructs, so must their own words: what they
    quote may not.
    """
    by_id = {turn.id: turn for turn in turns}
    evidence = [by_id.get(each) for each in learned.evidence]
    users = [turn for turn in evidence if turn is not None and turn.role is Role.USER]
    if not users or len(users) < len(evidence):
        return False
    return not _instructs(learned.content, learned.value or "") or _instructs(words_of_user(users))


def _instructs(*texts: str) -> bool:
    return any(imperative_in(text) for text in texts)


def _own_words(text: str) -> str:
    fences = [match.start() for match in _FENCE.finditer(text)]
    parts, last = [], 0
    # Fences come in pairs; one that nothing closes runs to the end.
    for at in range(0, len(fences), 2):
        parts.append(text[last : fences[at]])
        last = _line_end(text, fences[at + 1]) if at + 1 < len(fences) else len(text)
    parts.append(text[last:])
    return _QUOTED_LINE.sub("", "".join(parts)).strip()


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end
