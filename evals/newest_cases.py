"""Cases for the model that prefers the newest statement: what users said, a question, and what holds now.

Each case is remembered for a user of its own and its question is searched. Every candidate gets a role: `now` (it
answers the question and holds), `old` (it answered the question and no longer holds) or `other`.
"""

from __future__ import annotations

import json
import random
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from evals.adapter import USER, as_message
from evals.conversation import DatasetConversation, DatasetTurn
from evals.datasets import load
from evals.dialogues import read_friendsqa
from recollect import AsyncMemory
from recollect.config.settings import Settings
from recollect.model.memory import MemoryRecord
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.models.static_embedder import DIMENSIONS, piece_vectors, word_pieces
from recollect.read.features import compute_features
from recollect.read.fuse import fuse
from recollect.read.gather import CandidateQuery, FetchLimit, fetch_candidates, gather
from recollect.read.newest_model import PairStatement
from recollect.read.prefer_newest import MAX_CANDIDATES, find_later_candidates
from recollect.read.question import analyze_question
from recollect.read.rank import SearchCandidate, rank
from recollect.read.select import filter_relevant
from recollect.read.stale_turns import replace_stale_turns
from recollect.search import ranking_weights

DATA = Path(__file__).parent / "data"
START = datetime(2026, 3, 2, 9, tzinfo=UTC)
QUIET = {"rewrite": "off", "session_episode": False, "compress_every": 0, "learn": "selector"}
READ_CANDIDATES = 18

Role = str
RoleOf = Callable[[MemoryRecord], Role]


@dataclass(frozen=True, slots=True)
class Message:
    """A message, or a fact if it belongs to no session, with its time and its role where that is known."""

    text: str
    at: datetime
    session: str = ""
    role: Role = "other"


@dataclass(frozen=True, slots=True)
class Case:
    """What one user said, a question, how a text's role is known if not by what was said, and how many hits."""

    name: str
    group: str
    question: str
    said: Sequence[Message]
    role_of_text: Callable[[str], Role] | None = None
    limit: int = MAX_CANDIDATES


@dataclass(slots=True)
class Searched:
    """The candidates of a question as the model gets them: those shown, and later ones below the threshold."""

    name: str
    group: str
    question: str
    visible_count: int
    candidates: list[SearchCandidate]
    vectors: np.ndarray
    roles: list[Role] = field(default_factory=list)


def read_rows(name: str) -> list[dict[str, Any]]:
    """Return the rows of a data file."""
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


# ------------------------------------------------------------ cases
def truth_cases(truth: Mapping[str, Any]) -> Iterator[Case]:
    """Yield the change sequences and look-alikes, as messages, as facts and as both."""
    for case in truth["changes"]:
        role_of = _role_by_pattern(case["current"], case["stale"])
        background = _background(truth, case["current"], case["stale"])
        times = [
            datetime.fromisoformat(f"{step['day']}T{step.get('time') or f'{9 + at:02}:00'}:00+00:00")
            for at, step in enumerate(case["steps"])
        ]
        turns = [
            Message(step["message"], times[at], "s" if case["same_session"] else f"s{at}")
            for at, step in enumerate(case["steps"])
        ]
        last = {
            claim["slot"]: Message(claim["content"], times[at])
            for at, step in enumerate(case["steps"])
            for claim in step["claims"]
        }
        yield Case(case["id"], "changes", case["ask"], [*background, *turns], role_of)
        yield Case(case["id"], "changes, learned", case["ask"], [*background, *turns, *last.values()], role_of)
    for case in truth["lookalikes"]:
        role_of = _role_by_pattern(case["right"], "")
        background = _background(truth, case["right"], *case["wrong"])
        turns, facts = [], []
        for number, each in enumerate(case["statements"]):
            at = START + timedelta(minutes=7 * number)
            turns.append(Message(each["message"], at, "s" if case["same_session"] else f"s{number}"))
            facts.append(Message(each["text"], at))
        for group, text in (("", turns), (", stated", facts), (", learned", [*turns, *facts])):
            yield Case(case["id"], f"look-alikes{group}", case["ask"], [*background, *text], role_of)


def _role_by_pattern(current: str, stale: str) -> Callable[[str], Role]:
    now_pattern, old_pattern = (re.compile(pattern or r"(?!)", re.IGNORECASE) for pattern in (current, stale))
    return lambda text: "now" if now_pattern.search(text) else "old" if old_pattern.search(text) else "other"


