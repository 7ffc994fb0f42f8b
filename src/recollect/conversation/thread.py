"""Which session a chat request belongs to, and what in it was not kept yet.

Clients of a chat endpoint send the whole conversation again with every message and rarely name it. So a conversation
is known by its beginning: the name of its session is a digest of how it opens, and what was kept of it is compared
with what is sent. Whatever comes after the part that agrees is new. Where the two differ (a message was edited, an
answer made anew) a branch begins: a session of its own, named by a digest of all that led to it, which holds only
what was said from there on.

What was forgotten or erased is passed over: it agrees with a session that does not hold it any more, and is not new.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from recollect.conversation.resent import answers_to, forgotten_in
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
# How far back the last turns of a session are looked for, where some were forgotten.
_WINDOWS = (2, 32, 1000)


@dataclass(frozen=True, slots=True)
class Spoken:
    """What user or assistant said in one message, and the digest of it and all before it.

    A `forgotten` message is part of the history and matches a tombstone; one that `answers_forgotten` follows it.
    """

    role: str
    text: str
    mark: bytes
    message: Mapping[str, Any]
    forgotten: bool = False
    answers_forgotten: bool = False


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


@dataclass(frozen=True, slots=True)
class SessionLog:
    """The turns of a session: how many were ever said, and the digest and the id of each that is there, in order."""

    turn_count: int = 0
    turns: tuple[tuple[bytes, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Agreement:
    """How many turns of a session agree with how many messages of a request, and the user's last turn in them."""

    turns: int
    messages: int
    turn_id: str = ""


