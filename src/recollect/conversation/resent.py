"""Recognise a resent history: messages that match a forgotten or erased turn are neither stored nor learned from.

Clients send what was said before along with what is said now. Only what was said before can be left out: whoever says
something anew means it, whatever was forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence

from recollect.ledger.tombstones import TombstoneStore
from recollect.model.invisible import normalise_invisible
from recollect.model.text import repair_text
from recollect.model.turn import Role, Turn
from recollect.write.screening.redact import redact


def new_part_start(roles: Sequence[str]) -> int:
    """Return where the new part of a request begins; what stands before it is history.

    It begins after the last answer before the user's last message. A request without any answer comes from a client
    that resends the user's messages only, so that its last one is new.
    """
    last = next((at for at in range(len(roles) - 1, -1, -1) if roles[at] == Role.USER), None)
    if last is None:
        return 0
    if Role.ASSISTANT not in roles:
        return last
    return next((at + 1 for at in range(last - 1, -1, -1) if roles[at] == Role.ASSISTANT), 0)


async def find_forgotten(user: str, messages: Sequence[tuple[str, str]], ledger: TombstoneStore) -> frozenset[int]:
    """Return the numbers of the messages, as (role, text), that are history and match a tombstone."""
    history = messages[: new_part_start([role for role, _ in messages])]
    if not history or not await ledger.has_tombstones(user):
        return frozenset()
    spellings = [((role, text), (role, _as_stored(text))) for role, text in history]
    matches = await ledger.tombstoned(user, {each for pair in spellings for each in pair})
    return frozenset(at for at, pair in enumerate(spellings) if not matches.isdisjoint(pair))


def answers_to_forgotten(forgotten: frozenset[int], roles: Sequence[str]) -> frozenset[int]:
    """Return the numbers of the history's answers that directly follow a forgotten message: they may repeat it."""
    answers: set[int] = set()
    for at in range(1, new_part_start(roles)):
        if roles[at] == Role.ASSISTANT and (at - 1 in forgotten or at - 1 in answers):
            answers.add(at)
    return frozenset(answers)


async def drop_forgotten_turns(user: str, turns: Sequence[Turn], ledger: TombstoneStore) -> list[Turn]:
    """Return the turns of a request without forgotten history and the answers to it."""
    roles = [str(turn.role) for turn in turns]
    forgotten = await find_forgotten(user, [(str(turn.role), turn.content) for turn in turns], ledger)
    dropped = forgotten | answers_to_forgotten(forgotten, roles)
    return [turn for at, turn in enumerate(turns) if at not in dropped]


def _as_stored(text: str) -> str:
    """Return the text as the log has it when it is stored without secrets."""
    return redact(normalise_invisible(repair_text(text))).text
