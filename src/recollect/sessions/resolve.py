"""Find the session that a request continues, and which of its messages are new.

Clients resend the history with every request. History that matches a forgotten or erased turn is neither stored nor
learned from; a new message always is, whatever was forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from recollect.aio.slices import TimeSlice
from recollect.frozen_dataclass import frozen_dataclass
from recollect.lazy_pattern import lazy_pattern
from recollect.ledger.ledger import Ledger
from recollect.model.messages import message_role, message_text
from recollect.model.scope import Scope
from recollect.model.text import MAX_TEXT_BYTES, head_and_tail, normalise_invisible, repair_text
from recollect.model.turn import Role, Turn
from recollect.read.strip_context import strip_context
from recollect.write.redact import redact, redact_in_slices


def new_part_start(roles: Sequence[str]) -> int:
    """Return the index at which the new part of a request begins; the messages before it are history.

    It begins after the last answer before the user's last message. A request without any answer comes from a client
    that resends the user's messages only, so that its last one is new.
    """
    last = next((at for at in range(len(roles) - 1, -1, -1) if roles[at] == Role.USER), None)
    if last is None:
        return 0
    if Role.ASSISTANT not in roles:
        return last
    return next((at + 1 for at in range(last - 1, -1, -1) if roles[at] == Role.ASSISTANT), 0)


async def find_forgotten(user: str, messages: Sequence[tuple[str, str]], ledger: Ledger) -> frozenset[int]:
    """Return the numbers of the messages, as (role, text), that are history and match a tombstone."""
    history = messages[: new_part_start([role for role, _ in messages])]
    if not history or not await ledger.has_tombstones(user):
        return frozenset()
    spellings = [((role, text), (role, await _as_stored(text))) for role, text in history]
    matches = await ledger.tombstoned(user, {each for pair in spellings for each in pair})
    return frozenset(at for at, pair in enumerate(spellings) if not matches.isdisjoint(pair))


def answers_to_forgotten(forgotten: frozenset[int], roles: Sequence[str]) -> frozenset[int]:
    """Return the numbers of the history's answers that directly follow a forgotten message: they may repeat it."""
    answers: set[int] = set()
    for at in range(1, new_part_start(roles)):
        if roles[at] == Role.ASSISTANT and (at - 1 in forgotten or at - 1 in answers):
            answers.add(at)
    return frozenset(answers)


async def drop_forgotten_turns(user: str, turns: Sequence[Turn], ledger: Ledger) -> list[Turn]:
    """Return the turns of a request without forgotten history and the answers to it."""
    roles = [str(turn.role) for turn in turns]
    forgotten = await find_forgotten(user, [(str(turn.role), turn.content) for turn in turns], ledger)
    dropped = forgotten | answers_to_forgotten(forgotten, roles)
    return [turn for at, turn in enumerate(turns) if at not in dropped]


async def _as_stored(text: str) -> str:
    """Return the text as the log has it when it is stored without secrets."""
    return (await redact_in_slices(normalise_invisible(repair_text(text)))).text


_SESSION_PREFIX = "chat-"
_DIGEST_BYTES = 12
# How many recent sessions to compare with a request that has only the end of a long conversation.
_MAX_RECENT_SESSIONS = 8
_PAGE = 500
_MAX_BRANCHES = 64
_MAX_CACHED_LOGS = 4096
# How far back the last turn of a session is looked for in a request that has only the end of a conversation.
_MAX_NEW_MESSAGES = 200
# How much is read of a long message to recognise it.
_MAX_DIGEST_CHARS = 1 << 15
_MAX_COMPARED_CHARS = 1 << 14
_NOT_WORDS = lazy_pattern(r"[\W_]+")
_REDACTED = "[redacted"
_SPEAKERS = frozenset(map(str, Role))
# How many positions to read for the last turns of a session, some of which may be forgotten.
_WINDOWS = (2, 32, 1000)


@frozen_dataclass
class SessionMessage:
    """A message of user or assistant; `mark` is the digest of it and all before it.

    A `forgotten` message is history that matches a tombstone; one that `answers_forgotten` follows it.
    """

    role: str
    text: str
    mark: bytes
    message: Mapping[str, Any]
    forgotten: bool = False
    answers_forgotten: bool = False


@frozen_dataclass(kw_only=True)
class SessionMatch:
    """The session of a request, and its new messages.

    `last` is the digest of the whole request, and `next` that of the turn that follows it in the session, if any.
    `whole` says that the session has all messages of the request from the first on. `turn_id` is the last user turn
    if it is stored already.
    """

    scope: Scope
    new: tuple[SessionMessage, ...] = ()
    last: bytes = b""
    next: bytes | None = None
    whole: bool = False
    turn_id: str = ""

    def with_answer(self, text: str) -> SessionMatch | None:
        """Return where the answer belongs; None if it is stored already. A different answer starts a branch."""
        mark = _digest(self.last, Role.ASSISTANT, text)
        if self.next is None:
            return replace(self, last=mark)
        return (
            None if mark == self.next else replace(self, scope=_branch_scope(self.scope, mark), last=mark, next=None)
        )


