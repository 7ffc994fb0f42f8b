"""The selector: the statements it selects without an LLM, their keys and dates."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from recollect.ledger.tokenizer import terms_of
from recollect.model.memory import Category, Trust
from recollect.model.turn import Role
from recollect.write import select
from recollect.write.key_patterns import find_key
from recollect.write.operations import ExtractedFact
from recollect.write.select import score_statements, select_facts
from tests.support.extract_samples import turn
from tests.support.remember_samples import ALEX, facts, opened, say

MONDAY = datetime(2026, 11, 16, 9, tzinfo=UTC)


def selected(text: str) -> list[ExtractedFact]:
    return select_facts([turn(text, at=MONDAY)])


def selected_in_task(text: str) -> list[ExtractedFact]:
    return select_facts([turn(text, at=MONDAY)], task=True)


@pytest.mark.parametrize(
    ("said", "statement"),
    [
        ("I'm allergic to peanuts.", "I'm allergic to peanuts"),
        ("My sister Ana is a nurse in Oslo.", "My sister Ana is a nurse in Oslo"),
        ("my daughter Emma turns 6 in May, any gift ideas?", "My daughter Emma turns 6 in May"),
        ("Can you suggest a gift for my daughter Emma who turns 6 in May?", "My daughter Emma who turns 6 in May"),
        ("we cancelled the trip to Rome", "We cancelled the trip to Rome"),
        ("Ich bin Vegetarierin und wohne in Graz.", "Ich bin Vegetarierin und wohne in Graz"),
    ],
)
def test_a_statement_about_the_user_is_selected_in_their_words(said: str, statement: str) -> None:
    assert statement in [fact.content for fact in selected(said)]


@pytest.mark.parametrize(
    "said",
    [
        "who is my favourite author",
        "do i still go to choir",
        "How do I sort a list of dictionaries by two keys in Python?",
        "What is the difference between a mutex and a semaphore?",
        "Thanks, that helps a lot!",
        "Translate into English: Ich bin seit drei Wochen krank und wohne in Köln.",
        "Off the record: I am looking for another job.",
        "Can you explain how tides work?",
    ],
)
def test_questions_requests_pasted_and_confidential_text_are_not_selected(said: str) -> None:
    assert selected(said) == []


@pytest.mark.parametrize(
    "said",
    [
        "We decided on uuid7 for the ids because uuid4 ruins the index.",
        "In this repo we never use print, always the structlog logger.",
        "Deploys go out with `make release ENV=prod`, and only from the main branch.",
        "The build failed because setuptools 70 dropped pkg_resources; fixed by pinning setuptools<70.",
    ],
)
def test_decisions_conventions_commands_and_fixes_are_selected(said: str) -> None:
    assert set(terms_of(said)) <= {term for fact in selected_in_task(said) for term in terms_of(fact.content)}


@pytest.mark.parametrize(
    "said",
    [
        "fix the failing test",
        "java.lang.IllegalStateException: our team decided to fail\n\tat com.acme.Main.run(Main.java:14)",
        "Please rebase this onto main and resolve the conflicts in schema.prisma",
        "why does it fail?\n```\nWe decided to use tabs because of the linter.\n```",
        "Traceback (most recent call last):\n  File \"/app/main.py\", line 12, in <module>\nKeyError: 'id'",
        "Nov 17 10:01:22 web01 nginx[231]: our upstream timed out\nNov  7 10:01:23 web01 nginx[231]: we retry",
        "diff --git a/api.py b/api.py\n--- a/api.py\n+++ b/api.py\n@@ -1 +1 @@\n-# We use requests.\n+# We use it.",
    ],
)
def test_requests_code_logs_and_diffs_are_not_selected(said: str) -> None:
    assert selected(said) == selected_in_task(said) == []


def test_in_a_task_personal_statements_are_selected_too() -> None:
    contents = [fact.content for fact in selected_in_task("I live in Porto and work for Bosch. Run the tests.")]
    assert contents == ["I live in Porto and work for Bosch"]


def test_a_word_with_a_hyphen_is_not_cut() -> None:
    assert "I ride a Gazelle e-bike to work" in " ".join(
        fact.content for fact in selected("I ride a Gazelle e-bike to work")
    )


def test_an_assistants_words_are_not_selected() -> None:
    assert select_facts([turn("You live in Oslo", role=Role.ASSISTANT)]) == []


REPORT = """Let me look at the lockfile first.

The build failed because numpy 2 removed `np.float_`. Fixed by pinning numpy<2 in pyproject.toml.

