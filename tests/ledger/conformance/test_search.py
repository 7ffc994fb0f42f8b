"""Full text finds words however they are written, weighs them, and keeps to one user."""

from __future__ import annotations

from datetime import datetime, timedelta
from math import log
from typing import Any

import pytest

from recollect.errors import Conflict, InvalidInput
from recollect.ledger.ledger import Ledger
from recollect.ledger.tokenizer import K1
from recollect.model.change import Add, Forget, Update
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.query import parse_filter
from recollect.model.scope import Level, Scope
from recollect.model.times import now
from tests.support.ledger_samples import (
    ANN,
    BOB,
    BY,
    NOON,
    ODD_TEXTS,
    add,
    change,
    last_entry,
    memory,
    scores_of,
)

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
    ("getUserById returns null", "get_user_by_id"),
    ("get_user_by_id returns null", "getUserById"),
    ("call getUserById first", "user"),
    ("ruff ignores E501", "e501"),
    ("pinned to v2.3.1", "v2.3.1"),
    ("pinned to v2.3.1", "2.3"),
    ("run it with --dry-run", "dryrun"),
    ("see src/recollect/write/select.py", "select.py"),
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


class TestFullText:
    """Full text."""

    async def test_words_are_found_however_they_are_written(self, ledger: Ledger) -> None:
        for number, (content, question) in enumerate(MATCHING):
            scope = Scope(f"user {number}")
            await add(ledger, memory(content, scope=scope), memory("something else entirely", scope=scope))
            assert set(await scores_of(ledger, scope, question)) == {content}, question

    async def test_other_words_are_not_found(self, ledger: Ledger) -> None:
        for number, (content, question) in enumerate(NOT_MATCHING):
            scope = Scope(f"user {number}")
            await add(ledger, memory(content, scope=scope))
            assert await scores_of(ledger, scope, question) == {}, question

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

    async def test_texts_of_other_users_do_not_change_a_score(self, ledger: Ledger) -> None:
        texts = ["tea cup", "tea pot", "tea leaf", "saffron jar"]
        await add(ledger, *(memory(text) for text in texts))
        before = await scores_of(ledger, ANN, "tea saffron")
        await add(ledger, *(memory(f"saffron jar{n} and much more", scope=BOB) for n in range(40)))
        after = await scores_of(ledger, ANN, "tea saffron")
        assert after == {text: pytest.approx(score) for text, score in before.items()}

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


# Four memories of two words each: what two of them say, and what none does, is this rare.
TEXTS = ("green tea", "green cup", "milk jug", "black tea")
HALF, NEVER = log(1 + 2.5 / 2.5), log(1 + 4.5 / 0.5)


class TestCoverage:
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


DAY = timedelta(days=1)


