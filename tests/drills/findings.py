"""Compare a ledger with what its writers told: nothing acknowledged is missing, nothing is there unasked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from recollect.ledger.ledger import Ledger
from recollect.model.change import ChangeKind, HistoryEntry
from recollect.model.memory import MemoryRecord, Status
from recollect.model.query import EVERYTHING, Listing
from recollect.model.scope import Scope
from recollect.testing.fake_embedder import embed_words
from tests.drills.notes import ExpectedMemory, State, WriterReport
from tests.drills.writers import MODEL

_ALL = tuple(Status)
# Each memory says a number that no other does; a question may have this many terms and all count.
_NUMBERS_AT_ONCE = 50


@dataclass(slots=True)
class Findings:
    """What was wrong, a sentence each, and how many acknowledged steps were lost."""

    wrong: list[str] = field(default_factory=list)
    lost: int = 0
    acked: int = 0
    landed_unasked: int = 0


async def examine(ledger: Ledger, report: Mapping[str, WriterReport]) -> Findings:
    """Look at everything of the users who wrote; `told` must name all of their writers."""
    findings = Findings()
    users: dict[str, set[str]] = defaultdict(set)
    for name, each in report.items():
        users[each.user].add(name)
    for user, writers in sorted(users.items()):
        records = await everything(ledger, user)
        by_writer: dict[str, list[MemoryRecord]] = defaultdict(list)
        for record in records:
            by_writer[record.scope.session].append(record)
        findings.wrong += [f"nobody called {name} ever wrote" for name in set(by_writer) - writers]
        for name in sorted(writers):
            await _examine_writer(ledger, name, report[name], by_writer[name], findings)
        findings.wrong += await _history_faults(ledger, user, records)
        findings.wrong += await _finding_faults(ledger, user, records)
    return findings


async def everything(ledger: Ledger, user: str) -> list[MemoryRecord]:
    """Every memory of a user, whatever its status."""
    records: list[MemoryRecord] = []
    cursor = None
    while True:
        page = await ledger.find(Scope(user), Listing(statuses=_ALL, limit=5_000, cursor=cursor))
        records += page
        cursor = page.cursor
        if cursor is None:
            return records


async def _examine_writer(
    ledger: Ledger, name: str, report: WriterReport, records: Iterable[MemoryRecord], results: Findings
) -> None:
    stored = {each.id: ExpectedMemory(each.content, str(each.status), each.version) for each in records}
    scope = Scope(report.user, session=name)
    turns = await ledger.turns(scope, limit=1_000_000)
    actual = State(stored, [turn.content for turn in turns])
    results.acked += len(report.acked)
    possible = report.possible
    if actual not in possible:
        lost = _lost(report, actual)
        results.lost += lost
        results.wrong.append(f"{name} has lost {lost} of {len(report.acked)} acknowledged steps, or they are torn")
    elif len(possible) == 2 and actual == possible[1]:
        results.landed_unasked += 1
    if [turn.position for turn in turns] != list(range(1, len(turns) + 1)):
        results.wrong.append(f"the turns of {name} are not numbered one after the other")
    if (await ledger.conversation(scope)).turn_count != len(turns):
        results.wrong.append(f"the conversation of {name} does not count its turns")


def _lost(report: WriterReport, actual: State) -> int:
    """How many of the last steps are missing; if no such number explains what is there, all count as lost."""
    for stored in range(len(report.acked) - 1, -1, -1):
        if report.state(stored) == actual:
            return len(report.acked) - stored
    return len(report.acked)


async def _history_faults(ledger: Ledger, user: str, records: Iterable[MemoryRecord]) -> list[str]:
    """Each memory's history must lead from its first words to how it stands, one version at a time."""
    lines: dict[str, list[HistoryEntry]] = defaultdict(list)
    for entry in await ledger.history(Scope(user), limit=1_000_000):
        lines[entry.memory_id].append(entry)
    faults = []
    for record in records:
        chain = lines.pop(record.id, [])[::-1]
        if [line.version for line in chain] != list(range(1, record.version + 1)) or chain[
            0
        ].verb is not ChangeKind.ADD:
            faults.append(f"the history of {record.id} does not lead to version {record.version}")
            continue
        now: dict[str, object] = {}
        for line in chain:
            changed = line.before or {}
            if any(now.get(name, value) != value for name, value in changed.items()):
                faults.append(f"line {line.id} of the history does not begin where the one before ended")
            now.update(line.after)
        if now.get("content", record.content) != record.content or now["status"] != record.status:
            faults.append(f"the history of {record.id} ends elsewhere than the memory stands")
    return faults + [f"history speaks of {id}, which is not there" for id in lines]


async def _finding_faults(ledger: Ledger, user: str, records: list[MemoryRecord]) -> list[str]:
    """Every active memory has the vector of its words, and its own number finds it and nothing else."""
    scope = Scope(user)
    active = {each.id: each for each in records if each.status is Status.ACTIVE}
    _, index_rows = await ledger.index_rows(user, model=MODEL, after=0)
    numbered = await ledger.fetch(scope, [each.row for each in index_rows], filter=EVERYTHING)
    row_of = {each.record.id: each.row for each in numbered}
    faults = [f"{id} is not among the rows of its user" for id in active.keys() - row_of.keys()]
    vectors = {each.row: each.vector for each in index_rows}
    ids = list(row_of)
    expected = embed_words([active[id].content for id in ids], MODEL.dimensions).astype("<f2")
    for id, vector in zip(ids, expected, strict=True):
        stored = vectors[row_of[id]]
        if stored is None or not np.array_equal(np.frombuffer(stored, "<f2"), vector):
            faults.append(f"the vector of {id} is not that of its words")
    for start in range(0, len(ids), _NUMBERS_AT_ONCE):
        some = ids[start : start + _NUMBERS_AT_ONCE]
        numbers = " ".join(active[id].content.split()[0] for id in some)
        results = set((await ledger.lexical(scope, numbers)).rows.tolist())
        if results != {row_of[id] for id in some}:
            faults.append(f"the full text finds {len(results)} memories for the numbers of {len(some)}: {numbers}")
    return faults
