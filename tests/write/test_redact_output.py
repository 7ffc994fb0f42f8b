"""Text of models and of the selector is stored without secrets and invisible characters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recollect.maintenance.consolidate import MergeCandidate, parse_merge
from recollect.maintenance.reflect import parse_insights
from recollect.model.ids import new_id
from recollect.model.memory import Category, MemoryRecord, MemoryType
from recollect.model.scope import Level, Scope
from recollect.model.times import now
from recollect.sessions.summary_text import summarize_extractively
from recollect.testing.scripted_llm import ScriptedLLM
from recollect.write.ask_llm import clean_answer
from recollect.write.operations import ExtractedFact
from recollect.write.redact import drop_secret_facts, is_only_secret
from tests.support.extract_samples import turn
from tests.support.remember_samples import claim, contents, facts, learns, opened, say

KEY = "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
MARKED = "[redacted: GitHub token]"


def learned_by_llm(home: Path, text: str, *claims: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Return the memories after the LLM answered with these operations, and the result of the job."""
    with ScriptedLLM() as llm, opened(home, llm) as memory:
        learns(llm, text[:20], *claims)
        result = say(memory, text)
        return contents(facts(memory)), result


@pytest.mark.parametrize(
    ("said", "claimed"),
    [
        ("The PIN for my card is 4821", "User's card PIN is 4821"),
        ("My Netflix password was changed to Qwerty99!", "User's Netflix password is Qwerty99!"),
        # A secret only in the words of the model.
        ("For Netflix I type Qwerty99 these days", "User's Netflix password is Qwerty99"),
    ],
)
def test_a_secret_in_a_fact_is_neither_stored_nor_reported(tmp_path: Path, said: str, claimed: str) -> None:
    existing, result = learned_by_llm(tmp_path, said, claim(claimed))
    assert existing == []
    assert "secret" in result["dropped"][0]
    assert not any(secret in str(result) for secret in ("4821", "Qwerty99"))


def test_the_rest_of_a_fact_is_stored_without_the_secret(tmp_path: Path) -> None:
    text = "I live in Graz and for Netflix I type Qwerty these days"
    existing, _ = learned_by_llm(tmp_path, text, claim("User lives in Graz and the Netflix password is Qwerty"))
    assert existing == ["User lives in Graz and the Netflix password is [redacted: password]"]


def test_a_value_whose_key_names_a_secret_is_dropped() -> None:
    keyed = ExtractedFact(content="User has a phone", key="phone_pin", value="4821")
    [stored], _ = drop_secret_facts([keyed])
    assert (stored.content, stored.key, stored.value) == ("User has a phone", None, None)
    plain = ExtractedFact(content="User lives in Graz", key="city", value="Graz")
    assert drop_secret_facts([plain]) == ([plain], [])


def test_invisible_characters_of_a_model_are_removed(tmp_path: Path) -> None:
    claimed = claim(
        "User is allergic to nuts\u200b", category="constraint", key="allergy", value="nu\u200bts\U000e0041"
    )
    with ScriptedLLM() as llm, opened(tmp_path, llm) as memory:
        learns(llm, "allergic", claimed)
        say(memory, "I am allergic to nuts")
        [fact] = facts(memory)
        assert (fact.content, fact.value) == ("User is allergic to nuts", "nuts")


@pytest.mark.parametrize(
    "text",
    [
        "User's favorite password is [redacted: password]",
        "I use [redacted: web token] as token",
        "User uses the PIN [redacted: PIN] for their phone",
        "[redacted: password] is my old wifi password",
        "[redacted: api key]",
        "My card number is [redacted: card number], cvc: [redacted: PIN]",
        "User's Netflix password is [redacted: password], ok?",
    ],
)
def test_a_statement_that_only_states_a_secret_is_recognised(text: str) -> None:
    assert is_only_secret(text)


@pytest.mark.parametrize(
    "text",
    [
        "User lives in Graz",
        "User's password manager is Bitwarden",
        "User lives in Graz and the wifi password is [redacted: password]",
        "User's database is postgres://bob:[redacted: password]@db.example:5432/x",
        "User deployed the weather service to Frankfurt with [redacted: api key]",
    ],
)
def test_a_statement_with_other_content_is_not_only_a_secret(text: str) -> None:
    assert not is_only_secret(text)


@pytest.mark.parametrize(
    "said",
    ["I use hunter22 as my password.", "My favorite password is hunter22.", "I use the pin 4821 for my phone."],
)
def test_the_selector_stores_no_secret(tmp_path: Path, said: str) -> None:
    with opened(tmp_path) as memory:
        say(memory, said)
        assert not any(secret in each.content for each in facts(memory) for secret in ("hunter22", "4821"))
        say(memory, "I use Emacs as my editor.")
        assert "I use Emacs as my editor" in contents(facts(memory))


def test_a_summary_contains_no_secret() -> None:
    assert clean_answer(f"Summary: Ines deployed with {KEY} on Monday.") == f"Ines deployed with {MARKED} on Monday."
    picked = summarize_extractively(
        [turn(f"I live in Graz, and I deploy to Frankfurt with {KEY} every Monday.")], max_chars=400
    )
    assert KEY not in picked.text
    assert MARKED in picked.text


def record(content: str) -> MemoryRecord:
    return MemoryRecord(
        id=new_id(), scope=Scope("alex"), level=Level.USER, type=MemoryType.SEMANTIC, category=Category.FACT,
        content=content, created_at=now(), updated_at=now(), source="extraction",
    )  # fmt: skip


def test_a_merged_memory_contains_no_invisible_characters() -> None:
    one, other = "User deploys the weather service on Mondays", "User deploys the weather service to Frankfurt"
    cluster = [MergeCandidate(record(text), np.zeros(4, np.float32)) for text in (one, other)]
    update = {"op": "update", "memory": 2, "content": f"{one} to Frank\u200bfurt"}
    merge = parse_merge({"operations": [update, {"op": "end", "memory": 1, "content": ""}]}, cluster)
    assert merge is not None
    assert merge.statement == f"{one} to Frankfurt"


def test_an_insight_contains_no_secret_and_no_invisible_characters() -> None:
    seen = [record(f"User deploys the weather service with {KEY}"), record("User deploys the shop on Mondays")]
    content = f"User deploys the weather ser\u200bvice with {KEY} and the shop as well"
    [insight] = parse_insights({"operations": [{"op": "add", "lines": [1, 2], "content": content}]}, seen).value
    assert insight.content == f"User deploys the weather service with {MARKED} and the shop as well"
