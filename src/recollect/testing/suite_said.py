"""Full text tells how much of a question a memory says, and what nobody ever said."""

from __future__ import annotations

from math import log

import pytest

from recollect.ledger.protocol import Ledger
from recollect.ledger.terms import K1
from recollect.model.change import Update
from recollect.model.filters import parse_filter
from recollect.model.scope import Scope
from recollect.testing.suite_samples import ANN, BOB, add, change, memory

# Four memories of two words each: what two of them say, and what none does, is this rare.
TEXTS = ("green tea", "green cup", "milk jug", "black tea")
HALF, NEVER = log(1 + 2.5 / 2.5), log(1 + 4.5 / 0.5)


class CoverageSuite:
    """Coverage, and what is missing."""

    async def test_coverage_is_the_share_of_the_questions_terms_by_their_rarity(self, ledger: Ledger) -> None:
        await add(ledger, *(memory(text) for text in TEXTS))
        total = HALF + HALF + NEVER
        assert await coverage_of(ledger, ANN, "green tea saffron") == {
            "green tea": pytest.approx(2 * HALF / total),
            "green cup": pytest.approx(HALF / total),
            "black tea": pytest.approx(HALF / total),
        }
        assert (await coverage_of(ledger, ANN, "tea, green tea and tea"))["green tea"] == pytest.approx(1)

    async def test_a_score_is_coverage_that_heeds_how_often_a_term_is_said(self, ledger: Ledger) -> None:
        await add(ledger, *(memory(text) for text in TEXTS))
        content = await ledger.lexical(ANN, "green tea saffron")
        # All are as long as the average, and say each term once.
        assert content.scores.tolist() == pytest.approx((content.coverage / (1 + K1)).tolist())

    async def test_terms_that_nobody_said_are_missing(self, ledger: Ledger) -> None:
        await add(ledger, *(memory(text) for text in TEXTS))
        content = await ledger.lexical(ANN, "green tea saffron")
        assert content.missing == {"saffron"}
        assert content.missing_share == pytest.approx(NEVER / (HALF + HALF + NEVER))
        content = await ledger.lexical(ANN, "green tea")
        assert (content.missing, content.missing_share) == (frozenset(), 0.0)

    async def test_where_nothing_was_said_everything_is_missing(self, ledger: Ledger) -> None:
        await add(ledger, memory("milk jug"))
        for scope in (ANN, BOB):
            text = await ledger.lexical(scope, "green tea")
            assert (text.rows.tolist(), text.scores.tolist(), text.coverage.tolist()) == ([], [], [])
            assert text.missing == {"green", "tea"}
            assert text.missing_share == pytest.approx(1)

    async def test_a_question_without_terms_misses_nothing(self, ledger: Ledger) -> None:
        await add(ledger, memory("milk jug"))
        for scope in (ANN, BOB):
            text = await ledger.lexical(scope, "what is the ?!")
            assert (len(text.rows), text.missing, text.missing_share) == (0, frozenset(), 0.0)

    async def test_what_another_user_says_is_still_missing(self, ledger: Ledger) -> None:
        await add(ledger, memory("milk jug"))
        await add(ledger, memory("green tea", scope=BOB))
        assert (await ledger.lexical(ANN, "milk tea")).missing == {"tea"}

    async def test_a_changed_text_covers_its_new_words_only(self, ledger: Ledger) -> None:
        one, _ = await add(ledger, memory("green tea"), memory("milk jug"))
        await change(ledger, Update(one.id, {"content": "black coffee"}))
        text = await ledger.lexical(ANN, "green coffee")
        assert text.missing == {"green"}
        assert len(text.rows) == 1

    async def test_coverage_is_from_0_to_1_and_as_long_as_the_rows(self, ledger: Ledger) -> None:
        await add(ledger, *(memory(f"tea {'cup ' * n}") for n in range(1, 9)))
        for question in ("tea", "tea cup", "cup cup cup unheard", "tea " * 99):
            text = await ledger.lexical(ANN, question)
            assert len(text.rows) == len(text.scores) == len(text.coverage) == 8
            assert ((text.coverage > 0) & (text.coverage <= 1)).all()
            assert (text.scores <= text.coverage + 1e-6).all()
            assert 0 <= text.missing_share < 1


async def coverage_of(ledger: Ledger, scope: Scope, text: str) -> dict[str, float]:
    """How much of the text each memory says, by its words."""
    content = await ledger.lexical(scope, text)
    by_row = dict(zip(content.rows.tolist(), content.coverage.tolist(), strict=True))
    results = await ledger.fetch(scope, list(by_row), filter=parse_filter(None))
    return {each.record.content: by_row[each.row] for each in results}