async def parse_session_messages(messages: Sequence[object]) -> tuple[SessionMessage, ...]:
    """Return the text messages of user and assistant, without recalled context."""
    parsed: list[SessionMessage] = []
    mark, time_slice = b"", TimeSlice()
    for message in messages:
        await time_slice.pause()
        role = message_role(message)
        if role not in _SPEAKERS or not isinstance(message, Mapping):
            continue
        text = strip_context(message_text(message.get("content"))[:MAX_TEXT_BYTES]).strip()
        if text:
            mark = _digest(mark, role, text)
            parsed.append(SessionMessage(role, text, mark, message))
    return tuple(parsed)


@frozen_dataclass
class SessionLog:
    """The number of turns that a session ever had, and the digest and id of each existing one."""

    turn_count: int = 0
    turns: tuple[tuple[bytes, str], ...] = ()


@frozen_dataclass
class SessionOverlap:
    """The number of matching turns and messages of a session and a request, and the last matching user turn."""

    turns: int
    messages: int
    turn_id: str = ""


class SessionResolver:
    """Finds the session of a request; caches the logs of recent sessions."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._logs: OrderedDict[Scope, SessionLog] = OrderedDict()

    @staticmethod
    async def guess(scope: Scope, messages: Sequence[object]) -> SessionMatch:
        """Return the most likely match without the ledger: the messages after the last answer are new."""
        parsed = await parse_session_messages(messages)
        if not parsed:
            return SessionMatch(scope=scope)
        session = scope if scope.session else _branch_scope(scope, parsed[0].mark)
        return SessionMatch(scope=session, new=parsed[_after_last_answer(parsed) :], last=parsed[-1].mark)

    async def resolve(self, scope: Scope, messages: Sequence[object]) -> SessionMatch:
        """Return the match of a request; a scope with a session stays in it."""
        parsed = await self._mark_forgotten(scope.user, await parse_session_messages(messages))
        if not parsed:
            return SessionMatch(scope=scope)
        left = _without_forgotten(parsed)
        if scope.session:
            return await self._resolve_named(scope, left)
        match = await self._resolve_by_start(scope, parsed)
        if match is None and len(left) < len(parsed):
            # The beginning of the session was erased: match what is left.
            match = await self._resolve_by_start(scope, left)
        if match is None:
            match = await self._resolve_by_end(scope, left)
        if match is not None:
            return match
        return SessionMatch(
            scope=_branch_scope(scope, left[0].mark), new=_storable(left), last=left[-1].mark, whole=True
        )

    async def _mark_forgotten(self, user: str, messages: tuple[SessionMessage, ...]) -> tuple[SessionMessage, ...]:
        """Return the messages with those marked that were forgotten, and the answers to them."""
        forgotten = await find_forgotten(user, [(each.role, each.text) for each in messages], self._ledger)
        if not forgotten:
            return messages
        answers = answers_to_forgotten(forgotten, [each.role for each in messages])
        return tuple(
            replace(each, forgotten=at in forgotten, answers_forgotten=at in answers)
            for at, each in enumerate(messages)
        )

    def record(self, match: SessionMatch, marks: Sequence[bytes], turns: Sequence[Turn]) -> None:
        """Record stored turns with the digests of their messages."""
        scope = match.scope
        cached = self._logs.get(scope, SessionLog())
        first = turns[0].position if turns else 0
        if not match.whole or len(marks) != len(turns) or first != cached.turn_count + 1:
            # Somebody else wrote to it: read it again when needed.
            self._logs.pop(scope, None)
            return
        added = tuple((mark, turn.id) for mark, turn in zip(marks, turns, strict=True))
        self._cache_log(scope, SessionLog(cached.turn_count + len(added), cached.turns + added))

    def forget(self, user: str) -> None:
        """Drop the cached logs of a user."""
        for scope in [each for each in self._logs if each.user == user]:
            del self._logs[scope]

    async def _resolve_by_start(self, scope: Scope, messages: Sequence[SessionMessage]) -> SessionMatch | None:
        """Match from the first message on, following branches where the request differs; None if unknown."""
        at = 0
        for _ in range(_MAX_BRANCHES):
            start, session = at, _branch_scope(scope, messages[at].mark)
            log = await self._load_log(session, messages[at:])
            if not log.turn_count and not at:
                return None
            overlap = _overlap(log, messages[at:])
            at += overlap.messages
            is_whole = overlap.turns == len(log.turns)
            if at < len(messages) and (not is_whole or log.turn_count > len(log.turns)):
                branch = await self._branch_at(scope, messages, at, after=start)
                if branch is not None:
                    at = branch
                    continue
            if at == start and not is_whole:
                # The forgotten beginning of the session is sent as new.
                return (
                    SessionMatch(scope=session, new=_storable(messages[at:]), last=messages[-1].mark) if at else None
                )
            if is_whole:
                match = SessionMatch(scope=session, new=_storable(messages[at:]), last=messages[-1].mark, whole=True)
                return match if match.new else replace(match, turn_id=overlap.turn_id)
            if at == len(messages):
                match = SessionMatch(
                    scope=session, last=messages[-1].mark, next=log.turns[overlap.turns][0], whole=True
                )
                return replace(match, turn_id=overlap.turn_id)
        return None

    async def _branch_at(
        self, scope: Scope, messages: Sequence[SessionMessage], at: int, *, after: int
    ) -> int | None:
        """Return where a known branch begins: at the first message that differs, or a forgotten one before it."""
        start = at
        while start - 1 > after and messages[start - 1].forgotten:
            start -= 1
        for each in range(start, at + 1):
            if (
                each > after
                and (await self._ledger.conversation(_branch_scope(scope, messages[each].mark))).turn_count
            ):
                return each
        return None

    async def _resolve_by_end(self, scope: Scope, messages: Sequence[SessionMessage]) -> SessionMatch | None:
        """Match the last turns of recent sessions, for requests that have only the end of theirs."""
        if all(each.role == Role.USER for each in messages):
            return None
        for each in await self._ledger.conversations(scope.user, order="newest", limit=_MAX_RECENT_SESSIONS):
            if each.scope.project == scope.project and each.turn_count > 1:
                tail = await self._last_turns(each.scope, each.turn_count)
                at = await _end_index(tail, messages)
                if at is not None:
                    return _match_after(each.scope, tail, messages, at)
        return None

    async def _resolve_named(self, scope: Scope, messages: Sequence[SessionMessage]) -> SessionMatch:
        """Match in a named session: the messages after its last turns, or else after the last answer."""
        count = (await self._ledger.conversation(scope)).turn_count
        tail = await self._last_turns(scope, count)
        last = messages[-1].mark
        if not tail:
            return SessionMatch(scope=scope, new=_storable(messages), last=last)
        at = await _end_index(tail, messages)
        if at is None and len(tail) > 1 and tail[1].role is Role.ASSISTANT and _is_same(tail[0], messages[-1]):
            # A repeated last question: its answer may differ.
            answer = _digest(last, Role.ASSISTANT, tail[1].content.strip())
            return SessionMatch(scope=scope, last=last, next=answer, turn_id=tail[0].id)
        if at is None:
            return SessionMatch(scope=scope, new=tuple(messages[_after_last_answer(messages) :]), last=last)
        return _match_after(scope, tail, messages, at)

    async def _last_turns(self, scope: Scope, count: int) -> list[Turn]:
        """Return the last two existing turns of a session with `count` positions."""
        tail: list[Turn] = []
        for window in _WINDOWS:
            after = max(count - window, 0)
            tail = (await self._ledger.turns(scope, after=after, limit=window))[-2:]
            if len(tail) == 2 or not after:
                break
        return tail

    async def _load_log(self, scope: Scope, messages: Sequence[SessionMessage]) -> SessionLog:
        """Return the log of a session; turns that match the messages have the messages' digests."""
        cached = self._logs.get(scope)
        count = (await self._ledger.conversation(scope)).turn_count
        if cached is not None and count == cached.turn_count:
            self._logs.move_to_end(scope)
            return cached
        if not count:
            # Most chats are new, and reading turns would need another thread.
            return SessionLog()
        turns: list[Turn] = []
        while page := await self._ledger.turns(scope, after=turns[-1].position if turns else 0, limit=_PAGE):
            turns += page
        marks, mark, time_slice = [], b"", TimeSlice()
        pairs = await _align(turns, messages)
        for turn, each in pairs:
            mark = each.mark
            marks.append((mark, turn.id))
        for turn in turns[len(pairs) :]:
            await time_slice.pause()
            mark = _digest(mark, turn.role, turn.content.strip())
            marks.append((mark, turn.id))
        log = SessionLog(count, tuple(marks))
        if len(turns) == count or len(pairs) == len(turns):
            # The digests depend on missing turns otherwise.
            self._cache_log(scope, log)
        return log

    def _cache_log(self, scope: Scope, log: SessionLog) -> None:
        self._logs[scope] = log
        self._logs.move_to_end(scope)
        while len(self._logs) > _MAX_CACHED_LOGS:
            self._logs.popitem(last=False)


