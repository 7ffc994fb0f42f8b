"""What is over, as models tell it: as an end, in the words in which it was known, or in words that deny it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect import Memory
from recollect.testing.scripted_llm import ScriptedLLM
from tests.remember_samples import ALEX, changes, claim, contents, facts, learns, opened, say, user

VEGAN = "User is vegan"


@pytest.fixture
def llm() -> Iterator[ScriptedLLM]:
    with ScriptedLLM() as llm:
        yield llm


@pytest.fixture
def memory(tmp_path: Path, llm: ScriptedLLM) -> Iterator[Memory]:
    learns(llm, "I am vegan", claim(VEGAN, category="constraint", key="diet", value="vegan"))
    with opened(tmp_path, llm) as memory:
        say(memory, "I am vegan")
        yield memory


def test_an_end_is_replaced_by_the_statement_that_it_is_over(memory: Memory, llm: ScriptedLLM) -> None:
    changes(llm, "anymore", "end", VEGAN, "User is no longer vegan")
    say(memory, "I am not vegan anymore")
    [now] = facts(memory)
    [before] = memory.get_all(user_id=ALEX, statuses=["superseded"])
    assert (now.content, now.key) == ("User is no longer vegan", None)
    assert (before.content, before.superseded_by) == (VEGAN, now.id)
    assert before.valid_to is not None


def test_an_end_told_in_the_old_words_only_closes_the_memory(memory: Memory, llm: ScriptedLLM) -> None:
    changes(llm, "anymore", "end", VEGAN, VEGAN)
    say(memory, "I am not vegan anymore")
    [closed] = facts(memory)
    assert (closed.content, closed.valid_to is not None) == (VEGAN, True)
    assert VEGAN not in memory.recall(user("What is my diet, am I vegan?"), user_id=ALEX).context.text.replace(
        "I am vegan", ""
    )


def test_in_the_shape_of_a_list_of_facts_the_key_says_what_ends(memory: Memory, llm: ScriptedLLM) -> None:
    ended = claim("User is no longer vegan", key="diet", value="vegan", change="ended")
    ended.pop("op")
    learns(llm, "anymore", ended)
    say(memory, "I am not vegan anymore")
    assert contents(facts(memory)) == ["User is no longer vegan"]


def test_undo_brings_back_what_was_ended(memory: Memory, llm: ScriptedLLM) -> None:
    changes(llm, "anymore", "end", VEGAN, "User is no longer vegan")
    say(memory, "I am not vegan anymore")
    memory.undo(user_id=ALEX)
    assert contents(facts(memory)) == [VEGAN]


def test_an_assistants_words_end_nothing(memory: Memory, llm: ScriptedLLM) -> None:
    changes(llm, "eat", "end", VEGAN, "User is no longer vegan", lines=[2])
    say(memory, [*user("What do I eat?"), {"role": "assistant", "content": "You are no longer vegan."}])
    assert contents(facts(memory)) == [VEGAN]
