"""Several people on the user's side of a conversation: each statement is about whoever made it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from recollect.model.learned import Learned
from recollect.model.turn import Role, Turn
from recollect.write.rules.pack import pack_for

_USER = re.compile(r"^User(?=\b)|\bUser(?='s\b)")
_WORD = re.compile(r"[^\W\d_]+")
# How what one has done is told of another; the verbs of the past are the same.
_OF_OTHERS = {"am": "is", "'m": "is", "have": "has", "'ve": "has"}
_DID = re.compile(r"^I ?('m|'ve|am|have|was|had|got|went|bought|made|took|saw|met|ran|won|lost|read|\w{2,}ed)\b")
_MINE = re.compile(r"^(?:my|our)\s+", re.IGNORECASE)


def by_speaker(learned: Sequence[Learned], turns: Sequence[Turn]) -> list[Learned]:
    """The statements with the name of whoever made them, where more than one speaks as the user.

    A key is the user's own, so what someone else says of themselves has none, and changes nothing that is known by
    its key. Where one person speaks, with a name or without, that is the user.
    """
    names = {turn.name for turn in turns if turn.role is Role.USER}
    if len(names) < 2:
        return list(learned)
    said = {turn.id: turn.name for turn in turns}
    named = [(each, said.get(each.evidence[0]) if each.evidence else None) for each in learned]
    return [_named(each, name) for each, name in named if not (name and each.only_known)]


def _named(learned: Learned, name: str | None) -> Learned:
    if not name:
        return learned
    return replace(learned, content=_told_of(name, learned.content), key=None, value=None)


def _told_of(name: str, content: str) -> str:
    """The statement as it is told of someone: "My sister plays the cello" is Dan's sister.

    Where that takes more than its first words, it is told as what they said.
    """
    told = _USER.sub(lambda _: name, content)
    if told != content:
        return told
    own = pack_for(content).words["own"]
    mine = _MINE.sub("", content)
    if mine != content and own.isdisjoint(_words(mine)):
        return f"{name}'s {mine}"
    if own.isdisjoint(_words(content)):
        return content
    done = _DID.match(content)
    if done is not None and own.isdisjoint(_words(content[done.end() :])):
        return f"{name} {_OF_OTHERS.get(done[1].lower(), done[1])}{content[done.end() :]}"
    return f"{name}: {content}"


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]
