"""Reconcile: let an LLM decide what rules could not, and hold it to what it was shown.

One question for everything that is open. Memories and statements are numbered from 0; only what was shown can change,
each memory once, and only by a statement about the same thing of the same person. What the model gets wrong is told
to it once. What it cannot decide is kept beside what is known, and marked.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from recollect.errors import BrokenAnswer, RecollectError
from recollect.model.learned import Learned
from recollect.model.memory import MemoryRecord
from recollect.model.scope import Scope
from recollect.models.chat import Chat
from recollect.models.structured import Structured, ask_json
from recollect.prompts import prompt
from recollect.prompts.data import new_fence
from recollect.write.settling.differs import difference
from recollect.write.settling.reading import Reading
from recollect.write.settling.reconcile_answer import SCHEMA, Action, Asked, Verdict
from recollect.write.settling.relation import changed, completes, keeps, same_subject
from recollect.write.settling.resolution import Limits, Resolution, Undecided
from recollect.write.settling.settlement import Settlement, outranks

_SHOWN_CHARS = 500


@dataclass(frozen=True, slots=True)
class _Table:
    """What lies on the table: statements and memories, by the numbers they are shown with."""

    undecided: Sequence[Undecided]
    records: Sequence[MemoryRecord]


async def reconcile(
    scope: Scope,
    settled: Resolution,
    *,
    chat: Chat | None,
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
    prompt_digest: str | None = None,
) -> Resolution:
    """The resolution with nothing left open; without an LLM, or when it fails, what is open is added and marked."""
    if not settled.undecided:
        return settled
    settlement = Settlement.reopened(scope, settled, limits=limits, prompt_digest=prompt_digest)
    table = _table(settlement, settled.undecided)
    if chat is None or not table.records:
        why = "no LLM is set up" if chat is None else "what it may change is already changed"
        return _kept_apart(settlement, [each.learned for each in table.undecided], why).done()
    try:
        answer = await _ask(chat, table, settlement)
    except RecollectError as error:
        done = _kept_apart(
            settlement, [each.learned for each in table.undecided], f"the LLM was of no help: {error}"
        ).done()
        if isinstance(error, BrokenAnswer):
            return replace(
                done, calls=error.calls, tokens_in=error.tokens_in, tokens_out=error.tokens_out, model=chat.model
            )
        return done
    _carry_out(settlement, table, answer.value)
    return replace(
        settlement.done(),
        calls=answer.calls,
        tokens_in=answer.tokens_in,
        tokens_out=answer.tokens_out,
        model=answer.model,
        prompt_digest=prompt("reconcile").digest,
    )


def _table(settlement: Settlement, undecided: Sequence[Undecided]) -> _Table:
    """The nearest memories of each statement in turn, until there are as many as may be shown."""
    ended = settlement.ended
    chosen: dict[str, MemoryRecord] = {}
    for rank in range(settlement.limits.neighbours):
        for each in undecided:
            if rank < len(each.neighbours) and len(chosen) < settlement.limits.neighbours:
                record = each.neighbours[rank].record
                if record.id not in ended:
                    chosen.setdefault(record.id, settlement.current(record))
    return _Table(undecided, list(chosen.values()))


async def _ask(chat: Chat, table: _Table, settlement: Settlement) -> Structured[tuple[Verdict, ...]]:
    # A fresh secret each time, and one line of JSON each: nothing that was said can end the fence.
    fence = new_fence()
    memories = [_line("memory", number, record.content) for number, record in enumerate(table.records)]
    statements = [_line("statement", at, each.learned.content) for at, each in enumerate(table.undecided)]
    text = prompt("reconcile").fill(fence=fence, memories="\n".join(memories), statements="\n".join(statements))
    asked = Asked(
        [settlement.text(each.learned.content) for each in table.undecided],
        [settlement.text(record.content) for record in table.records],
    )
    return await ask_json(
        chat,
        [{"role": "user", "content": text}],
        schema=SCHEMA,
        max_tokens=settlement.limits.max_tokens,
        timeout_s=settlement.limits.timeout_s,
        check=asked.verdicts,
    )


def _line(name: str, number: int, says: str) -> str:
    return json.dumps({name: number, "says": says[:_SHOWN_CHARS]}, ensure_ascii=False)


def _carry_out(settlement: Settlement, table: _Table, verdicts: Sequence[Verdict]) -> None:
    for at, each in enumerate(table.undecided):
        mine = [verdict for verdict in verdicts if verdict.statement == at]
        if not mine:
            _kept_apart(settlement, [each.learned], "the LLM gave no decision that can be used")
            continue
        _Deciding(settlement, table, each.learned).follow(mine)


def _kept_apart(settlement: Settlement, learned: Sequence[Learned], why: str) -> Settlement:
    for each in learned:
        settlement.add(each, f"kept beside what is known, for {why}", unreconciled=True)
    return settlement


class _Deciding:
    """Carries out what was decided about one statement, as far as that is allowed; the statement is never lost."""

    def __init__(self, settlement: Settlement, table: _Table, learned: Learned) -> None:
        self._settlement = settlement
        self._records = table.records
        self._learned = learned
        # Too long to be read means that nothing can be said of it for sure.
        self._mine = settlement.text(learned.content).reading or Reading()

    def follow(self, verdicts: Sequence[Verdict]) -> None:
        settled = [self._one(verdict) for verdict in verdicts if verdict.action is not Action.ADD]
        if True not in settled:
            refused = next((why for why in settled if isinstance(why, str)), "")
            self._settlement.add(self._learned, refused or "the LLM finds it new")

    def _one(self, verdict: Verdict) -> bool | str:
        """Whether the statement needs no memory of its own any more, or why the decision is refused."""
        if verdict.action is Action.NONE:
            return self._none(verdict)
        assert verdict.memory is not None
        record = self._records[verdict.memory]
        if record.id in self._settlement.ended or not outranks(self._learned, record):
            return "what the LLM would change is not to be changed by this"
        if verdict.action is Action.DELETE:
            return self._delete(record)
        return self._update(record, verdict.text)

    def _none(self, verdict: Verdict) -> bool | str:
        # A model that sees nothing new must not lose a number or a name.
        offered = self._records if verdict.memory is None else [self._records[verdict.memory]]
        for record in offered:
            theirs = self._theirs(record)
            if same_subject(self._mine, theirs) and not keeps(theirs, self._mine):
                if outranks(self._learned, record) and record.id not in self._settlement.ended:
                    self._settlement.known(self._learned, record, "the LLM finds nothing new in it")
                else:
                    self._settlement.ignore(self._learned, record, "the LLM finds nothing new in it")
                return True
        return "the LLM finds nothing new in it, but no memory says all of it"

    def _delete(self, record: MemoryRecord) -> bool | str:
        settlement = self._settlement
        if settlement.taken_back >= settlement.limits.forgets:
            return f"no more than {settlement.limits.forgets} memories are forgotten at once"
        if not same_subject(self._mine, self._theirs(record)):
            return "what the LLM would forget is about something else"
        settlement.forget(self._learned, record, "by the LLM, it no longer holds")
        # Only what takes something back has done its work with that; what says something else is kept.
        return self._learned.retraction

    def _update(self, record: MemoryRecord, text: str) -> bool | str:
        theirs = self._theirs(record)
        what = changed(self._mine, theirs)
        if what:
            self._settlement.supersede(self._learned, record, f"by the LLM, it changes {what} of that", content=text)
            return True
        same = same_subject(self._mine, theirs) or (completes(self._mine, theirs) and self._names_all(text, theirs))
        if same and self._settlement.may_reword(record, self._learned):
            how = difference(self._mine, theirs) or "nothing"
            self._settlement.merge(self._learned, record, f"by the LLM, one with that; {how} differs", content=text)
            return True
        return "what the LLM would update is about something else"

    def _names_all(self, text: str, theirs: Reading) -> bool:
        """Whether everyone that either speaks of is in the text."""
        read = self._settlement.text(text).reading
        return read is not None and self._mine.people | theirs.people <= read.people

    def _theirs(self, record: MemoryRecord) -> Reading:
        return self._settlement.text(record.content).reading or Reading()
