"""A claim must rest on what was said, and must not say the opposite of it."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from extract_samples import HAWAII, turn
from ground_numbers import NOBODY_SAID, SAID_IN_WORDS
from ground_pairs import KEPT, TURNED

from recollect.write.extraction.faithful import ASKED, OF_OTHERS, OPPOSITE
from recollect.write.extraction.ground import Said, made_up
from recollect.write.extraction.spoken import spoken_numbers
from recollect.write.extraction.words import has_capital_nouns, names_of, readings

MONDAY = datetime(2026, 11, 16, 12, tzinfo=UTC)


def grounded(fact: str, *said: str, when: str | None = None, context: str = "") -> str:
    turns = [turn(each) for each in said]
    day = datetime.fromisoformat(when).date() if when else None
    around = Said.of([turn(context)] if context else []).text
    return made_up(fact, when=day, cited=Said.of(turns), shown=Said.of(turns, [around]))


class TestGrounding:
    @pytest.mark.parametrize(
        ("fact", "said"),
        [
            ("The budget for the Hawaii trip is $10,000", HAWAII),
            ("The budget is $10k for Hawaii", HAWAII),
            ("The Hawaii budget is $10,000", "ten thousand dollars for Hawaii"),
            ("The house costs $1.5M", "the house costs 1.5 million"),
            ("The user has 25 cousins", "I've got twenty-five cousins"),
            ("The user lives in New York City", "I'm in NYC these days"),
            ("The user writes TypeScript", "I write TS all day"),
            ("The user's full name is Alexander", "Call me Alex, short for Alexander"),
            ("Alex is the user's nickname; the user is Alexander", "they call me Alex"),
            ("The user works at Google as a Software Engineer", "software engineer at google"),
            ("The meeting is on 2026-03-13", "the meeting is on Friday"),
            ("The meeting is on March 13, 2026", "the meeting is this friday"),
            ("The meeting is on Friday, 13 March", "meeting in three days"),
            ("The deadline is 2026-03-15", "The deadline is March 15th"),
            ("The user moved to Oslo in 2025", "I moved to Oslo last year"),
            ("The user has worked at Acme since 2016", "I've been at Acme for ten years"),
            ("The call with the bank is at 15:00", "call with my bank at 3pm"),
            ("The user is a vegetarian", "Ich bin Vegetarier"),
            ("Der Nutzer hat ein Reisebudget von 5.000 Euro", "Mein Budget für die Reise ist 5000 Euro"),
            ("Die Mutter des Nutzers wohnt in Köln", "Meine Mutter lebt in Köln"),
            ("L'utilisateur habite à Lyon", "J'habite à Lyon depuis 2019"),
            ("El presupuesto para Hawái es de 10.000 dólares", "mi presupuesto para Hawái: 10,000 dólares"),
            ("Пользователь живёт в Москве", "Я живу в Москве"),
            ("ユーザーは東京に住んでいます", "私は東京に住んでいる"),
            ("用户喜欢喝绿茶", "我很喜欢绿茶"),
            ("用户的预算是10万元", "预算100,000元"),
            ("The user lives in Tokyo", "私は東京に住んでいる"),
        ],
    )
    def test_what_was_said_in_other_words_stands(self, fact: str, said: str) -> None:
        assert grounded(fact, said) == ""

    @pytest.mark.parametrize(
        ("fact", "said", "why"),
        [
            ("The Hawaii budget is $12,000", HAWAII, "12000"),
            ("The Hawaii budget is $100,000", HAWAII, "100000"),
            ("The budget for the Japan trip is $10,000", HAWAII, "Japan"),
            ("The user's name is Bob", "My name is Alex", "Bob"),
            ("The user has 3 cats", "I have two cats", "3"),
            ("The user prefers coffee", "I prefer tea", "none of its words"),
            ("The user is an experienced pilot", "What's the weather like?", "none of its words"),
            ("The deadline is March 16th", "The deadline is March 15th", "16"),
            ("The deadline is 2026-03-16", "The deadline is March 15th", "16"),
            ("The user was born in 1971", "I was born in Oslo", "1971"),
            ("The user moved to Oslo on 2019-05-07", "I moved to Oslo yesterday", "2019"),
            ("Die Tante Petra Schmidt kommt aus München", "Ich mag Tee", "Tante"),
            ("用户住在上海", "我喜欢绿茶", "none of its words"),
            ("Alex moves to Oslo on 2024-05-07", "I like tea", "2024"),
        ],
    )
    def test_what_nobody_said_does_not(self, fact: str, said: str, why: str) -> None:
        assert why in grounded(fact, said)

    def test_what_the_talk_before_tells_may_be_named(self) -> None:
        assert grounded("The user likes the Hawaii plan", "I like it", context="Hawaii plan for July") == ""
        assert grounded("The user likes the Hawaii plan", "I like it") == "nobody said Hawaii"

    def test_a_day_nobody_named_may_be_told_by_when(self) -> None:
        assert grounded("The trip to Bergen starts on 20. 3.", "Bergen in ten days", when="2026-03-20") == ""
        assert "20" in grounded("The trip to Bergen starts on 20. 3.", "Bergen in ten days")

    def test_numbers_have_one_value_however_they_are_written(self) -> None:
        values = [set(map(str, each)) for each in readings("10,000 10.000 10k 1.5 1,5 5 million 3万")]
        assert values[:3] == [{"1E+4"}] * 3
        assert values[3:5] == [{"1.5"}] * 2
        assert values[5:] == [{"5E+6"}, {"3E+4"}]
        assert {25, 20, 5, 25_000} <= {int(each) for each in spoken_numbers("twenty-five thousand, twenty five")}
        assert {300, 320} <= {int(each) for each in spoken_numbers("three hundred and twenty")}

    def test_names_are_words_with_a_capital_that_does_not_open_a_sentence(self) -> None:
        assert names_of("The user met Ana Lima in Rio. She likes IBM's Watson") == [
            ["Ana", "Lima"],
            ["Rio"],
            ["IBM", "Watson"],
        ]
        assert has_capital_nouns("Die Mutter des Nutzers wohnt in Köln")
        assert not has_capital_nouns("The user lives in Köln")

    @pytest.mark.parametrize(
        "part", ["1,", "1,111", "A ", "NY", "Ab", "2026-", "9", "three hundred ", "x'", "用", "12:", " "]
    )
    def test_looking_at_a_long_text_takes_linear_time(self, part: str) -> None:
        def cost(size: int) -> float:
            text = part * (size // len(part))
            start = time.process_time()
            made_up(text, when=None, cited=Said([text]), shown=Said([text]))
            return time.process_time() - start

        assert min(cost(100_000) for _ in range(2)) < 0.1 + 10 * max(cost(25_000) for _ in range(2))


@pytest.mark.parametrize(("said", "claim"), SAID_IN_WORDS)
def test_a_number_that_was_said_in_words_was_said(said: str, claim: str) -> None:
    heard = Said.of([turn(said, at=MONDAY)])
    assert made_up(claim, when=None, cited=heard, shown=heard) == ""


@pytest.mark.parametrize(("said", "claim", "number"), NOBODY_SAID)
def test_a_number_like_one_that_was_said_in_words_was_not(said: str, claim: str, number: str) -> None:
    heard = Said.of([turn(said, at=MONDAY)])
    assert made_up(claim, when=None, cited=heard, shown=heard) == f"nobody said {number}"


@pytest.mark.parametrize(
    ("said", "claim", "wrong"),
    [
        ("I live in Rome and I'm allergic to nuts", "User does not live in Rome", OPPOSITE),
        ("I eat meat", "User never eats meat", OPPOSITE),
        ("I don't live in Rome", "User does not live in Rome", ""),
        ("I'm vegetarian", "User is vegetarian and does not eat meat", ""),
        ("I stopped smoking", "User does not smoke", ""),
    ],
)
def test_what_says_the_opposite_of_the_turn_is_made_up(said: str, claim: str, wrong: str) -> None:
    turn = Said([said])
    assert made_up(claim, when=None, cited=turn, shown=turn) == wrong


@pytest.mark.parametrize(("said", "claim"), KEPT)
def test_what_is_put_otherwise_is_kept(said: str, claim: str) -> None:
    heard = Said.of([turn(said, at=MONDAY)])
    assert made_up(claim, when=None, cited=heard, shown=heard) == ""


@pytest.mark.parametrize(("said", "claim"), TURNED)
def test_what_is_turned_round_is_not(said: str, claim: str) -> None:
    heard = Said.of([turn(said, at=MONDAY)])
    assert made_up(claim, when=None, cited=heard, shown=heard) in (OPPOSITE, OF_OTHERS, ASKED)


def test_an_answer_counts_for_what_the_user_says_and_not_for_what_was_asked() -> None:
    asked, answer = Said(["Should I note that you live in Rome?"]), Said(["Yes, please"])
    both = Said([asked.text, answer.text])
    assert made_up("User lives in Rome", when=None, cited=both, shown=both, users=answer) == ""
    assert made_up("User lives in Rome", when=None, cited=both, shown=both) == ASKED


def test_a_long_text_is_not_searched_for_what_turns_a_statement_round() -> None:
    pasted = Said(["I do not live in Rome. " + "The weather is fine there. " * 1_000])
    assert made_up("User lives in Rome", when=None, cited=pasted, shown=pasted) == ""