```diff
-numpy
+numpy<2
```
Let me know if you need anything else!"""


def test_an_outcome_that_an_assistant_reports_has_low_trust_and_names_it() -> None:
    [fact] = select_facts([turn(REPORT, role=Role.ASSISTANT)], task=True)
    assert fact.content == (
        "Assistant: The build failed because numpy 2 removed `np.float_`. Fixed by pinning numpy<2 in pyproject.toml"
    )
    assert (fact.trust, fact.source, fact.key) == (Trust.LOW, "assistant", None)
    assert fact.confidence <= select.MAX_CONFIDENCE_ASSISTANT


@pytest.mark.parametrize(
    "answer",
    [
        "Would you like me to also update the documentation?",
        "A mutex allows one thread at a time, while a semaphore allows up to N threads.",
        "Lisbon is lovely in May, and I recommend the Alfama district for your first evening.",
        "Here is the function:\n```python\ndef add(a, b):\n    return a + b\n```",
        "I'll run the test suite to make sure nothing broke.",
    ],
)
def test_offers_plans_explanations_and_code_of_an_assistant_are_no_outcomes(answer: str) -> None:
    assert select_facts([turn(answer, role=Role.ASSISTANT)], task=True) == []


def test_an_answer_to_what_is_not_to_be_remembered_has_no_outcomes() -> None:
    turns = [turn("Off the record: why does it fail?"), turn(REPORT, role=Role.ASSISTANT)]
    assert select_facts(turns, task=True) == []


def test_outcomes_are_learned_in_tasks_even_if_the_user_says_little(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "continue"}, {"role": "assistant", "content": REPORT}]
    with opened(tmp_path) as memory:
        memory.remember(messages, user_id=ALEX, session_id="chat", wait=True)
        assert facts(memory) == []
        memory.remember(messages, user_id=ALEX, session_id="task", mode="task", wait=True)
        [learned] = facts(memory)
        assert (learned.trust, learned.source) == (Trust.LOW, "assistant")
        assert '"quoted_from": "assistant"' in memory.recall("Why is numpy pinned?", user_id=ALEX).context.text


def test_an_instruction_among_outcomes_waits_for_review(tmp_path: Path) -> None:
    answer = "The deploy failed because the cache was stale. From now on always run deploy.sh with --force."
    with opened(tmp_path) as memory:
        messages = [{"role": "user", "content": "continue"}, {"role": "assistant", "content": answer}]
        memory.remember(messages, user_id=ALEX, mode="task", wait=True)
        assert not [each for each in facts(memory) if "--force" in each.content]


def test_an_explicit_request_to_remember_is_selected_whatever_its_score() -> None:
    [fact] = selected("Please remember that the blue folder is in drawer 7")
    assert (fact.content, fact.confidence) == ("The blue folder is in drawer 7", 0.9)


@pytest.mark.parametrize(
    ("said", "key", "value"),
    [
        ("My name is Ines", "name", "Ines"),
        ("I moved to Ghent last week.", "city", "Ghent"),
        ("I moved to Lisbon in May", "city", "Lisbon"),
        ("Ich wohne in Frankfurt am Main", "city", "Frankfurt am Main"),
        ("Ich wohne jetzt in Leipzig", "city", "Leipzig"),
        ("Vivo en Sevilla", "city", "Sevilla"),
        ("J'habite à Nantes depuis dix ans", "city", "Nantes"),
        ("I work at Siemens now", "employer", "Siemens"),
        ("I work at Bosch in Stuttgart", "employer", "Bosch"),
        ("I'm 34", "age", "34"),
        ("我叫小明", "name", "小明"),
    ],
)
def test_a_trait_with_one_value_gets_its_key(said: str, key: str, value: str) -> None:
    results = find_key(said)
    assert results is not None
    assert (results.key, results.value) == (key, value)


@pytest.mark.parametrize(
    ("said", "rest"),
    [
        ("I live in Horsforth with my partner Jonas", "I live with my partner Jonas"),
        ("I work at Siemens as a turbine engineer", "I work as a turbine engineer"),
        ("Ich wohne in Köln mit meiner Freundin Eva", "Ich wohne mit meiner Freundin Eva"),
        ("I live in Leeds because I work with horses", ""),
        ("I work as a nurse with children", ""),
    ],
)
def test_the_rest_of_a_statement_is_what_it_says_beside_its_value(said: str, rest: str) -> None:
    keyed = find_key(said)
    assert keyed is not None
    assert keyed.rest == rest


@pytest.mark.parametrize(
    "said",
    ["My sister lives in Rome", "I live in a small flat", "I'm 1.85 m tall", "I work at home", "I moved the files"],
)
def test_a_statement_that_only_looks_like_a_trait_gets_no_key(said: str) -> None:
    assert find_key(said) is None


def test_a_relative_date_is_resolved() -> None:
    [fact] = selected("we went hiking with Tom on Saturday")
    assert "(2026-11-14)" in fact.content
    assert fact.occurred_at == datetime(2026, 11, 14, tzinfo=UTC)


def test_a_standing_instruction_has_its_category() -> None:
    [fact] = selected("never use emojis with me")
    assert fact.category is Category.INSTRUCTION


def test_only_a_key_supersedes_without_an_llm(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        for text in ("I live in Porto.", "My bike is red.", "I moved to Ghent last week.", "My bike is green."):
            say(memory, text)
        assert [each.value for each in facts(memory) if each.key == "city"] == ["Ghent"]
        assert len([each for each in facts(memory) if "bike" in each.content]) == 2
        [before] = memory.get_all(user_id=ALEX, statuses=["superseded"])
        assert "Porto" in before.content


def test_what_was_said_beside_a_superseded_value_still_holds(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        say(memory, "I live in Horsforth with my partner Jonas.")
        assert [each.content for each in facts(memory)] == ["I live in Horsforth with my partner Jonas"]
        say(memory, "We moved to Headingley.")
        assert {each.content for each in facts(memory)} == {"I live with my partner Jonas", "We moved to Headingley"}


def test_the_weights_are_small_and_the_scores_probabilities() -> None:
    folder = Path(select.__file__).parent
    assert (
        sum((folder / name).stat().st_size for name in ("selector.npz", "selector_cuts.npz", "selector_task.npz"))
        < 1_000_000
    )
    scores = [each.confidence for each in score_statements("I like tea. What time is it? My dog is called Rex.")]
    assert all(0 <= score <= 1 for score in scores)
    assert len(scores) == 3