def change_cases(truth: Mapping[str, Any]) -> Iterator[Case]:
    """Yield the rows of `changes.jsonl`, as messages, and as facts or both."""
    rows, chance = read_rows("changes.jsonl"), random.Random(1)
    facts = [each["fact"] for row in rows for each in row["said"]]
    for row in rows:
        at, session, turns = START + timedelta(days=chance.uniform(0, 20)), 0, []
        for number, each in enumerate(row["said"]):
            if number and chance.random() < (0.6 if row["kind"] == "correction" else 0.2):
                at += timedelta(minutes=chance.choice((1, 3, 12)))
            elif number:
                at += timedelta(days=chance.choice((1, 3, 7, 30, 60)))
                session += 1
            turns.append(Message(each["message"], at, f"s{session}", each["role"]))
        background = _background(truth)
        if chance.random() < 0.5:
            early = START - timedelta(days=chance.uniform(1, 40))
            background = [Message(fact, early) for fact in chance.sample(facts, 12)]
        stated = [
            Message(each["fact"], turn.at, role=turn.role) for each, turn in zip(row["said"], turns, strict=True)
        ]
        group = "look-alike data" if row["kind"] == "lookalike" else "change data"
        group += ", long" if len(row["said"][0]["message"]) > 150 else ""
        yield Case(row["id"], group, row["question"], [*background, *turns])
        if row["kind"] == "lookalike" or chance.random() < 0.5:
            yield Case(row["id"], f"{group}, stated", row["question"], [*background, *stated])
        else:
            learned = [each for each in stated if each.role != "old"]
            yield Case(row["id"], f"{group}, learned", row["question"], [*background, *turns, *learned])


def pair_cases(truth: Mapping[str, Any], fillers: Sequence[str]) -> Iterator[Case]:
    """Yield the rows of `statement_pairs.jsonl` that have a question, as they are and inside longer messages."""
    rows, chance = read_rows("statement_pairs.jsonl"), random.Random(5)
    for row in rows:
        if "question" not in row:
            continue
        replaces = row["label"] == "replaces"
        for is_long in (False, True):
            at = START + timedelta(days=chance.uniform(0, 20))
            later = at + timedelta(days=chance.choice((0.01, 0.1, 1, 3, 10, 30, 90)))
            messages = [
                (row["older"], at, "old" if replaces else "now"),
                (row["newer"], later, "now" if replaces else "other"),
            ]
            for _ in range(6):
                messages.append(
                    (chance.choice(rows)["newer"], START + timedelta(days=chance.uniform(0, 100)), "other")
                )
            yield Case(
                row["id"],
                f"{row['label']}, {'long' if is_long else 'short'}",
                row["question"],
                [
                    *_background(truth),
                    *(
                        Message(_wrapped(text, chance, fillers) if is_long else text, when, f"s{number}", role)
                        for number, (text, when, role) in enumerate(messages)
                    ),
                ],
            )


def update_cases() -> Iterator[Case]:
    """Yield the rows of `update_messages.jsonl`: long messages that state an update by the way, among others."""
    rows, chance = read_rows("update_messages.jsonl"), random.Random(3)
    for row in rows:
        noise = chance.sample([each for other in rows if other is not row for each in other["others"]], 12)
        for is_shuffled in (False, True):
            order = [row["older"], *row["others"], *noise]
            if is_shuffled:
                chance.shuffle(order)
            order.insert(chance.randrange(order.index(row["older"]), len(order)) + 1, row["newer"])
            at, content = START, []
            for number, text in enumerate(order):
                at += timedelta(days=chance.choice((0.01, 0.01, 1, 5, 20)))
                role = "now" if text == row["newer"] else "old" if text == row["older"] else "other"
                content.append(Message(text, at, f"s{number}", role))
            yield Case(row["id"], "replaces, message", row["question"], content)


def _background(truth: Mapping[str, Any], *patterns: str) -> list[Message]:
    at = datetime(2026, 1, 5, 9, tzinfo=UTC)
    existing = [re.compile(pattern, re.IGNORECASE) for pattern in patterns if pattern]
    return [Message(fact, at) for fact in truth["background"] if not any(each.search(fact) for each in existing)]


def _wrapped(text: str, chance: random.Random, fillers: Sequence[str]) -> str:
    filler = chance.choice(fillers)
    return chance.choice((f"{text}. {filler}", f"{filler} {text}", f"By the way, {text}. {filler}"))


