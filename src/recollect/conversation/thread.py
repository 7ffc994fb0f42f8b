"""Which session a chat request belongs to, and what in it was not kept yet.

Clients of a chat endpoint send the whole conversation again with every message and rarely name it. So a conversation
is known by its beginning: the name of its session is a digest of how it opens, and what was kept of it is compared
with what is sent. Whatever comes after the part that agrees is new. Where the two differ (a message was edited, an
answer made anew) a branch begins: a session of its own, named by a digest of all that led to it, which holds only
what was said from there on.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import takewhile
from typing import Any

from recollect.ledger.protocol import Ledger
from recollect.model.message import role_of, text_of
from recollect.model.scope import Scope
from recollect.model.turn import Role, Turn
from recollect.read.known_again import strip_recalled
from recollect.write.screening.redact import redact

_SESSION_PREFIX = "chat-"
_DIGEST_BYTES = 12
# A client that sends only the end of a long conversation: its session is looked for among the last ones.
_RECENT = 8
_PAGE = 500
_MOST_BRANCHES = 64
_HELD = 4096
_NOT_WORDS = re.compile(r"[\W_]+")
_REDACTED = "[redacted"
_SPEAKERS = frozenset(map(str, Role))


@dataclass(frozen=True, slots=True)
class Spoken:
    """What user or assistant said in one message, and the digest of it and all before it."""

    role: str
    text: str
    mark: bytes
    message: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where a request goes on: its session, what in it is new, and what is said there already after it.

    `last` is the digest of the whole request, to which an answer is added. `whole` says that the session holds all
    that the request does, from its first message on. `turn_id` is that of the last user turn if it is kept already.
    """

    scope: Scope
    new: tuple[Spoken, ...] = ()
    last: bytes = b""
    next: bytes | None = None
    whole: bool = False
    turn_id: str = ""

    def answered(self, text: str) -> Placed | None:
        """Where the answer belongs; None if it stands there already. One made anew begins a branch."""
        mark = _mark(self.last, Role.ASSISTANT, text)
        if self.next is None:
            return replace(self, last=mark)
        return None if mark == self.next else replace(self, scope=_branch(self.scope, mark), last=mark, next=None)


def spoken(messages: Sequence[object]) -> tuple[Spoken, ...]:
    """What user and assistant say in text; prompts, tool calls and what recall put there are no part of it."""
    found: list[Spoken] = []
    mark = b""
    for message in messages:
        role = role_of(message)
        if role not in _SPEAKERS or not isinstance(message, Mapping):
            continue
        text = strip_recalled(text_of(message.get("content"))).strip()
        if text:
            mark = _mark(mark, role, text)
            found.append(Spoken(role, text, mark, message))
    return tuple(found)