def _digest(before: bytes, role: str, text: str) -> bytes:
    words = " ".join(head_and_tail(text, _MAX_DIGEST_CHARS).split())
    return blake2b(before + f"{role}\0{words}".encode(errors="replace"), digest_size=_DIGEST_BYTES).digest()


def _branch_scope(scope: Scope, mark: bytes) -> Scope:
    """Return the session that begins with the message of the digest; unique per user and project."""
    named = blake2b(f"{scope.user}\0{scope.project}\0".encode() + mark, digest_size=_DIGEST_BYTES)
    return replace(scope, session=_SESSION_PREFIX + named.hexdigest())


def _without_forgotten(messages: Sequence[SessionMessage]) -> tuple[SessionMessage, ...]:
    """Return the messages that were not forgotten, with digests as if there were no others."""
    if not any(each.forgotten for each in messages):
        return tuple(messages)
    left: list[SessionMessage] = []
    mark = b""
    for each in messages:
        if not each.forgotten:
            mark = _digest(mark, each.role, each.text)
            left.append(replace(each, mark=mark))
    return tuple(left)


def _storable(messages: Iterable[SessionMessage]) -> tuple[SessionMessage, ...]:
    """Return the messages that may be stored: neither forgotten nor an answer to a forgotten one."""
    return tuple(each for each in messages if not each.forgotten and not each.answers_forgotten)


