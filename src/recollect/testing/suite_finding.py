"""Full text finds words however they are written, weighs them, and keeps to one user."""

from __future__ import annotations

import pytest

from recollect.ledger.protocol import Ledger
from recollect.model.change import Forget, Update
from recollect.model.filters import parse_filter
from recollect.model.scope import Level, Scope
from recollect.testing.suite_samples import ANN, BOB, BY, ODD_TEXTS, add, change, last_entry, memory, say, scores_of

MATCHING = [
    ("she was running every day", "run"),
    ("She RAN the Tea Shop", "tea SHOP"),
    ("the café in Zürich", "cafe zurich"),
    ("the cafe in Zurich", "Café ZÜRICH"),
    ("cafe\u0301 decomposed", "café"),
    ("Ελλάδα is Greece", "ελλαδα"),
    ("любит чай", "ЧАЙ"),
    ("我喜欢喝绿茶", "绿茶"),
    ("緑茶が好きです", "緑茶"),
    ("녹차를 좋아해요", "녹차"),
    ("ชอบชาเขียว", "ชาเขียว"),
    ("हिन्दी में चाय", "चाय"),
    ("أحب الشاي", "الشاي"),
    ("אוהבת תה", "תה"),
    ("it cost 10,000 euros", "10000"),
    ("it cost 10000 euros", "10,000"),
    ("version 3.14 of it", "3.14"),
    ("ｆｕｌｌ ｗｉｄｔｈ", "full"),
    ("call ℡ 555", "tel"),
    ("the user's dog", "users"),
    ("Straße", "strasse"),
    ("İstanbul", "istanbul"),
]
NOT_MATCHING = [
    ("likes green tea", "coffee"),
    ("likes green tea", "the of and"),
    ("likes green tea", ""),
    ("likes green tea", "?!... ---"),
    ("it cost 10,000 euros", "10"),
    ("it cost 3.14", "314"),
    ("我喜欢喝绿茶", "红茶叶"),
    ("teapot", "tea"),
    ("tea", "teapot"),
    ("likes green tea", "\0 \ud800"),
]


