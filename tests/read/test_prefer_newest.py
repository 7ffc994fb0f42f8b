"""Prefer newest: of competing statements the newer comes first; look-alikes keep the order of their relevance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from evals.newest_cases import pair_words
from recollect import Memory
from recollect.config.settings import Settings
from recollect.model.memory import Category
from recollect.model.scope import Scope
from recollect.models.static_embedder import StaticEmbedder
from recollect.read.calibration import BUNDLED_CALIBRATION
from recollect.read.newest_model import (
    MODEL_FILE,
    PAIR_FEATURES,
    WORD_ODDS_INDEX,
    compare_pairs,
    newest_model,
    parse_statement,
)
from recollect.read.prefer_newest import place_newer_first, prefer_newest
from recollect.read.question import analyze_question
from recollect.read.rank import SearchCandidate
from tests.support.ledger_samples import memory as record

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
QUESTION, QUESTION_OF_THE_PAST = "what's our team's target?", "what was our team's target before, at first?"
OLD = "The target of the team is 40 signups a week"
NEW = "The target of the team is now 55 signups a week"
NEWEST = "The target of the team is now 70 signups a week"
BETWEEN = "Lena's cat is called Momo"
PHONES = (
    "User's phone number is 0151 2340017",
    "The phone number of the user's wife is 0160 9918844",
    "The phone number of the user's office is 030 4455120",
    "The phone number of the user's brother is 0171 5550123",
)


def statement(
    content: str, *, week: float, relevance: float = 0.6, role: str = "user", **fields: Any
) -> SearchCandidate:
    """A turn of that week that the question fits."""
    detail = {"role": role} | ({"name": fields.pop("name")} if "name" in fields else {})
    text = record(content, category=Category.TURN, created_at=NOON + timedelta(weeks=week), detail=detail)
    parts = {"coverage": 0.8, "semantic": 0.8, "dense": 0.5, "lexical": 0.4}
    return SearchCandidate(0, int(week), replace(text, **fields), relevance, relevance, parts)


async def reorder(
    question: str, *first: SearchCandidate, later: Sequence[SearchCandidate] = (), **least: float
) -> list[SearchCandidate]:
    vectors = await StaticEmbedder().embed([each.record.content for each in (*first, *later)])
    return prefer_newest(
        first, later, np.asarray(vectors), analyze_question(question), calibration=BUNDLED_CALIBRATION, **least
    )


async def order(
    question: str, *first: SearchCandidate, later: Sequence[SearchCandidate] = (), **least: float
) -> list[str]:
    return [each.record.content for each in await reorder(question, *first, later=later, **least)]


def old_and_new(**newer: Any) -> tuple[SearchCandidate, SearchCandidate]:
    return statement(OLD, week=0), statement(NEW, week=4, **{"relevance": 0.55} | newer)


async def test_the_newer_of_two_competing_statements_comes_first() -> None:
    assert await order(QUESTION, *old_and_new()) == [NEW, OLD]


async def test_a_question_about_the_past_changes_nothing() -> None:
    assert await order(QUESTION_OF_THE_PAST, *old_and_new()) == [OLD, NEW]


async def test_an_older_statement_never_moves_before_a_newer_one() -> None:
    assert await order(QUESTION, statement(NEW, week=4), statement(OLD, week=0, relevance=0.55)) == [NEW, OLD]


@pytest.mark.parametrize("texts", [(OLD, NEW, NEWEST), (NEW, OLD, NEWEST), (NEWEST, OLD, NEW)])
async def test_of_three_statements_of_one_key_the_newest_comes_first(texts: Sequence[str]) -> None:
    weeks = {OLD: 0, NEW: 4, NEWEST: 8}
    ranked = [
        statement(text, week=weeks[text], relevance=0.6 - at / 50, key="target", category=Category.FACT)
        for at, text in enumerate(texts)
    ]
    assert (await order(QUESTION, *ranked))[0] == NEWEST


@pytest.mark.parametrize("voice", [{"role": "assistant"}, {"name": "Bob"}], ids=str)
async def test_another_speaker_replaces_nothing(voice: dict[str, Any]) -> None:
    assert await order(QUESTION, *old_and_new(**voice)) == [OLD, NEW]


async def test_no_score_rises_and_scores_fall_along_the_order() -> None:
    between = statement(BETWEEN, week=1, relevance=0.58)
    candidates = [statement(OLD, week=0), between, statement(NEW, week=4, relevance=0.55)]
    before = {each.record.content: each.score for each in candidates}
    reordered = await reorder(QUESTION, *candidates)
    scores = [each.score for each in reordered]
    assert reordered[0].record.content == NEW
    assert reordered[0].score == 0.55
    assert reordered[0].parts["newest"] == 1
    assert scores == sorted(scores, reverse=True)
    assert all(each.score <= before[each.record.content] for each in reordered)
    assert sorted(before) == sorted(each.record.content for each in reordered)


ASKED_OF_INES = "Where does my sister work?"


def old_and_later(**later: Any) -> tuple[SearchCandidate, SearchCandidate]:
    """Return a statement and one that replaces it and hardly resembles the question."""
    old = statement("My sister Ines works at Bosch in Graz", week=0)
    return old, statement("Ines left Bosch, she is at Volta now", week=4, relevance=0.05, **later)


async def test_a_later_statement_below_the_threshold_joins_if_it_replaces_one() -> None:
    old, new = old_and_later()
    between = statement(BETWEEN, week=1, relevance=0.3)
    reordered = await reorder(ASKED_OF_INES, old, between, later=[new])
    assert reordered == [new, old, between]
    assert (reordered[0].relevance, reordered[0].score) == (old.relevance, 0.6)
    assert (reordered[0].parts["newest"], old.parts["replaced"]) == (1, 1)
    assert [each.score for each in reordered] == [0.6, 0.6, 0.3]


async def test_a_later_statement_that_replaces_nothing_stays_out() -> None:
    later = statement(BETWEEN, week=4, relevance=0.05)
    assert await order(QUESTION, statement(OLD, week=0), later=[later]) == [OLD]
    assert later.relevance == 0.05


async def test_a_later_statement_stays_out_if_it_is_too_unlikely_for_the_threshold() -> None:
    old, new = old_and_later()
    assert await reorder(ASKED_OF_INES, old, later=[new], min_relevance=0.6) == [old]


async def test_a_statement_of_another_project_replaces_nothing() -> None:
    old, new = old_and_later(scope=Scope("ann", project="beta"))
    assert await reorder(ASKED_OF_INES, old, later=[new]) == [old]


async def test_an_earlier_statement_below_the_threshold_stays_out() -> None:
    assert await order(QUESTION, statement(NEW, week=4), later=[statement(OLD, week=0, relevance=0.05)]) == [NEW]


@pytest.mark.parametrize(("relevance", "first"), [(0.58, NEW), (0.3, OLD)])
async def test_a_reranker_that_clearly_prefers_the_older_one_rules(relevance: float, first: str) -> None:
    old, new = old_and_new(relevance=relevance)
    old.parts["rerank"], new.parts["rerank"] = 0.9, 0.8
    assert (await order(QUESTION, old, new))[0] == first


async def test_statements_of_one_key_compete_whatever_their_words() -> None:
    old = statement("Vienna", week=0, key="city", category=Category.FACT)
    new = statement("Moved to a flat by the lake in Graz", week=4, relevance=0.3, key="city", category=Category.FACT)
    assert (await order("where do I live?", old, new))[0] == new.record.content


async def test_a_superseding_statement_comes_before_the_superseded_one() -> None:
    new = statement("Moved to a flat by the lake in Graz", week=4, relevance=0.3)
    old = statement("Vienna", week=0, superseded_by=new.record.id)
    assert (await order("where do I live?", old, new))[0] == new.record.content


async def test_a_turn_does_not_compete_with_what_was_learned_from_it() -> None:
    turn = statement(NEW, week=4, relevance=0.5)
    learned = statement(OLD, week=0, category=Category.FACT, evidence=(turn.record.id,))
    assert (await order(QUESTION, learned, turn))[0] == OLD


@pytest.mark.parametrize("count", [0, 1])
async def test_nothing_or_one_stays_as_it_is(count: int) -> None:
    candidates = [statement(OLD, week=0)][:count]
    assert await reorder(QUESTION, *candidates) == candidates


def test_newer_ones_are_placed_directly_before_the_older_ones() -> None:
    assert place_newer_first(4, [(0, 2)]) == [2, 0, 1, 3]
    assert place_newer_first(4, [(0, 2), (2, 3), (0, 3)]) == [3, 2, 0, 1]
    assert place_newer_first(3, []) == [0, 1, 2]


def test_the_model_weighs_every_signal() -> None:
    model = newest_model()
    assert model.hidden.shape[0] == len(PAIR_FEATURES) == len(set(PAIR_FEATURES))
    assert all(np.isfinite(getattr(model, name)).all() for name in model.__dataclass_fields__)
    assert MODEL_FILE.stat().st_size < 50_000


def test_training_counts_the_words_that_search_adds_up() -> None:
    first, second = (statement(text, week=at) for at, text in enumerate((OLD, NEW)))
    table = compare_pairs([first, second], np.ones((2, 2), np.float32), analyze_question(QUESTION), result_count=2)
    odds = pair_words(parse_statement(OLD), parse_statement(NEW)) @ newest_model().words.T.ravel()
    assert table.features[0, WORD_ODDS_INDEX] == pytest.approx(odds, abs=1e-4)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(settings=Settings(home=tmp_path, search_min_score=0.0, learn="off")) as memory:
        yield memory


@pytest.mark.parametrize(
    ("question", "right"),
    [("What is my phone number?", PHONES[0]), ("what's the phone number of my brother?", PHONES[3])],
)
@pytest.mark.parametrize("days", [0, 7, 30])
def test_a_search_among_look_alikes_gives_the_one_asked_for(
    memory: Memory, question: str, right: str, days: int
) -> None:
    rows = [
        {
            "memory": text,
            "user_id": "a",
            "created_at": (NOON - timedelta(days=400 - days * at, seconds=-at)).isoformat(),
        }
        for at, text in enumerate(PHONES)
    ]
    memory.import_([row | {"id": str(uuid4())} for row in rows])
    hits = memory.search(question, user_id="a", limit=3)
    assert hits.hits[0].memory == right


def test_a_search_gives_the_current_state_first(memory: Memory) -> None:
    for day, text in (("2026-02-04", "standup is at 9:15 every morning"), ("2026-04-15", "we moved standup to 9:45")):
        message = {"role": "user", "content": text, "timestamp": f"{day}T09:00:00Z"}
        memory.remember([message], user_id="a", session_id=day)
    memory.add("The neighbour's cat is called Momo", user_id="a")
    hits = [hit.memory for hit in memory.search("when is standup?", user_id="a")]
    assert hits[:2] == ["we moved standup to 9:45", "standup is at 9:15 every morning"]


BANKS = {"2026-02-04": "my bank is Sparkasse", "2026-04-15": "left Sparkasse, moved everything to ING"}
OLD_BANK, NEW_BANK = BANKS.values()
BANK_QUESTION = "which bank am I with?"


@pytest.fixture
def banks(tmp_path: Path) -> Iterator[Memory]:
    """What the user said of their bank, among what fits the question somewhat and what does not."""
    with Memory(settings=Settings(home=tmp_path, learn="off", late_interaction=False)) as memory:
        for day, text in BANKS.items():
            message = {"role": "user", "content": text, "timestamp": f"{day}T09:00:00Z"}
            memory.remember([message], user_id="a", session_id=day)
        rest = [f"{name} works at the bank in {name}ville" for name in ("Dora", "Karl", "Emil")]
        rest += [f"The user once bought {number} stamps" for number in range(20)]
        memory.import_(
            [
                {"id": str(uuid4()), "memory": text, "user_id": "a", "created_at": "2026-01-05T09:00:00Z"}
                for text in rest
            ]
        )
        yield memory


@pytest.mark.parametrize(("limit", "min_score"), [(2, 0.0), (2, 0.15), (10, 0.5), (20, 0.5)])
def test_a_search_finds_the_current_state_though_it_shares_no_word_with_the_question(
    banks: Memory, limit: int, min_score: float
) -> None:
    hits = banks.search(BANK_QUESTION, user_id="a", limit=limit, min_score=min_score)
    traced = banks.search(BANK_QUESTION, user_id="a", limit=limit, min_score=min_score, trace=True)
    messages = [hit.memory for hit in hits]
    assert messages[:2] == [NEW_BANK, OLD_BANK]
    assert messages == [hit.memory for hit in traced]
    assert len(messages) == len(set(messages)) <= limit
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)


def test_a_search_about_the_past_finds_what_held_then(banks: Memory) -> None:
    match = [hit.memory for hit in banks.search("which bank was I with before?", user_id="a", min_score=0.5)]
    assert NEW_BANK not in match


def test_a_later_statement_that_the_filter_excludes_does_not_join(banks: Memory) -> None:
    only_old = {"created_at": {"lt": "2026-03-01T00:00:00Z"}}
    hits = [hit.memory for hit in banks.search(BANK_QUESTION, user_id="a", filters=only_old)]
    assert hits[0] == OLD_BANK
    assert NEW_BANK not in hits