class Threads:
    """Finds the session of a request; what it saw of the last ones is at hand."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        # The digests of what was kept, in its order, and the ids of the turns.
        self._held: OrderedDict[Scope, list[tuple[bytes, str]]] = OrderedDict()

    @staticmethod
    def guess(scope: Scope, messages: Sequence[object]) -> Placed:
        """Where the messages most likely go on, while nobody can look: what the user says last counts as new."""
        said = spoken(messages)
        if not said:
            return Placed(scope=scope)
        session = scope if scope.session else _branch(scope, said[0].mark)
        return Placed(scope=session, new=said[_after_last_answer(said) :], last=said[-1].mark)

    async def place(self, scope: Scope, messages: Sequence[object]) -> Placed:
        """Where the messages go on; a scope with a session stays in it."""
        said = spoken(messages)
        if not said:
            return Placed(scope=scope)
        if scope.session:
            return await self._continued(scope, said)
        placed = await self._by_beginning(scope, said)
        if placed is None:
            placed = await self._by_end(scope, said)
        return placed or Placed(scope=_branch(scope, said[0].mark), new=said, last=said[-1].mark, whole=True)

    def note(self, placed: Placed, marks: Sequence[bytes], turns: Sequence[Turn]) -> None:
        """These were kept where they belong; turns and digests are of the same messages."""
        scope = placed.scope
        held = self._held.get(scope) if placed.whole else None
        first = turns[0].position if turns else 0
        if not placed.whole or len(marks) != len(turns) or first != (len(held) if held else 0) + 1:
            # Someone else wrote to it as well: it is read again when it is needed.
            self._held.pop(scope, None)
            return
        self._hold(scope, [*(held or ()), *((mark, turn.id) for mark, turn in zip(marks, turns, strict=True))])

    def forget(self, user: str) -> None:
        """Let go of what is at hand of a user of whom something was erased."""
        for scope in [each for each in self._held if each.user == user]:
            del self._held[scope]

    async def _by_beginning(self, scope: Scope, said: Sequence[Spoken]) -> Placed | None:
        """By following what was kept from its first message on, into branches where it differs; None if unknown."""
        at = 0
        for _ in range(_MOST_BRANCHES):
            session = _branch(scope, said[at].mark)
            kept = await self._kept(session, said[at:])
            if not kept and not at:
                return None
            agreed = _agreeing(kept, said[at:])
            turn_id = _last_of_user(kept[:agreed], said[at : at + agreed])
            at += agreed
            if agreed == len(kept):
                found = Placed(scope=session, new=tuple(said[at:]), last=said[-1].mark, whole=True)
                return found if found.new else replace(found, turn_id=turn_id)
            if at == len(said):
                return Placed(scope=session, last=said[-1].mark, next=kept[agreed][0], whole=True, turn_id=turn_id)
        return None

    async def _by_end(self, scope: Scope, said: Sequence[Spoken]) -> Placed | None:
        """By what was said last in one of the latest sessions, for requests that hold only the end of theirs."""
        if all(each.role == Role.USER for each in said):
            return None
        for each in await self._ledger.conversations(scope.user, order="newest", limit=_RECENT):
            if each.scope.project == scope.project and each.turn_count > 1:
                tail = await self._ledger.turns(each.scope, after=each.turn_count - 2, limit=2)
                at = _end_in(tail, said)
                if at is not None:
                    return _after(each.scope, tail, said, at)
        return None

    async def _continued(self, scope: Scope, said: Sequence[Spoken]) -> Placed:
        """In a session that has a name: what comes after its last words, or else what the user says last."""
        count = (await self._ledger.conversation(scope)).turn_count
        tail = await self._ledger.turns(scope, after=max(count - 2, 0), limit=2)
        last = said[-1].mark
        if not tail:
            return Placed(scope=scope, new=tuple(said), last=last)
        at = _end_in(tail, said)
        if at is None and len(tail) > 1 and tail[1].role is Role.ASSISTANT and _same(tail[0], said[-1]):
            # The last question once more: its answer may be another one now.
            answer = _mark(last, Role.ASSISTANT, tail[1].content.strip())
            return Placed(scope=scope, last=last, next=answer, turn_id=tail[0].id)
        if at is None:
            return Placed(scope=scope, new=tuple(said[_after_last_answer(said) :]), last=last)
        return _after(scope, tail, said, at)

    async def _kept(self, scope: Scope, said: Sequence[Spoken]) -> list[tuple[bytes, str]]:
        """The digests of all that was kept in a session, as far as they agree with what is said; then others."""
        held = self._held.get(scope)
        count = (await self._ledger.conversation(scope)).turn_count
        if held is not None and count == len(held):
            self._held.move_to_end(scope)
            return held
        if not count:
            # Most chats begin something new, and looking for turns takes another thread.
            return []
        turns: list[Turn] = []
        while page := await self._ledger.turns(scope, after=turns[-1].position if turns else 0, limit=_PAGE):
            turns += page
        agreed = len(list(takewhile(lambda pair: _same(*pair), zip(turns, said, strict=False))))
        marks = [each.mark for each in said[:agreed]]
        for turn in turns[agreed:]:
            marks.append(_mark(marks[-1] if marks else b"", turn.role, turn.content.strip()))
        kept = [(mark, turn.id) for mark, turn in zip(marks, turns, strict=True)]
        if kept:
            self._hold(scope, kept)
        return kept

    def _hold(self, scope: Scope, kept: list[tuple[bytes, str]]) -> None:
        self._held[scope] = kept
        self._held.move_to_end(scope)
        while len(self._held) > _HELD:
            self._held.popitem(last=False)


def _mark(before: bytes, role: str, text: str) -> bytes:
    words = " ".join(text.split())
    return blake2b(before + f"{role}\0{words}".encode(errors="replace"), digest_size=_DIGEST_BYTES).digest()


def _branch(scope: Scope, mark: bytes) -> Scope:
    """The session that begins with what the digest is of; nobody else's beginning gives the same name."""
    named = blake2b(f"{scope.user}\0{scope.project}\0".encode() + mark, digest_size=_DIGEST_BYTES)
    return replace(scope, session=_SESSION_PREFIX + named.hexdigest())


def _agreeing(kept: Sequence[tuple[bytes, str]], said: Sequence[Spoken]) -> int:
    return len(list(takewhile(lambda pair: pair[0][0] == pair[1].mark, zip(kept, said, strict=False))))


def _last_of_user(kept: Sequence[tuple[bytes, str]], said: Sequence[Spoken]) -> str:
    found = (id for (_, id), each in zip(reversed(kept), reversed(said), strict=True) if each.role == Role.USER)
    return next(found, "")


def _end_in(tail: Sequence[Turn], said: Sequence[Spoken]) -> int | None:
    """How much of what is said comes up to the end of a session: its last turn, after the one before it."""
    for at in range(len(said) - 1, -1, -1):
        before = len(tail) < 2 or at == 0 or _same(tail[-2], said[at - 1])
        if tail and before and _same(tail[-1], said[at]):
            return at + 1
    return None


def _after(scope: Scope, tail: Sequence[Turn], said: Sequence[Spoken], at: int) -> Placed:
    """Where the words go on that come up to the end of a session, or say again what stands there."""
    new = tuple(said[at:])
    of_user = next((turn.id for turn in reversed(tail) if turn.role is Role.USER), "")
    return Placed(scope=scope, new=new, last=said[-1].mark, turn_id="" if new else of_user)


def _after_last_answer(said: Sequence[Spoken]) -> int:
    return next((at + 1 for at in range(len(said) - 1, -1, -1) if said[at].role == Role.ASSISTANT), 0)


def _same(turn: Turn, said: Spoken) -> bool:
    """Whether a turn is what was kept of a message: secrets and characters that cannot be seen are not kept."""
    if turn.role != said.role:
        return False
    if turn.content == said.text:
        return True
    text = redact(said.text).text if _REDACTED in turn.content else said.text
    words = _NOT_WORDS.sub("", text)
    return bool(words) and _NOT_WORDS.sub("", turn.content) == words
