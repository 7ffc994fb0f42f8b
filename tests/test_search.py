"""Search through the Python door: what may be found is found, however much else there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect import Memory, Settings
from recollect.config.settings import preset_names
from recollect.testing.fake_embedder import FakeEmbedder

CROWD = 300


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(home=tmp_path, embedder=FakeEmbedder(16)) as memory:
        yield memory


def crowd(memory: Memory, **fields: object) -> None:
    memory.import_({"memory": f"tea tea tea {number}", "user_id": "a", **fields} for number in range(CROWD))


def lexical_hits(memory: Memory, **options: object) -> list[str]:
    # A vector that is like nothing: only words can find anything here.
    result = memory.search("tea", user_id="a", limit=5, embedding=[0.0] * 15 + [1.0], **options)  # type: ignore[arg-type]
    return [hit.memory for hit in result if hit.scores["lexical"] > 0]


def test_memories_of_other_projects_do_not_crowd_out_ones_own(memory: Memory) -> None:
    crowd(memory, project_id="other")
    memory.add("one cup of tea after a very long walk in the hills", user_id="a")
    assert lexical_hits(memory) == ["one cup of tea after a very long walk in the hills"]


def test_forgotten_memories_do_not_crowd_out_the_others(memory: Memory) -> None:
    crowd(memory)
    memory.delete_all(user_id="a")
    memory.add("one cup of tea after a very long walk in the hills", user_id="a")
    assert len(lexical_hits(memory)) == 1


def test_filtered_memories_do_not_crowd_out_the_others(memory: Memory) -> None:
    crowd(memory)
    memory.add("one cup of tea after a very long walk in the hills", user_id="a", tags=["walk"])
    assert len(lexical_hits(memory, filters={"tags": "walk"})) == 1


def test_the_ledger_in_memory_ranks_like_the_one_on_disk(tmp_path: Path) -> None:
    texts = ["apple banana cherry", "banana", "cherry pie", "apple tart", "plum"]
    answers = []
    for settings in (
        Settings(home=tmp_path, late_interaction=False),
        Settings(database="memory:", late_interaction=False),
    ):
        with Memory(settings=settings, embedder=FakeEmbedder(16)) as memory:
            for text in texts:
                memory.add(text, user_id="a")
            hits = memory.search("cherry banana apple", user_id="a")
            answers.append([(hit.memory, round(hit.score, 4)) for hit in hits])
    assert answers[0] == answers[1]
    assert answers[0][0][0] == "apple banana cherry"


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_finds_the_answer(tmp_path: Path, preset: str) -> None:
    with Memory(home=tmp_path, preset=preset) as memory:
        memory.add("The budget for the Hawaii trip is $10,000", user_id="a")
        memory.add("The dentist is on Tuesday", user_id="a")
        assert memory.search("What is my budget for the trip?", user_id="a")[0].memory.startswith("The budget")


@pytest.mark.parametrize(("question", "answer"), [("where do I live?", "Bergen"), ("where do i work?", "Equinor")])
def test_of_a_message_with_several_facts_only_the_changed_one_is_replaced(
    everyday: Memory, question: str, answer: str
) -> None:
    assert answer in everyday.search(question, user_id="ann", limit=5)[0].memory


@pytest.fixture(scope="module")
def everyday(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    """The memory of a user who says several things in one message, and changes one of them."""
    # Which rows a search encodes itself depends on the time it has.
    settings = Settings(home=tmp_path_factory.mktemp("everyday"), late_interaction=False)
    with Memory(settings=settings) as memory:
        for text in (
            "My name is Ann Larsen and I live in Oslo. I work at Equinor as a data engineer.",
            "I'm allergic to peanuts, and my daughter Ida is 7.",
            "Please always answer me briefly, and use metric units.",
            "I moved to Bergen last week, the new flat is near the harbour.",
            "We cancelled the gym; I run along the fjord three times a week now.",
        ):
            memory.remember(text, user_id="ann", wait=True)
        yield memory


def test_an_earlier_turn_that_asks_the_same_is_no_answer(tmp_path: Path) -> None:
    with Memory(home=tmp_path) as memory:
        for at, text in enumerate(("How do we deploy?", "We deploy with make ship")):
            memory.remember(text, user_id="a", session_id=f"s{at}")
        for query in ("how do we deploy", "How do we deploy?"):
            assert memory.search(query, user_id="a")[0].memory == "We deploy with make ship"
            assert "How do we deploy?" not in [hit.memory for hit in memory.search(query, user_id="a")]
        # Who looks for the words of a statement finds it.
        assert memory.search("We deploy with make ship", user_id="a")[0].memory == "We deploy with make ship"
