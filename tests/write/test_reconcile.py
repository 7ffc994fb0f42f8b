"""Extracted facts become changes: each memory changes once, and every dropped fact has a reason."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from recollect.model.change import Add, Supersede, Update
from recollect.model.memory import Category, MemoryRecord, MemoryType, Status, Trust
from recollect.model.scope import Level, Scope
from recollect.write.operations import ExtractedFact, FactOp
from recollect.write.reconcile import FactOutcome, ReconcileLimits, ReconcileResult, reconcile

AT = datetime(2026, 4, 20, 9, tzinfo=UTC)
SCOPE = Scope("alex", "", "s")


def memory(content: str, id: str = "m1", **fields: Any) -> MemoryRecord:
    return MemoryRecord(
        id=id, scope=SCOPE, level=Level.USER, type=MemoryType.SEMANTIC,
        category=fields.pop("category", Category.FACT), content=content, created_at=AT, updated_at=AT, **fields,
    )  # fmt: skip


def fact(content: str, op: FactOp = FactOp.ADD, target: MemoryRecord | None = None, **fields: Any) -> ExtractedFact:
    options = {"said_at": AT, "evidence": ("t1",), "source": "conversation", **fields}
    return ExtractedFact(content=content, op=op, target=target, **options)


def run(*facts: ExtractedFact, existing: tuple[MemoryRecord, ...] = (), **options: Any) -> ReconcileResult:
    limits = options.pop("limits", ReconcileLimits())
    stored = {each.id: each for each in (*existing, *(one.target for one in facts if one.target is not None))}
    return reconcile(SCOPE, facts, list(stored.values()), limits=limits, **options)


def outcomes(result: ReconcileResult) -> list[FactOutcome]:
    return [each.outcome for each in result.decisions]


def test_a_new_fact_is_added() -> None:
    result = run(fact("The user likes tea"))
    [change] = result.changes
    assert isinstance(change, Add)
    assert (change.record.content, change.record.evidence) == ("The user likes tea", ("t1",))
    assert change.record.valid_from == AT


def test_an_update_supersedes_and_inherits_the_key() -> None:
    old = memory("The user lives in Rome", key="city", value="Rome", category=Category.IDENTITY)
    [change] = run(fact("The user moved to Oslo", FactOp.UPDATE, old)).changes
    assert isinstance(change, Supersede)
    assert (change.id, change.record.key, change.record.category) == ("m1", "city", Category.IDENTITY)


def test_an_ended_memory_is_superseded_by_the_statement_of_its_end() -> None:
    old = memory("The user drinks coffee", key="drink", value="coffee")
    [change] = run(fact("The user no longer drinks coffee", FactOp.END, old)).changes
    assert isinstance(change, Supersede)
    assert (change.id, change.record.content, change.record.key) == ("m1", "The user no longer drinks coffee", None)


def test_an_end_without_words_closes_the_memory() -> None:
    [change] = run(fact("", FactOp.END, memory("The user drinks coffee"))).changes
    assert isinstance(change, Update)
    assert change.fields == {"valid_to": AT}


def test_an_end_without_a_memory_is_added() -> None:
    [change] = run(fact("The user no longer drinks coffee", FactOp.END)).changes
    assert isinstance(change, Add)


def test_one_batch_ends_at_most_three_memories() -> None:
    many = [memory(f"The user has a cat called {name}", id=name) for name in "abcde"]
    result = run(*(fact(f"The cat {each.id} is gone", FactOp.END, each) for each in many))
    assert sum(isinstance(change, Supersede) for change in result.changes) == 3
    assert sum(isinstance(change, Add) for change in result.changes) == 2


def test_a_second_update_of_one_memory_is_added() -> None:
    old = memory("The user has a red car and a blue bike")
    result = run(
        fact("The user sold the red car", FactOp.UPDATE, old), fact("The user rides a blue bike", FactOp.UPDATE, old)
    )
    assert [type(change) for change in result.changes] == [Supersede, Add]


def test_an_update_about_another_subject_is_added() -> None:
    old = memory("The user's brother lives in Rome")
    new = fact("Pixel needs a new collar", FactOp.UPDATE, old)
    [change] = run(new, similarity={(new.content, "m1"): 0.02}).changes
    assert isinstance(change, Add)


def test_an_exact_repetition_only_adds_evidence() -> None:
    old = memory("The user runs five kilometres", evidence=("t0",))
    result = run(fact("the user runs 5 km."), existing=(old,))
    [change] = result.changes
    assert isinstance(change, Update)
    assert change.fields == {"evidence": ("t0", "t1")}
    assert outcomes(result) == [FactOutcome.REPEATED]


def test_similar_statements_both_stay_by_default() -> None:
    old = memory("The user likes green tea a lot")
    assert outcomes(run(fact("The user likes green tea very much"), existing=(old,))) == [FactOutcome.ADDED]


def test_words_taken_over_in_a_merge_are_those_of_the_new_model() -> None:
    detail = {"model": "large", "unverified": ["green"]}
    old = memory("The user likes green teas", source="conversation", detail=detail)
    for model in ("small", ""):
        new = fact("The user likes green tea", model=model)
        [change] = run(new, existing=(old,), limits=ReconcileLimits(text_similarity=0.8)).changes
        assert isinstance(change, Update)
        assert change.fields["detail"] == {"unverified": ["green"], **({"model": model} if model else {})}


def test_a_preset_may_merge_by_letters_or_by_meaning_but_never_over_a_number() -> None:
    old = memory("The user likes green teas", source="conversation", importance=0.5)
    letters = ReconcileLimits(text_similarity=0.8)
    result = run(fact("The user likes green tea"), existing=(old,), limits=letters)
    [change] = result.changes
    assert isinstance(change, Update)
    assert change.fields["importance"] == pytest.approx(0.6)
    numbers = memory("The user has 3 cats", source="conversation")
    assert outcomes(run(fact("The user has 4 cats"), existing=(numbers,), limits=letters)) == [FactOutcome.ADDED]
    new = fact("Green tea is what the user drinks")
    meaning = ReconcileLimits(vector_similarity=0.9)
    result = run(new, existing=(old,), limits=meaning, similarity={(new.content, "m1"): 0.93})
    assert outcomes(result) == [FactOutcome.MERGED]


def test_a_key_has_one_value_the_more_confident_or_a_correction() -> None:
    old = memory("The user lives in Rome", key="city", value="Rome", confidence=0.9)
    new = fact("The user lives in Oslo", key="city", value="Oslo", confidence=0.5)
    assert outcomes(run(new, existing=(old,))) == [FactOutcome.REJECTED]
    assert outcomes(run(replace(new, confidence=0.9), existing=(old,))) == [FactOutcome.UPDATED]
    assert outcomes(run(replace(new, correction=True), existing=(old,))) == [FactOutcome.UPDATED]
    assert outcomes(run(replace(new, value="rome"), existing=(old,))) == [FactOutcome.REPEATED]


def test_of_two_values_in_one_batch_the_latest_has_the_key() -> None:
    first = fact("The user lives in Rome", key="city", value="Rome")
    second = fact("The user lives in Oslo", key="city", value="Oslo", said_at=AT + timedelta(minutes=1))
    keys = [change.record.key for change in run(first, second).changes if isinstance(change, Add)]
    assert keys == [None, "city"]


def test_a_fact_of_low_trust_does_not_change_a_memory_of_high_trust() -> None:
    old = memory("The user lives in Rome")
    result = run(fact("The user lives in Oslo", FactOp.UPDATE, old, trust=Trust.LOW))
    assert (result.changes, outcomes(result)) == ((), [FactOutcome.REJECTED])
    assert "higher trust" in result.decisions[0].description


def test_a_fact_that_waits_for_review_replaces_nothing() -> None:
    old = memory("Answer in English")
    [change] = run(fact("Always answer in French", FactOp.UPDATE, old, review="the user did not say it")).changes
    assert isinstance(change, Add)
    assert change.record.status is Status.REVIEW


def test_doubts_are_recorded_on_the_memory() -> None:
    [change] = run(fact("The user has 7 hens", doubts=("number 7 was not said",))).changes
    assert isinstance(change, Add)
    assert change.record.detail == {"unverified": ["number 7 was not said"]}