class TestKeyed:
    """Keyed facts."""

    async def test_keyed_facts_come_the_most_important_first_and_the_oldest_among_equals(
        self, ledger: Ledger
    ) -> None:
        numbers = {"a": 0.5, "b": 0.9, "c": 0.5, "d": 0.49, "e": 1.0}
        await add(ledger, *(memory(key, key=key, importance=number) for key, number in numbers.items()))
        await add(ledger, memory("without a key", importance=1.0))
        assert await keyed(ledger) == ["e", "b", "a", "c"]
        assert await keyed(ledger, limit=2) == ["e", "b"]
        assert await keyed(ledger, least=0.0) == ["e", "b", "a", "c", "d"]
        assert await keyed(ledger, least=1.0) == ["e"]

    async def test_keyed_facts_are_those_the_scope_can_see(self, ledger: Ledger) -> None:
        here, session = Scope("ann", "p"), Scope("ann", "p", "s")
        await add(ledger, memory("own", key="k"))
        await add(ledger, memory("project", key="k", scope=here, level=Level.PROJECT))
        await add(ledger, memory("session", key="k", scope=session, level=Level.SESSION))
        await add(ledger, memory("bob's", key="k", scope=BOB))
        assert await keyed(ledger) == ["own"]
        assert await keyed(ledger, here) == ["own", "project"]
        assert await keyed(ledger, session) == ["own", "project", "session"]
        assert await keyed(ledger, Scope("nobody", "p", "s")) == []

    async def test_keyed_facts_pass_the_filter(self, ledger: Ledger) -> None:
        await add(ledger, memory("work", key="a", tags=("work",)), memory("home", key="b", tags=("home",)))
        assert await keyed(ledger, filter={"tags": "home"}) == ["home"]
        assert await keyed(ledger, filter={"key": "a"}, limit=1) == ["work"]

    async def test_only_the_current_value_is_returned(self, ledger: Ledger) -> None:
        for n, city in enumerate(("Oslo", "Rome", "Bern")):
            await add(ledger, memory(city, key="city", valid_from=NOON + n * DAY))
        assert await keyed(ledger) == ["Bern"]
        assert await keyed(ledger, as_of=NOON - DAY) == []
        assert await keyed(ledger, as_of=NOON) == ["Oslo"]
        assert await keyed(ledger, as_of=NOON + DAY) == ["Rome"]

    async def test_forgotten_reviewed_and_expired_facts_are_not_returned(self, ledger: Ledger) -> None:
        (gone,) = await add(ledger, memory("gone", key="gone"))
        await change(ledger, Forget(gone.id))
        await add(ledger, memory("waits", key="waits", status=Status.REVIEW))
        await add(ledger, memory("expired", key="expired", expires_at=NOON + DAY))
        await add(ledger, memory("holds", key="holds", expires_at=now() + DAY))
        assert await keyed(ledger) == ["holds"]
        assert await keyed(ledger, as_of=NOON) == ["expired", "holds"]

    async def test_memories_with_the_same_text_or_key_are_conflicting(self, ledger: Ledger) -> None:
        here = Scope("ann", "p")
        (tea,) = await add(ledger, memory("tea"))
        (city,) = await add(ledger, memory("Oslo", key="city"))
        await add(ledger, memory("bread", scope=here, level=Level.PROJECT))
        await add(ledger, memory("tea", scope=BOB))
        (gone,) = await add(ledger, memory("milk"))
        await change(ledger, Forget(gone.id))
        request = [
            memory("tea"),
            memory("Rome", key="city"),
            memory("bread"),
            memory("milk"),
            memory("Rome", key="town"),
        ]
        results = await ledger.find_conflicting(ANN, request)
        assert {each.id for each in results} == {tea.id, city.id}
        assert await ledger.find_conflicting(Scope("nobody"), [memory("tea", scope=Scope("nobody"))]) == []

    async def test_what_must_be_the_first_of_its_key_is_refused_while_another_holds_it(self, ledger: Ledger) -> None:
        [stored] = (await change(ledger, Add(file("one"), first=True))).outcomes
        with pytest.raises(Conflict):
            await change(ledger, Add(file("two"), first=True))
        with pytest.raises(Conflict):
            await change(ledger, Add(file("one"), first=True))
        await change(ledger, Forget(stored.id))
        await change(ledger, Add(file("two"), first=True))
        assert await keyed(ledger) == ["two"]

    async def test_two_files_may_say_the_same_under_paths_that_differ_in_case_alone(self, ledger: Ledger) -> None:
        paths = ("/memories/a", "/memories/A", "/memories/a b", "/memories/a  b")
        for path in paths:
            await change(ledger, Add(file("same", path), first=True))
        assert await keyed(ledger) == ["same"] * len(paths)

    async def test_a_file_that_comes_again_under_its_path_takes_the_place_of_the_other(self, ledger: Ledger) -> None:
        await add(ledger, file("old words"), file("new words"))
        assert await keyed(ledger) == ["new words"]

    async def test_a_limit_of_nothing_is_refused(self, ledger: Ledger) -> None:
        with pytest.raises(InvalidInput):
            await keyed(ledger, limit=0)


def file(text: str, path: str = "/memories/notes.md") -> MemoryRecord:
    """A file, which is told by its path alone."""
    return memory(text, key=path, category=Category.FILE)


async def keyed(
    ledger: Ledger,
    scope: Scope = ANN,
    *,
    filter: Any = None,
    least: float = 0.5,
    limit: int = 20,
    as_of: datetime | None = None,
) -> list[str]:
    """The words of the keyed facts."""
    results = await ledger.keyed_facts(scope, parse_filter(filter), min_importance=least, limit=limit, as_of=as_of)
    return [record.content for record in results]