def _overlap(log: SessionLog, messages: Sequence[SessionMessage]) -> SessionOverlap:
    """Return how far a session and messages match, skipping forgotten messages that it lacks."""
    turns = at = 0
    turn_id = ""
    while at < len(messages):
        if turns < len(log.turns) and log.turns[turns][0] == messages[at].mark:
            turn_id = log.turns[turns][1] if messages[at].role == Role.USER else turn_id
            turns += 1
        elif not messages[at].forgotten:
            break
        at += 1
    return SessionOverlap(turns, at, turn_id)


async def _align(turns: Sequence[Turn], messages: Sequence[SessionMessage]) -> list[tuple[Turn, SessionMessage]]:
    """Return matching turns and messages up to the first difference, skipping forgotten messages."""
    pairs: list[tuple[Turn, SessionMessage]] = []
    time_slice = TimeSlice()
    for each in messages:
        await time_slice.pause()
        if len(pairs) < len(turns) and _is_same(turns[len(pairs)], each):
            pairs.append((turns[len(pairs)], each))
        elif not each.forgotten:
            break
    return pairs


async def _end_index(tail: Sequence[Turn], messages: Sequence[SessionMessage]) -> int | None:
    """Return how many messages lead up to the last two turns of a session; None if they do not occur."""
    time_slice = TimeSlice()
    for at in range(len(messages) - 1, max(-1, len(messages) - 1 - _MAX_NEW_MESSAGES), -1):
        await time_slice.pause()
        before = len(tail) < 2 or at == 0 or _is_same(tail[-2], messages[at - 1])
        if tail and before and _is_same(tail[-1], messages[at]):
            return at + 1
    return None


def _match_after(scope: Scope, tail: Sequence[Turn], messages: Sequence[SessionMessage], at: int) -> SessionMatch:
    """Return the match of a request of which `at` messages lead up to the end of a session."""
    new = _storable(messages[at:])
    of_user = next((turn.id for turn in reversed(tail) if turn.role is Role.USER), "")
    return SessionMatch(scope=scope, new=new, last=messages[-1].mark, turn_id="" if new else of_user)


def _after_last_answer(messages: Sequence[SessionMessage]) -> int:
    return next((at + 1 for at in range(len(messages) - 1, -1, -1) if messages[at].role == Role.ASSISTANT), 0)


def _is_same(turn: Turn, message: SessionMessage) -> bool:
    """Return whether a turn is the stored form of a message, without secrets and invisible characters."""
    if turn.role != message.role:
        return False
    if turn.content == message.text:
        return True
    is_redacted = _REDACTED in turn.content
    if len(turn.content) <= _MAX_COMPARED_CHARS and len(message.text) <= _MAX_COMPARED_CHARS:
        words = _words(message.text, redacts=is_redacted)
        return bool(words) and _words(turn.content) == words
    # Of long texts only the beginnings and the ends are compared. A secret changes where they are cut.
    part, words_part = _MAX_COMPARED_CHARS // 4, _MAX_COMPARED_CHARS // 16
    heads = _words(turn.content[:part]), _words(message.text[:part], redacts=is_redacted)
    tails = _words(turn.content[-part:]), _words(message.text[-part:], redacts=is_redacted)
    return len({each[:words_part] for each in heads}) == 1 and len({each[-words_part:] for each in tails}) == 1


def _words(text: str, *, redacts: bool = False) -> str:
    return _NOT_WORDS.sub("", redact(text).text if redacts else text)
