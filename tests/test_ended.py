"""What is over, as models tell it: in the words in which it was known, or in words that deny it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect import Memory
from recollect.testing.scripted_llm import ScriptedLLM
from tests.remember_samples import ALEX, claim, contents, facts, learns, opened, say

DIET: dict[str, Any] = {"category": "constraint", "key": "diet", "value": "vegan"}


@pytest.fixture
def llm() -> Iterator[ScriptedLLM]:
    with ScriptedLLM() as llm:
        yield llm


@pytest.fixture
def memory(tmp_path: Path, llm: ScriptedLLM) -> Iterator[Memory]:
    with opened(tmp_path, llm) as memory:
        yield memory


def tell(memory: Memory, llm: ScriptedLLM, said: str, *claims: dict[str, Any]) -> None:
    learns(llm, said, *claims)
    say(memory, said)


@pytest.mark.parametrize(
    ("told", "left"),
    [
        (claim("User is vegan", change="ended", **DIET), "No longer true: User is vegan"),
        (claim("User is vegan", change="ended"), "No longer true: User is vegan"),
        (claim("User is no longer vegan", change="ended", **DIET), "User is no longer vegan"),
        (
            claim("User is no longer vegan", change="ended", **{**DIET, "value": "not vegan"}),
            "User is no longer vegan",
        ),
    ],
    ids=["as-it-was", "as-it-was-without-key", "denied", "denied-by-the-value"],
)
def test_a_trait_that_is_over_is_known_no_more_however_it_is_told(
    memory: Memory, llm: ScriptedLLM, told: dict[str, Any], left: str
) -> None:
    tell(memory, llm, "I am vegan", claim("User is vegan", **DIET))
    tell(memory, llm, "I am not vegan anymore", told)
    assert contents(facts(memory)) == [left]
    [before] = memory.get_all(user_id=ALEX, statuses=["superseded"])
    assert before.content == "User is vegan"
    [now] = facts(memory)
    assert (now.key, before.superseded_by) == (None, now.id)


@pytest.mark.parametrize(
    ("first", "known", "then", "over"),
    [
        ("I own a kayak", "User owns a kayak", "I don't own a kayak anymore", "User owns a kayak"),
        ("I own a kayak", "User owns a kayak", "I sold my kayak", "User owns a kayak"),
        ("I own a red kayak", "User owns a red kayak", "I sold my kayak", "User owns a kayak"),
        ("I own a kayak", "User owns a kayak", "I sold it, my brother owns a kayak now", "User owns a kayak"),
        ("I live in Rome", "User lives in Rome", "I moved out of Rome", "User lives in Rome"),
        ("I do not eat meat", "User does not eat meat", "I eat meat again", "User does not eat meat"),
    ],
)
def test_what_is_over_is_ended_where_the_model_repeats_it(
    memory: Memory, llm: ScriptedLLM, first: str, known: str, then: str, over: str
) -> None:
    tell(memory, llm, first, claim(known))
    tell(memory, llm, then, claim(over, change="ended"))
    assert contents(facts(memory)) == [f"No longer true: {over}"]


def test_of_a_list_only_what_is_over_goes(memory: Memory, llm: ScriptedLLM) -> None:
    tell(memory, llm, "I like tea and coffee", claim("User likes tea and coffee"))
    tell(memory, llm, "I do not like tea anymore", claim("User likes tea", change="ended"))
    assert contents(facts(memory)) == ["User likes coffee"]


def test_what_is_over_and_what_holds_instead_are_both_known(memory: Memory, llm: ScriptedLLM) -> None:
    tell(memory, llm, "I am vegan", claim("User is vegan", **DIET))
    ended = claim("User is vegan", change="ended", **DIET)
    new = claim("User is vegetarian", **{**DIET, "value": "vegetarian"})
    tell(memory, llm, "I am not vegan anymore, I am vegetarian now", ended, new)
    assert contents(facts(memory)) == ["No longer true: User is vegan", "User is vegetarian"]
    assert [record.value for record in facts(memory) if record.key == "diet"] == ["vegetarian"]


def test_that_something_unknown_is_over_is_not_kept_as_if_it_were_so(memory: Memory, llm: ScriptedLLM) -> None:
    tell(memory, llm, "I sold my kayak", claim("User owns a kayak", change="ended"))
    assert contents(facts(memory)) == []


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("I am vegan again", "User is vegan"),
        ("As I told you, I do not eat meat", "User does not eat meat"),
        ("I sold my kayak, as I said", "User sold their kayak"),
        ("Tennis with Olga? That is history", "User's tennis lessons with Olga are over"),
        ("Acme and I part ways in May", "User is leaving Acme in May"),
    ],
)
def test_what_the_user_says_themselves_is_not_over(memory: Memory, llm: ScriptedLLM, said: str, told: str) -> None:
    tell(memory, llm, told.replace("User", "I"), claim(told))
    tell(memory, llm, said, claim(told, change="ended"))
    assert contents(facts(memory)) == [told]


def test_what_only_the_assistant_says_is_over_is_neither_ended_nor_kept_again(
    memory: Memory, llm: ScriptedLLM
) -> None:
    tell(memory, llm, "I own a kayak", claim("User owns a kayak"))
    learns(llm, "Hello", claim("User owns a canoe", change="ended", by="assistant", turns=[2]))
    say(
        memory,
        [
            {"role": "user", "content": "Hello, what about my boats?"},
            {"role": "assistant", "content": "You no longer own a canoe, nor a kayak."},
        ],
    )
    assert contents(facts(memory)) == ["User owns a kayak"]