class Threads:
    """Finds the session of a request; what it saw of the last ones is at hand."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._held: OrderedDict[Scope, SessionLog] = OrderedDict()

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
        said = await self._recognised(scope.user, spoken(messages))
        if not said:
            return Placed(scope=scope)
        left = _without_forgotten(said)
        if scope.session:
            return await self._continued(scope, left)
        placed = await self._by_beginning(scope, said)
        if placed is None and len(left) < len(said):
            # All of the session was erased: what was said since begins with what is left.
            placed = await self._by_beginning(scope, left)
        if placed is None:
            placed = await self._by_end(scope, left)
        if placed is not None:
            return placed
        return Placed(scope=_branch(scope, left[0].mark), new=_storable(left), last=left[-1].mark, whole=True)

    async def _recognised(self, user: str, said: tuple[Spoken, ...]) -> tuple[Spoken, ...]:
        """Return the messages with those marked that were forgotten, and the answers to them."""
        forgotten = await forgotten_in(user, [(each.role, each.text) for each in said], self._ledger)
        if not forgotten:
            return said
        answers = answers_to(forgotten, [each.role for each in said])
        return tuple(
            replace(each, forgotten=at in forgotten, answers_forgotten=at in answers) for at, each in enumerate(said)
        )

    def note(self, placed: Placed, marks: Sequence[bytes], turns: Sequence[Turn]) -> None:
        """These were kept where they belong; turns and digests are of the same messages."""
        scope = placed.scope
        held = self._held.get(scope, SessionLog())
        first = turns[0].position if turns else 0
        if not placed.whole or len(marks) != len(turns) or first != held.turn_count + 1:
            # Someone else wrote to it as well: it is read again when it is needed.
            self._held.pop(scope, None)
            return
        added = tuple((mark, turn.id) for mark, turn in zip(marks, turns, strict=True))
        self._hold(scope, SessionLog(held.turn_count + len(added), held.turns + added))

    def forget(self, user: str) -> None:
        """Let go of what is at hand of a user of whom something was erased."""
        for scope in [each for each in self._held if each.user == user]:
            del self._held[scope]

    async def _by_beginning(self, scope: Scope, said: Sequence[Spoken]) -> Placed | None:
        """By following what was kept from its first message on, into branches where it differs; None if unknown."""
        at = 0
        for _ in range(_MOST_BRANCHES):
            begun, session = at, _branch(scope, said[at].mark)
            log = await self._log(session, said[at:])
            if not log.turn_count and not at:
                return None
            agreed = _agreement(log, said[at:])
            at += agreed.messages
            is_whole = agreed.turns == len(log.turns)
            if at < len(said) and (not is_whole or log.turn_count > len(log.turns)):
                branch = await self._branch_at(scope, said, at, after=begun)
                if branch is not None:
                    at = branch
                    continue
            if at == begun and not is_whole:
                # What the session began with was forgotten, and is said anew.
                return Placed(scope=session, new=_storable(said[at:]), last=said[-1].mark) if at else None
            if is_whole:
                found = Placed(scope=session, new=_storable(said[at:]), last=said[-1].mark, whole=True)
                return found if found.new else replace(found, turn_id=agreed.turn_id)
            if at == len(said):
                found = Placed(scope=session, last=said[-1].mark, next=log.turns[agreed.turns][0], whole=True)
                return replace(found, turn_id=agreed.turn_id)
        return None

    async def _branch_at(self, scope: Scope, said: Sequence[Spoken], at: int, *, after: int) -> int | None:
        """Return where a known branch begins: at the first message that differs, or a forgotten one before it."""
        start = at
        while start - 1 > after and said[start - 1].forgotten:
            start -= 1
        for each in range(start, at + 1):
            if each > after and (await self._ledger.conversation(_branch(scope, said[each].mark))).turn_count:
                return each
        return None

    async def _by_end(self, scope: Scope, said: Sequence[Spoken]) -> Placed | None:
        """By what was said last in one of the latest sessions, for requests that hold only the end of theirs."""
        if all(each.role == Role.USER for each in said):
            return None
        for each in await self._ledger.conversations(scope.user, order="newest", limit=_RECENT):
            if each.scope.project == scope.project and each.turn_count > 1:
                tail = await self._last_turns(each.scope, each.turn_count)
                at = _end_in(tail, said)
                if at is not None:
                    return _after(each.scope, tail, said, at)
        return None

    async def _continued(self, scope: Scope, said: Sequence[Spoken]) -> Placed:
        """In a session that has a name: what comes after its last words, or else what the user says last."""
        count = (await self._ledger.conversation(scope)).turn_count
        tail = await self._last_turns(scope, count)
        last = said[-1].mark
        if not tail:
            return Placed(scope=scope, new=_storable(said), last=last)
        at = _end_in(tail, said)
        if at is None and len(tail) > 1 and tail[1].role is Role.ASSISTANT and _same(tail[0], said[-1]):
            # The last question once more: its answer may be another one now.
            answer = _mark(last, Role.ASSISTANT, tail[1].content.strip())
            return Placed(scope=scope, last=last, next=answer, turn_id=tail[0].id)
        if at is None:
            return Placed(scope=scope, new=tuple(said[_after_last_answer(said) :]), last=last)
        return _after(scope, tail, said, at)

    async def _last_turns(self, scope: Scope, count: int) -> list[Turn]:
        """Return the last two turns that are there, of as many as were ever said in a session."""
        tail: list[Turn] = []
        for window in _WINDOWS:
            after = max(count - window, 0)
            tail = (await self._ledger.turns(scope, after=after, limit=window))[-2:]
            if len(tail) == 2 or not after:
                break
        return tail

    async def _log(self, scope: Scope, said: Sequence[Spoken]) -> SessionLog:
        """The digests of all that is there of a session, as far as they agree with what is said; then others."""
        held = self._held.get(scope)
        count = (await self._ledger.conversation(scope)).turn_count
        if held is not None and count == held.turn_count:
            self._held.move_to_end(scope)
            return held
        if not count:
            # Most chats begin something new, and looking for turns takes another thread.
            return SessionLog()
        turns: list[Turn] = []
        while page := await self._ledger.turns(scope, after=turns[-1].position if turns else 0, limit=_PAGE):
            turns += page
        marks, mark = [], b""
        pairs = list(_aligned(turns, said))
        for turn, each in pairs:
            mark = each.mark
            marks.append((mark, turn.id))
        for turn in turns[len(pairs) :]:
            mark = _mark(mark, turn.role, turn.content.strip())
            marks.append((mark, turn.id))
        log = SessionLog(count, tuple(marks))
        if len(turns) == count or len(pairs) == len(turns):
            # Digests of what is not there cannot be told from the turns.
            self._hold(scope, log)
        return log

    def _hold(self, scope: Scope, log: SessionLog) -> None:
        self._held[scope] = log
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


def _without_forgotten(said: Sequence[Spoken]) -> tuple[Spoken, ...]:
    """Return the messages that were not forgotten, with the digests that they have without the others."""
    if not any(each.forgotten for each in said):
        return tuple(said)
    left: list[Spoken] = []
    mark = b""
    for each in said:
        if not each.forgotten:
            mark = _mark(mark, each.role, each.text)
            left.append(replace(each, mark=mark))
    return tuple(left)


def _storable(said: Iterable[Spoken]) -> tuple[Spoken, ...]:
    """Return the messages that are new where nothing of them is stored: not forgotten, nor an answer to such."""
    return tuple(each for each in said if not each.forgotten and not each.answers_forgotten)


def _agreement(log: SessionLog, said: Sequence[Spoken]) -> Agreement:
    """Return how far a session and messages agree; forgotten messages that it does not hold are passed over."""
    turns = at = 0
    turn_id = ""
    while at < len(said):
        if turns < len(log.turns) and log.turns[turns][0] == said[at].mark:
            turn_id = log.turns[turns][1] if said[at].role == Role.USER else turn_id
            turns += 1
        elif not said[at].forgotten:
            break
        at += 1
    return Agreement(turns, at, turn_id)


def _aligned(turns: Sequence[Turn], said: Sequence[Spoken]) -> Iterable[tuple[Turn, Spoken]]:
    """Yield turns with the messages they are of, up to the first that differ; forgotten messages are passed over."""
    left = iter(turns)
    turn = next(left, None)
    for each in said:
        if turn is not None and _same(turn, each):
            yield turn, each
            turn = next(left, None)
        elif not each.forgotten:
            return


def _end_in(tail: Sequence[Turn], said: Sequence[Spoken]) -> int | None:
    """How much of what is said comes up to the end of a session: its last turn, after the one before it."""
    for at in range(len(said) - 1, -1, -1):
        before = len(tail) < 2 or at == 0 or _same(tail[-2], said[at - 1])
        if tail and before and _same(tail[-1], said[at]):
            return at + 1
    return None


def _after(scope: Scope, tail: Sequence[Turn], said: Sequence[Spoken], at: int) -> Placed:
    """Where the words go on that come up to the end of a session, or say again what stands there."""
    new = _storable(said[at:])
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
