"""Features of candidates have the values that their names promise, and are finite with any number of memories."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recollect.read.fuse
from recollect import Memory
from recollect.config.settings import Settings
from recollect.index.protocol import Traits
from recollect.model.result import TracedCandidate
from recollect.models.traits import Trait
from recollect.read.calibration import Calibration
from recollect.read.features import FEATURE_NAMES, CandidateTable, QueryStats, compute_features
from recollect.read.fuse import feature_column, learned_blend, parse_blend
from recollect.read.question import analyze_question
from recollect.testing.fake_embedder import FakeEmbedder
from recollect.text.time_expressions import find_periods

NOON = datetime(2026, 3, 15, 12, tzinfo=UTC)


def pool(count: int, **options: Any) -> CandidateTable:
    """Return the turns of one session as candidates, equal except for the given columns."""
    rows = np.arange(count, dtype=np.int64)
    traits = {
        "flags": np.zeros(count, np.int64),
        "words": np.full(count, 20, np.float32),
        "sessions": np.zeros(count, np.int64),
        "speakers": np.full(count, -1, np.int64),
        "at_s": np.full(count, NOON.timestamp()),
        "embedded": np.ones(count, np.bool_),
    }
    columns = {
        "dense": np.zeros(count, np.float32),
        "has_dense": np.ones(count, np.bool_),
        "lexical": np.zeros(count, np.float32),
        "coverage": np.zeros(count, np.float32),
        "before": rows - 1,
        "after": np.where(rows + 1 < count, rows + 1, -1),
    }
    for name, values in options.items():
        stored = traits if name in traits else columns
        stored[name] = np.asarray(values, stored[name].dtype)
    return CandidateTable(rows=rows, traits=Traits(**traits), **columns)


def query_stats(question: str = "what about tea", **options: Any) -> QueryStats:
    usual: dict[str, Any] = {
        "terms": 2, "count": 9, "missing": 0.0, "unknown_names": False, "named": (), "mean": 0.0, "spread": 1.0,
        "calibration": Calibration(0.0, 0.1, 1.0),
    }  # fmt: skip
    return QueryStats(question=analyze_question(question), **usual | options)


def of(name: str, candidates: CandidateTable, stats: QueryStats | None = None) -> list[float]:
    return [
        round(float(value), 5) for value in feature_column(compute_features(candidates, stats or query_stats()), name)
    ]


def test_neighbour_features_are_those_of_the_turns_one_and_two_away() -> None:
    text = pool(4, dense=[0.1, 0.2, 0.3, 0.4], lexical=[0.5, 0.0, 0.25, 0.0])
    assert of("previous_semantic", text) == [0, 0.1, 0.2, 0.3]
    assert of("next_semantic", text) == [0.2, 0.3, 0.4, 0]
    assert of("previous2_semantic", text) == [0, 0, 0.1, 0.2]
    assert of("next2_semantic", text) == [0.3, 0.4, 0, 0]
    assert of("previous_lexical", text) == [0, 1, 0, 0.5]
    assert of("next_lexical", text) == [0, 0.5, 0, 0]
    assert of("previous2_lexical", text) == [0, 0, 1, 0]
    assert of("next2_lexical", text) == [0.5, 0, 0, 0]


def test_memories_without_a_session_have_no_neighbour_features() -> None:
    alone = pool(3, dense=[0.1, 0.2, 0.3], before=[-1, -1, -1], after=[-1, -1, -1], sessions=[-1, -1, -1])
    for name in FEATURE_NAMES:
        if name.startswith(("previous", "next", "reply", "starts")):
            assert of(name, alone) == [0, 0, 0], name


def test_reply_features_are_those_of_the_previous_question() -> None:
    flags = [Trait.TURN | Trait.ASKS, Trait.TURN, Trait.TURN]
    text = pool(3, dense=[0.4, 0.1, 0.1], lexical=[0.2, 0.1, 0.0], flags=flags)
    assert of("reply_semantic", text) == [0, 0.4, 0]
    assert of("reply_lexical", text) == [0, 1, 0]
    assert of("is_question", text) == [1, 0, 0]


def test_session_features_are_the_best_of_the_session_or_its_own_without_one() -> None:
    text = pool(5, dense=[0.1, 0.4, 0.2, 0.3, 0.25], sessions=[0, 0, 1, 1, -1])
    assert of("session_semantic", text) == [0.4, 0.4, 0.3, 0.3, 0.25]
    text = pool(3, lexical=[0.1, 0.2, 0.05], sessions=[7, 7, -1])
    assert of("session_lexical", text) == [1, 1, 0.25]


def test_speakers_named_in_the_question_are_distinguished_from_others() -> None:
    text = pool(4, speakers=[0, 1, -1, 0])
    assert of("speaker_named", text, query_stats(named=(0,))) == [1, 0, 0, 1]
    assert of("speaker_not_named", text, query_stats(named=(0,))) == [0, 1, 0, 0]
    assert of("q_names_speaker", text, query_stats(named=(0,))) == [1, 1, 1, 1]
    assert of("speaker_named", text) == of("speaker_not_named", text) == of("q_names_speaker", text) == [0, 0, 0, 0]
    assert of("speaker_not_named", text, query_stats(named=(0, 1))) == [0, 0, 0, 0]


def test_product_features_depend_on_the_kind_of_question() -> None:
    flags = [Trait.TELLS_TIME, Trait.COUNTS, Trait.INSTRUCTION, Trait.PREFERS]
    text = pool(4, flags=flags)
    assert of("has_time_x_asks_when", text, query_stats("When did I move?")) == [1, 0, 0, 0]
    assert of("has_number_x_asks_count", text, query_stats("How many are there?")) == [0, 1, 0, 0]
    advice = query_stats("Can you suggest a hotel?")
    assert of("instruction_x_asks_advice", text, advice) == [0, 0, 1, 0]
    assert of("preference_x_asks_advice", text, advice) == [0, 0, 0, 1]
    for name in filter(lambda name: "_x_asks_" in name, FEATURE_NAMES):
        assert of(name, text, query_stats("tea")) == [0, 0, 0, 0], name
    reply = pool(1, flags=[Trait.ASSISTANT])
    assert of("by_assistant_x_to_assistant", reply, query_stats("What did you say?")) == [1]
    assert of("by_assistant_x_to_assistant", reply, query_stats("tea")) == [0]


def test_memories_of_the_period_in_the_question_are_nearest_to_it() -> None:
    then = [datetime(2026, 3, 14, 9, tzinfo=UTC).timestamp(), datetime(2025, 1, 1, tzinfo=UTC).timestamp()]
    stats = query_stats(periods=tuple(find_periods("what happened yesterday?", at=NOON)))
    near, far = of("in_period", pool(2, at_s=then), stats)
    assert near == 1 > far
    assert of("in_period", pool(2, at_s=then)) == [0, 0]


def test_features_of_the_question_are_the_same_for_all_candidates() -> None:
    table = compute_features(
        pool(3, dense=[0.1, 0.7, 0.2], lexical=[0, 0.3, 0.6], coverage=[0, 1, 0.5]), query_stats(missing=0.4)
    )
    for name in FEATURE_NAMES:
        if name.startswith("q_"):
            assert len(set(feature_column(table, name).tolist())) == 1, name
    assert feature_column(table, "q_best_coverage")[0] == 1
    assert feature_column(table, "q_best_lexical")[0] == pytest.approx(0.6)
    assert feature_column(table, "q_missing_terms")[0] == pytest.approx(0.4)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_few_candidates_or_none_have_finite_features(count: int) -> None:
    table = compute_features(pool(count), query_stats(terms=0, spread=1e-3))
    assert table.shape == (count, len(FEATURE_NAMES))
    assert table.dtype == np.float32
    assert np.isfinite(table).all()


def traced(memory: Memory, question: str, **options: Any) -> dict[str, TracedCandidate]:
    hits = memory.search(question, user_id="a", trace=True, limit=50, **options)
    return {each.memory: each for each in hits.candidates}


@pytest.fixture
def memory(tmp_path: Path) -> Any:
    settings = Settings(home=tmp_path, search_min_score=0.0)
    with Memory(settings=settings, embedder=FakeEmbedder(64)) as memory:
        yield memory


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_a_small_memory_gives_finite_scores_from_0_to_1(memory: Memory, count: int) -> None:
    for number in range(count):
        memory.add(f"tea number {number}", user_id="a")
    hits = memory.search("tea", user_id="a", trace=True)
    assert len(hits) == count
    for each in hits.candidates:
        assert 0 <= each.score <= 1
        assert 0 <= each.relevance <= 1
        assert set(each.features) == set(FEATURE_NAMES)
        assert np.isfinite(list(each.features.values())).all()


def test_equal_vectors_give_finite_scores(memory: Memory) -> None:
    for number in range(5):
        memory.add(f"tea {number}", user_id="a", embedding=[1.0] + [0.0] * 63)
    for vector in ([1.0] + [0.0] * 63, [0.0, 1.0] + [0.0] * 62):
        hits = memory.search("tea", user_id="a", embedding=vector)
        assert len(hits) == 5
        assert all(0 <= hit.score <= 1 for hit in hits)


def test_neighbours_are_turns_of_the_same_session(memory: Memory) -> None:
    messages = [{"role": "user", "content": text} for text in ("apples apples", "rain")]
    memory.remember(messages, user_id="a", session_id="one")
    memory.remember("snow", user_id="a", session_id="two")
    memory.remember("wind", user_id="a", session_id="one")
    seen = traced(memory, "apples", session_id="one")
    assert seen["rain"].features["previous_lexical"] == 1
    assert seen["wind"].features["previous2_lexical"] == 1
    assert seen["wind"].features["previous_lexical"] == 0
    assert seen["apples apples"].features["starts_session"] == 1
    assert seen["wind"].features["starts_session"] == 0


def test_a_speaker_is_recognised_by_first_name(memory: Memory) -> None:
    turns = [("Ann Lee", "I drink tea"), ("Bob", "I drink tea as well")]
    messages = [{"role": "user", "name": name, "content": text} for name, text in turns]
    memory.remember(messages, user_id="a", session_id="s")
    memory.add("Tea is a drink", user_id="a")
    seen = traced(memory, "What does Ann drink?", session_id="s")
    names = ("speaker_named", "speaker_not_named")
    speakers = {text: tuple(each.features[name] for name in names) for text, each in seen.items()}
    assert speakers == {"I drink tea": (1, 0), "I drink tea as well": (0, 1), "Tea is a drink": (0, 0)}
    assert seen["I drink tea"].features["q_unknown_name"] == 0


def test_a_name_that_no_memory_has_is_unknown(memory: Memory) -> None:
    memory.add("Melanie drinks tea", user_id="a")
    for question, unknown in (
        ("What does Caroline drink?", 1),
        ("What does Melanie drink?", 0),
        ("what does she drink?", 0),
        ("Melanie drinks what?", 0),
        ("что пьёт моя собака?", 0),
    ):
        assert traced(memory, question)["Melanie drinks tea"].features["q_unknown_name"] == unknown, question


def test_every_weight_belongs_to_a_feature() -> None:
    text = Path(recollect.read.fuse.__file__).with_name("blend_without_late.toml").read_text(encoding="utf-8")
    learned = learned_blend(has_late=False).weights
    assert parse_blend(text, FEATURE_NAMES).weights.tolist() == learned.tolist()
    assert learned.shape == (len(FEATURE_NAMES),)
    assert np.isfinite(learned).all()
    assert len(set(FEATURE_NAMES)) == len(FEATURE_NAMES)
    assert learned.any()


def test_a_weight_of_an_unknown_feature_is_rejected() -> None:
    with pytest.raises(ValueError, match="moonlight"):
        parse_blend("base = 0.0\n[weights]\nmoonlight = 1.0", FEATURE_NAMES)


def test_a_feature_without_a_weight_has_no_effect() -> None:
    blend = parse_blend("base = 0.0\n[weights]\ncoverage = 2.0", FEATURE_NAMES)
    table = compute_features(pool(2, coverage=[0, 1]), query_stats())
    assert blend.relevance(table, 10**9) == pytest.approx([0.5, 1 / (1 + np.exp(-2))])
