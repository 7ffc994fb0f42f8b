"""Several people on the user's side of a conversation: each statement is about whoever made it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from recollect.model.learned import Learned
from recollect.model.turn import Role, Turn

_USER = re.compile(r"^User(?=\b)")


def by_speaker(learned: Sequence[Learned], turns: Sequence[Turn]) -> list[Learned]:
    """The statements with the name of whoever made them, where more than one speaks as the user.

    A key is the user's own, so what someone else says of themselves has none.
    """
    names = {turn.name for turn in turns if turn.role is Role.USER}
    if len(names) < 2:
        return list(learned)
    said = {turn.id: turn.name for turn in turns}
    return [_named(each, said.get(each.evidence[0]) if each.evidence else None) for each in learned]


def _named(learned: Learned, name: str | None) -> Learned:
    if not name:
        return learned
    return replace(learned, content=_USER.sub(lambda _: name, learned.content), key=None, value=None)