# ------------------------------------------------------------ searching
async def search_cases(cases: Iterable[Case], home: Path) -> list[Searched]:
    """Remember each case for a user of its own, and search its question."""
    searched = []
    async with AsyncMemory(settings=Settings(home=home, **QUIET)) as memory:
        for number, case in enumerate(cases):
            user = f"{case.name}-{number}"
            roles = await _remember(memory, user, case)
            searched.append(await _search(memory, user, case, _role_of(case, roles)))
    return searched


async def _remember(memory: AsyncMemory, user: str, case: Case) -> dict[str, Role]:
    roles = {}
    facts = []
    for each in case.said:
        if not each.session:
            id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{user}/{each.text}"))
            roles[id] = each.role
            facts.append({"id": id, "memory": each.text, "user_id": user, "category": "fact", "created_at": each.at})
    if facts:
        await memory.import_([fact | {"created_at": fact["created_at"].isoformat()} for fact in facts])
    for each in sorted((each for each in case.said if each.session), key=lambda each: each.at):
        message = {"role": "user", "content": each.text, "timestamp": each.at.isoformat()}
        session = f"{user}-{each.session}"
        for turn in await memory.remember([message], user_id=user, session_id=session, wait=True):
            roles[turn.id] = each.role
    return roles


def _role_of(case: Case, roles: Mapping[str, Role]) -> RoleOf:
    if (of_text := case.role_of_text) is not None:
        return lambda record: of_text(record.content)
    return lambda record: next((roles[id] for id in (record.id, *record.evidence) if id in roles), "other")


async def _search(memory: AsyncMemory, user: str, case: Case, role_of: RoleOf) -> Searched:
    """Return the candidates as the step that is trained gets them."""
    service = await memory.service()
    finders, ranking = service.search_deps, memory.settings
    least = memory.settings.search_min_score
    [vector] = await finders.embedder.embed([case.question], role="query")
    question = analyze_question(case.question)
    query = CandidateQuery(question=question, text=case.question, vector=vector, pool_size=50)
    scope = Scope(user)
    if finders.late is not None:
        await finders.late.flush(user)
    results = await gather(
        scope,
        query,
        ledger=finders.ledger,
        index=finders.index,
        calibration=await finders.calibration.get(),
        late=finders.late,
    )
    relevance = fuse(compute_features(results.table, results.stats), results.stats.count, ranking.fusion)
    also = await find_later_candidates(results, relevance, min_relevance=least, limit=case.limit)
    closer = FetchLimit(count=READ_CANDIDATES, min_relevance=least, extra=also)
    read, _ = await fetch_candidates(scope, results, query, relevance, closer, ledger=finders.ledger)
    read, _ = await replace_stale_turns(scope, read, results, query, ledger=finders.ledger)
    ranked = rank(read, ranking_weights(ranking), now=now())
    first = filter_relevant(ranked, least)[: case.limit]
    in_first = {each.row for each in first}
    candidates = [*first, *(each for each in ranked if each.pool_index in also and each.row not in in_first)]
    vectors = await results.view.vectors(np.array([each.row for each in candidates], np.int64))
    roles = [role_of(each.record) for each in candidates]
    return Searched(case.name, case.group, case.question, len(first), candidates, vectors, roles)


async def search_conversations(name: str, home: Path, rows: slice = slice(None)) -> list[Searched]:
    """Search the questions of rows of a file of talks: many messages of one user, at once or over weeks."""
    searched, chance = [], random.Random(4)
    async with AsyncMemory(settings=Settings(home=home, **QUIET)) as memory:
        for row in read_rows(f"{name}.jsonl")[rows]:
            at, user, place = START, row["id"], {}
            # People who try out a memory tell it everything within minutes.
            is_quick = chance.random() < 0.5
            for number, text in enumerate(row["messages"]):
                at += timedelta(seconds=chance.choice((2, 20, 90))) if is_quick else timedelta(minutes=4)
                if number % 3 == 0 and not is_quick:
                    at += timedelta(days=chance.choice((1, 2, 4, 9)))
                exchange = [
                    {"role": "user", "content": text, "timestamp": at.isoformat()},
                    {"role": "assistant", "content": "Sure, here is a suggestion.", "timestamp": at.isoformat()},
                ]
                session = f"{user}-{number // 3}"
                turn, *_ = await memory.remember(exchange, user_id=user, session_id=session, wait=True)
                place[turn.id] = number
            for question in row["questions"]:
                group = f"{name}, updates" if question["old"] else name
                roles = {
                    id: "now" if number in question["now"] else "old" if number in question["old"] else "other"
                    for id, number in place.items()
                }
                for limit in (5, MAX_CANDIDATES):
                    case = Case(row["id"], f"{group}, {limit} hits", question["question"], (), limit=limit)
                    searched.append(await _search(memory, user, case, _role_of(case, roles)))
    return searched


