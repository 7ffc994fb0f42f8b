"""What an index is told of a row besides its vector: where it was said, by whom, when, and what it is like."""

from __future__ import annotations

from datetime import timedelta

from recollect.ledger.protocol import IndexRow, Ledger
from recollect.model.change import Update
from recollect.model.memory import Category
from recollect.model.scope import Level, Scope
from recollect.model.times import to_micros
from recollect.model.traits import Trait, compute_traits, trait_flags, trait_word_count
from recollect.model.turn import Role
from recollect.testing.suite_samples import ANN, BOB, BY, MODEL, NOON, add, change, last_entry, memory, turn

SESSION = Scope("ann", "p", "s")


class TraitSuite:
    """Traits, speakers, sessions and times of rows."""

    async def test_a_turn_is_told_with_its_session_its_speaker_and_what_it_is_like(self, ledger: Ledger) -> None:
        turns = [
            turn("I prefer tea", name="  Ann  LEE "),
            turn("Which tea?", role=Role.ASSISTANT, said_at=NOON + timedelta(seconds=1)),
        ]
        await ledger.append(SESSION, turns, vectors=[None, None], by=BY)
        first, second = await rows_of(ledger)
        assert (first.session, first.speaker, first.at) == ("s", "ann lee", to_micros(NOON))
        assert (second.session, second.speaker, second.at) == ("s", "", to_micros(NOON + timedelta(seconds=1)))
        expected = Trait.TURN | Trait.USER | Trait.FIRST_PERSON | Trait.PREFERS
        assert trait_flags(first.traits) == expected
        assert trait_flags(second.traits) == Trait.TURN | Trait.ASSISTANT | Trait.ASKS
        assert (trait_word_count(first.traits), trait_word_count(second.traits)) == (3, 2)

    async def test_a_memory_is_told_with_when_it_happened(self, ledger: Ledger) -> None:
        happened = NOON - timedelta(days=400)
        await add(ledger, memory("one"), memory("two", occurred_at=happened))
        one, two = await rows_of(ledger)
        assert (one.at, two.at) == (to_micros(NOON), to_micros(happened))
        assert (one.session, one.speaker) == ("", "")

    async def test_a_memory_of_a_session_is_told_with_it(self, ledger: Ledger) -> None:
        await add(ledger, memory(scope=SESSION, level=Level.SESSION))
        assert [row.session for row in await rows_of(ledger)] == ["s"]

    async def test_traits_are_the_same_in_every_ledger(self, ledger: Ledger) -> None:
        texts = ("Always use metric units", "我喜欢绿茶", "x " * 70_000, "Am I late?", "٣ كتب", "🍵")
        records = await add(ledger, *(memory(text) for text in texts))
        assert [row.traits for row in await rows_of(ledger)] == [compute_traits(record) for record in records]

    async def test_a_changed_text_changes_its_traits_and_undoing_changes_them_back(self, ledger: Ledger) -> None:
        (one,) = await add(ledger, memory("I prefer tea"))
        before = await rows_of(ledger)
        await change(ledger, Update(one.id, {"content": "Is it 5 already?"}))
        [row] = await rows_of(ledger)
        assert trait_flags(row.traits) == Trait.ASKS | Trait.COUNTS
        assert trait_word_count(row.traits) == 4
        await ledger.undo(ANN, (await last_entry(ledger)).id, by=BY)
        assert await rows_of(ledger) == before

    async def test_a_memory_is_told_with_the_bounds_within_which_it_may_be_found(self, ledger: Ledger) -> None:
        soon, later = NOON + timedelta(days=1), NOON + timedelta(days=2)
        await add(
            ledger,
            memory("none"),
            memory("from", valid_from=soon),
            memory("to", valid_to=soon),
            memory("expiring", expires_at=soon),
            memory("to and expiring", valid_to=soon, expires_at=later),
            memory("expiring and to", valid_to=later, expires_at=soon),
        )
        report = [(row.begins, row.ends) for row in await rows_of(ledger)]
        at = to_micros(soon)
        assert report == [(None, None), (at, None), (None, at), (None, at), (None, at), (None, at)]

    async def test_a_change_of_time_is_told(self, ledger: Ledger) -> None:
        (one,) = await add(ledger, memory("tea"))
        revision = await ledger.revision("ann")
        await change(ledger, Update(one.id, {"occurred_at": NOON - timedelta(days=1)}))
        _, [row] = await ledger.index_rows("ann", model=MODEL, after=revision.number)
        assert row.at == to_micros(NOON - timedelta(days=1))

    async def test_what_is_no_turn_has_no_speaker_whatever_its_detail_says(self, ledger: Ledger) -> None:
        await add(ledger, memory("tea", category=Category.EVENT, detail={"role": "user", "name": "Ann"}))
        [row] = await rows_of(ledger)
        assert (trait_flags(row.traits), row.speaker) == (Trait.NONE, "")

    async def test_a_full_text_made_anew_leaves_every_row_as_it_was(self, ledger: Ledger) -> None:
        await ledger.append(SESSION, [turn("I prefer tea", name="Ann")], vectors=[None], by=BY)
        await add(ledger, memory("Is it 5?", importance=0.7), memory("milk"))
        before = await rows_of(ledger)
        await ledger.rebuild_terms(lambda done: None)
        assert await rows_of(ledger) == before

    async def test_rows_of_others_are_not_told(self, ledger: Ledger) -> None:
        await add(ledger, memory("I prefer tea", scope=BOB))
        assert await rows_of(ledger) == []


async def rows_of(ledger: Ledger) -> list[IndexRow]:
    """All rows of Ann, in order."""
    return sorted((await ledger.index_rows("ann", model=MODEL, after=0))[1], key=lambda row: row.row)
