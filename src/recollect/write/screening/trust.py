"""Whose words they are: facts come from the user, an assistant gives context, anyone else nothing."""

from __future__ import annotations

from collections.abc import Sequence

from recollect.model.extracted import ExtractedFact
from recollect.model.turn import Role, Turn
from recollect.write.screening.imperatives import find_instruction
from recollect.write.screening.others import author_text


def user_text(turns: Sequence[Turn]) -> str:
    """What the user said in the turns in words of their own: without what they quote, paste or play."""
    return "\n".join(filter(None, (author_text(turn.content) for turn in turns if turn.role is Role.USER)))


def is_user_statement(fact: ExtractedFact, turns: Sequence[Turn]) -> bool:
    """Whether it rests on the user's own words alone.

    All its evidence must be turns of the user's among these. If it instructs, so must their own words: what they
    quote may not.
    """
    by_id = {turn.id: turn for turn in turns}
    evidence = [by_id.get(each) for each in fact.evidence]
    users = [turn for turn in evidence if turn is not None and turn.role is Role.USER]
    if not users or len(users) < len(evidence):
        return False
    return not _instructs(fact.content, fact.value or "") or _instructs(user_text(users))


def _instructs(*texts: str) -> bool:
    return any(find_instruction(text) for text in texts)