async def search_longmemeval(path: Path, home: Path, conversations: slice = slice(None)) -> list[Searched]:
    """Search the questions of LongMemEval; in its knowledge updates the newest of the answers replaces the others."""
    searched = []
    for number, conversation in enumerate(load("longmemeval", path, limit=0)[conversations]):
        async with AsyncMemory(settings=Settings(home=home / str(number), **QUIET)) as memory:
            turns = [turn for turn in conversation.turns if turn.text.strip()]
            order = {turn.id: at for at, turn in enumerate(turns)}
            source = await _remember_turns(memory, turns)
            for question in conversation.questions:
                gold = [id for id in question.gold if id in order]
                if not gold or not question.headline:
                    continue
                is_update = "knowledge" in question.category and len(gold) > 1
                newest = max(gold, key=order.__getitem__)
                roles = {
                    own: "now" if id == newest or not is_update else "old" for own, id in source.items() if id in gold
                }
                case = Case(question.id, "longmemeval, updates" if is_update else "longmemeval", question.text, ())
                searched.append(await _search(memory, USER, case, _role_of(case, roles)))
    return searched


async def search_friendsqa(folder: Path, home: Path, conversations: slice = slice(None)) -> list[Searched]:
    """Search the questions of FriendsQA, where several people speak and nothing is replaced."""
    searched, chance = [], random.Random(6)
    for number, conversation in enumerate(_friendsqa(folder)[conversations]):
        async with AsyncMemory(settings=Settings(home=home / str(number), **QUIET)) as memory:
            source = await _remember_turns(memory, [turn for turn in conversation.turns if turn.text.strip()])
            for question in conversation.questions:
                if question.gold and question.headline:
                    roles = {own: "now" for own, id in source.items() if id in question.gold}
                    limit = chance.choice((5, MAX_CANDIDATES))
                    case = Case(f"friendsqa {conversation.name}", "friendsqa", question.text, (), limit=limit)
                    searched.append(await _search(memory, USER, case, _role_of(case, roles)))
    return searched


def _friendsqa(folder: Path) -> list[DatasetConversation]:
    files = sorted(folder.glob("friendsqa_*.json"))
    return list(
        read_friendsqa([scene for file in files for scene in json.loads(file.read_text(encoding="utf-8"))["data"]])
    )


async def _remember_turns(memory: AsyncMemory, turns: Sequence[DatasetTurn]) -> dict[str, str]:
    """Remember the turns of a conversation; return the id in the dataset of each stored turn."""
    source: dict[str, str] = {}
    for session, group in groupby(turns, key=lambda turn: turn.session):
        said = list(group)
        messages = [as_message(turn) for turn in said]
        stored = await memory.remember(messages, user_id=USER, session_id=session, wait=True)
        source |= {own.id: turn.id for own, turn in zip(stored, said, strict=True)}
    return source


@cache
def word_vector(word: str) -> np.ndarray:
    """Return the mean vector of a word's pieces."""
    return np.asarray(_vectors()[word_pieces(word)].mean(0))


@cache
def _vectors() -> np.ndarray:
    return piece_vectors()


def pair_words(older: PairStatement, newer: PairStatement) -> np.ndarray:
    """Return the vectors of a pair's words, added up for each role; search adds up their weights."""
    roles = (older.words - newer.words, newer.words - older.words, older.words & newer.words)
    sums = [sum(map(word_vector, sorted(words)), np.zeros(DIMENSIONS, np.float32)) for words in roles]
    return np.asarray(np.concatenate(sums) / np.sqrt(len(older.words | newer.words) or 1), np.float32)


def filler_messages(path: Path) -> list[str]:
    """Return messages of LongMemEval's users to put labelled statements into."""
    turns = [turn for each in load("longmemeval", path, limit=0) for turn in each.turns[:60]]
    messages = [turn.text for turn in turns if turn.speaker == "user"]
    return [text for text in messages if 60 < len(text) < 400]