class FullTextSuite:
    """Full text."""

    @pytest.mark.parametrize(("content", "question"), MATCHING, ids=[question for _, question in MATCHING])
    async def test_words_are_found_however_they_are_written(
        self, ledger: Ledger, content: str, question: str
    ) -> None:
        await add(ledger, memory(content), memory("something else entirely"))
        assert set(await scores_of(ledger, ANN, question)) == {content}

    @pytest.mark.parametrize(
        ("content", "question"), NOT_MATCHING, ids=[ascii(question) for _, question in NOT_MATCHING]
    )
    async def test_other_words_are_not_found(self, ledger: Ledger, content: str, question: str) -> None:
        await add(ledger, memory(content))
        assert await scores_of(ledger, ANN, question) == {}

    async def test_any_text_can_be_asked(self, ledger: Ledger) -> None:
        await add(ledger, *(memory(text) for text in ODD_TEXTS.values()), memory("plain words of no odd kind"))
        for text in ODD_TEXTS.values():
            scored = await ledger.lexical(ANN, text)
            assert ((scored.scores >= 0) & (scored.scores <= 1)).all()
            assert len(set(scored.rows.tolist())) == len(scored.rows) == len(scored.scores)

    async def test_rows_are_given_in_rising_order(self, ledger: Ledger) -> None:
        texts = ("banana bread", "cherry pie", "plum jam", "apple cake", "banana apple cherry", "apple")
        await add(ledger, *(memory(text) for text in texts))
        rows = (await ledger.lexical(ANN, "apple banana cherry")).rows.tolist()
        assert len(rows) == 5
        assert rows == sorted(rows)

    async def test_a_question_to_someone_without_memories_finds_nothing(self, ledger: Ledger) -> None:
        scored = await ledger.lexical(ANN, "tea")
        assert (len(scored.rows), len(scored.scores)) == (0, 0)

    async def test_scores_are_from_0_to_1(self, ledger: Ledger) -> None:
        texts = ["tea", "tea " * 500, "green tea", "tea and coffee and milk", "x " * 300 + "tea", "coffee"]
        await add(ledger, *(memory(text) for text in texts))
        for question in ("tea", "tea tea tea", "tea coffee milk green", "tea unheard unsaid", "x"):
            scores = list((await scores_of(ledger, ANN, question)).values())
            assert scores
            assert all(0 < score <= 1 for score in scores)

    async def test_a_row_that_shares_any_word_is_found(self, ledger: Ledger) -> None:
        await add(ledger, memory("green tea"), memory("black coffee"), memory("cold milk"))
        assert set(await scores_of(ledger, ANN, "tea coffee")) == {"green tea", "black coffee"}

    async def test_the_rarer_word_weighs_more(self, ledger: Ledger) -> None:
        await add(ledger, memory("tea saffron"), *(memory(f"tea cup{n}") for n in range(8)))
        scores = await scores_of(ledger, ANN, "tea saffron")
        assert scores["tea saffron"] > max(scores[f"tea cup{n}"] for n in range(8))
        await add(ledger, memory("water saffron"))
        scores = await scores_of(ledger, ANN, "tea saffron")
        assert scores["water saffron"] > scores["tea cup0"]

    async def test_a_word_said_more_often_weighs_more(self, ledger: Ledger) -> None:
        await add(ledger, memory("tea cup pot"), memory("tea tea pot"), memory("milk jug pan"))
        scores = await scores_of(ledger, ANN, "tea")
        assert scores["tea tea pot"] > scores["tea cup pot"]

    async def test_a_word_weighs_more_in_a_short_text(self, ledger: Ledger) -> None:
        long = "tea " + " ".join(f"word{n}" for n in range(60))
        await add(ledger, memory("green tea"), memory(long), memory("milk"))
        scores = await scores_of(ledger, ANN, "tea")
        assert scores["green tea"] > scores[long]

    async def test_more_words_of_the_question_score_higher(self, ledger: Ledger) -> None:
        await add(ledger, memory("green tea"), memory("green cup"), memory("milk jug"))
        scores = await scores_of(ledger, ANN, "green tea")
        assert scores["green tea"] > scores["green cup"]

    async def test_words_nobody_said_lower_the_score(self, ledger: Ledger) -> None:
        await add(ledger, memory("green tea"), memory("milk jug"))
        whole = (await scores_of(ledger, ANN, "green tea"))["green tea"]
        part = (await scores_of(ledger, ANN, "green tea saffron risotto"))["green tea"]
        assert part < whole

    async def test_what_others_say_does_not_change_a_score(self, ledger: Ledger) -> None:
        texts = ["tea cup", "tea pot", "tea leaf", "saffron jar"]
        await add(ledger, *(memory(text) for text in texts))
        before = await scores_of(ledger, ANN, "tea saffron")
        await add(ledger, *(memory(f"saffron jar{n} and much more", scope=BOB) for n in range(40)))
        after = await scores_of(ledger, ANN, "tea saffron")
        assert after == {text: pytest.approx(score) for text, score in before.items()}

    async def test_only_rows_of_the_user_are_found(self, ledger: Ledger) -> None:
        await add(ledger, memory("green tea"))
        await add(ledger, memory("black tea", scope=BOB))
        assert len((await ledger.lexical(ANN, "tea")).rows) == 1
        assert set(await scores_of(ledger, BOB, "tea")) == {"black tea"}

    async def test_rows_of_all_places_are_given_and_only_the_seen_are_fetched(self, ledger: Ledger) -> None:
        await add(ledger, memory("tea"), memory("tea pot", scope=Scope("ann", "p"), level=Level.PROJECT))
        assert len((await ledger.lexical(ANN, "tea")).rows) == 2
        assert set(await scores_of(ledger, ANN, "tea")) == {"tea"}
        assert set(await scores_of(ledger, Scope("ann", "p"), "tea")) == {"tea", "tea pot"}

    async def test_a_changed_text_is_found_by_its_new_words_and_not_by_the_old(self, ledger: Ledger) -> None:
        (one,) = await add(ledger, memory("green tea"))
        await change(ledger, Update(one.id, {"content": "black coffee"}))
        assert await scores_of(ledger, ANN, "green tea") == {}
        assert set(await scores_of(ledger, ANN, "coffee")) == {"black coffee"}

    async def test_an_undone_text_is_found_by_its_old_words_again(self, ledger: Ledger) -> None:
        (one,) = await add(ledger, memory("green tea"))
        await change(ledger, Update(one.id, {"content": "black coffee"}))
        await ledger.undo(ANN, (await last_entry(ledger)).id, by=BY)
        assert await scores_of(ledger, ANN, "coffee") == {}
        assert set(await scores_of(ledger, ANN, "tea")) == {"green tea"}

    async def test_a_text_changed_many_times_leaves_no_old_words(self, ledger: Ledger) -> None:
        (one,) = await add(ledger, memory("old tea"))
        for n in range(1, 6):
            await change(ledger, Update(one.id, {"content": f"old tea{n}"}), Update(one.id, {"content": f"new {n}"}))
            assert len((await ledger.lexical(ANN, "old tea")).rows) == 0
        assert await ledger.check() == []

    async def test_turns_are_found_like_memories(self, ledger: Ledger) -> None:
        session = Scope("ann", "p", "s")
        await say(ledger, session, "I drink green tea", "and you?")
        assert set(await scores_of(ledger, session, "tea")) == {"I drink green tea"}

    async def test_forgotten_memories_are_not_fetched(self, ledger: Ledger) -> None:
        (one,) = await add(ledger, memory("green tea"))
        await change(ledger, Forget(one.id))
        assert await scores_of(ledger, ANN, "tea") == {}

    async def test_what_full_text_found_can_be_filtered(self, ledger: Ledger) -> None:
        await add(ledger, memory("green tea", tags=("hot",)), memory("iced tea", tags=("cold",)))
        rows = (await ledger.lexical(ANN, "tea")).rows.tolist()
        results = await ledger.fetch(ANN, rows, filter=parse_filter({"tags": "cold"}))
        assert [each.record.content for each in results] == ["iced tea"]

    async def test_a_full_text_made_anew_finds_the_same(self, ledger: Ledger) -> None:
        records = await add(ledger, *(memory(f"tea {n} {'green' * (n % 2)}") for n in range(12)))
        await add(ledger, memory("tea", scope=BOB))
        await change(ledger, Update(records[0].id, {"content": "coffee"}), Forget(records[1].id))
        before = [await scores_of(ledger, scope, "green tea coffee") for scope in (ANN, BOB)]
        done: list[int] = []
        await ledger.rebuild_terms(done.append)
        assert [await scores_of(ledger, scope, "green tea coffee") for scope in (ANN, BOB)] == [
            {text: pytest.approx(score) for text, score in result.items()} for result in before
        ]
        assert done[-1] == 13
        assert await ledger.check() == []
