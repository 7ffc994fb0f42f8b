"""How the rules use what was said before: answers, corrections, what is taken back, and when it was said."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from test_rules import learn, only

from recollect.model.memory import Category

TEN = "My budget for the Hawaii trip is $10,000"


@pytest.mark.parametrize(
    "correction",
    [
        "No, actually it's $12,000",
        "No. It's $12,000.",
        "Sorry, I meant $12,000",
        "Make that $12,000.",
        "Not $10,000 but $12,000",
        "It's $12,000, not $10,000.",
        "My budget is actually $12,000",
    ],
)
def test_a_corrected_amount_carries_its_subject(correction: str) -> None:
    first, second = learn(TEN, "AI: Noted!", correction)
    assert second.content == "User's budget for the Hawaii trip is $12,000"
    assert (second.key, second.value, second.correction) == (first.key, "$12,000", True)
    assert second.evidence == ("turn-2",)


def test_what_the_assistant_repeated_can_be_corrected() -> None:
    fixed = only("AI: Your budget for the Hawaii trip is $10,000.", "No, it's $12,000.")
    assert (fixed.content, fixed.correction) == ("User's budget for the Hawaii trip is $12,000", True)


def test_a_correction_of_nothing_known_is_not_learned() -> None:
    assert learn("No, actually it's $12,000") == []
    assert learn("My name is Jon.", "No, actually it's $12,000")[1:] == []


def test_a_corrected_name_or_date_replaces_its_own_kind() -> None:
    assert learn("My name is Jon. The report deadline is Thursday.", "Sorry, I meant Friday")[-1].value == "Friday"
    assert learn("My name is Jon.", "Not Jon but John")[-1].content == "User's name is John"


def test_actually_in_passing_corrects_nothing() -> None:
    assert not only("I actually bought a bike yesterday").correction


@pytest.mark.parametrize(
    ("asked", "answer", "content"),
    [
        ("What's your budget for the Hawaii trip?", "$10,000", "User's budget for the Hawaii trip is $10,000"),
        ("Nice! How much is your budget?", "It's about $500.", "User's budget is about $500"),
        ("What's your name?", "Maria", "User's name is Maria"),
        ("Where do you live?", "Berlin", "User lives in Berlin"),
        ("How old are you?", "34", "User is 34 years old"),
        ("What is your favorite color?", "blue", "User's favorite color is blue"),
        ("Do you have any allergies?", "Peanuts and shellfish", "User is allergic to Peanuts and shellfish"),
        ("When is the project deadline?", "March 15th", "The project deadline is March 15th"),
    ],
)
def test_a_short_answer_is_kept_with_its_question(asked: str, answer: str, content: str) -> None:
    assert only(f"AI: {asked}", answer).content == content


@pytest.mark.parametrize("answer", ["No", "I don't know", "Not sure", "Why do you ask?", "Maybe later"])
def test_no_answer_is_no_fact(answer: str) -> None:
    assert learn("AI: What's your name?", answer) == []


def test_a_short_answer_to_two_questions_is_unclear() -> None:
    assert learn("AI: What's your name? Where do you live?", "Victoria") == []


def test_a_budget_without_a_subject_belongs_to_what_was_spoken_of() -> None:
    [plan, budget] = learn("I'm planning a trip to Hawaii.", "AI: Nice.", "My budget is $10,000.")
    assert plan.category is Category.EVENT
    assert (budget.content, budget.key) == ("User's budget for the Hawaii trip is $10,000", "budget_hawaii")


def test_a_budget_belongs_to_what_was_spoken_of_last() -> None:
    *_, budget = learn(TEN, "AI: Noted.", "I'm also planning a summer wedding. My budget is $20,000.")
    assert (budget.content, budget.correction) == ("User's budget for the summer wedding is $20,000", False)


def test_an_answer_in_a_whole_sentence_is_read_as_it_is() -> None:
    assert only("AI: What's your name?", "My name is Maria").value == "Maria"


def test_a_year_in_brackets_is_the_users_own() -> None:
    assert only("I love Dune (2021) and Heat (1995)").content == "User loves Dune (2021) and Heat (1995)"


def test_a_budget_of_unknown_subject_keeps_the_sentence_before_it() -> None:
    budget = only("I want to buy a bike. My budget is $500.")
    assert (budget.content, budget.key) == ("I want to buy a bike. My budget is $500", None)


@pytest.mark.parametrize(
    ("said", "content", "key"),
    [
        ("I no longer like sushi", "User no longer likes sushi", None),
        ("I don't live in Berlin anymore", "User no longer lives in Berlin", "location"),
        ("I am no longer vegetarian", "User is no longer vegetarian", "diet"),
        ("Forget that I like sushi", "No longer true: User likes sushi", None),
    ],
)
def test_what_no_longer_holds_is_a_retraction(said: str, content: str, key: str | None) -> None:
    gone = only(said)
    assert (gone.content, gone.key, gone.retraction) == (content, key, True)


def test_forget_that_takes_back_what_was_said_last() -> None:
    said, gone = learn(TEN, "AI: Noted.", "Forget that.")
    assert gone.retraction
    assert (gone.key, gone.value) == (said.key, said.value)


def test_forget_that_long_after_takes_back_nothing() -> None:
    assert not any(each.retraction for each in learn(TEN, "How are you?", "And the weather?", "Scratch that."))


@pytest.mark.parametrize(
    ("said", "content", "day"),
    [
        ("I bought a bike yesterday.", "I bought a bike yesterday (2024-02-10)", (2024, 2, 10)),
        (
            "Last week, I visited my parents",
            "Last week (2024-01-29 to 2024-02-04), I visited my parents",
            (2024, 1, 29),
        ),
        ("I started a new job two months ago", "I started a new job two months ago (~2023-12-11)", (2023, 12, 11)),
        (
            "I have a meeting with Bob next Friday",
            "I have a meeting with Bob next Friday (2024-02-16)",
            (2024, 2, 16),
        ),
        ("My flight is tomorrow", "My flight is tomorrow (2024-02-12)", (2024, 2, 12)),
        ("On March 15th we launch the new site", "On March 15th we launch the new site", (2024, 3, 15)),
        ("I attended a workshop on March 15th", "I attended a workshop on March 15th", (2023, 3, 15)),
        ("We launch on 2025-01-02", "We launch on 2025-01-02", (2025, 1, 2)),
    ],
)
def test_an_event_is_dated_by_when_it_was_said(said: str, content: str, day: tuple[int, int, int]) -> None:
    event = only(said)
    assert (event.content, event.category) == (content, Category.EVENT)
    assert event.occurred_at == datetime(*day, tzinfo=UTC)


@pytest.mark.parametrize(
    ("said", "content"),
    [
        ("I was in Rome on Monday and Tuesday last week", "{said} (2024-02-05 to 2024-02-11)"),
        ("I visited my mom on Monday last week", "{said} (2024-02-05 to 2024-02-11)"),
        ("I visited Oslo on Monday two weeks ago", "{said} (~2024-01-31)"),
        ("I went hiking on Saturday, last week", "I went hiking on Saturday (2024-02-10), last week"),
    ],
)
def test_a_weekday_is_not_dated_to_another_week_than_the_one_told(said: str, content: str) -> None:
    wednesday = datetime(2024, 2, 14, 10, tzinfo=UTC)
    assert only(said, at=wednesday).content == content.format(said=said)


def test_a_weekday_of_a_week_that_cannot_be_told_is_not_dated() -> None:
    assert learn("We are leaving on Friday the week after next") == []


def test_a_holiday_named_after_a_weekday_is_not_that_weekday() -> None:
    assert [each.occurred_at for each in learn("I just bought a coat on Black Friday")] == [None]


def test_an_english_article_is_not_a_french_year() -> None:
    assert learn("I have an upcoming investment club meeting") == []
    assert only("I've got an interview on March 3rd").occurred_at == datetime(2024, 3, 3, tzinfo=UTC)


def test_how_long_something_took_is_not_when_it_will_be() -> None:
    assert learn("I completed my degree in six months") == []


@pytest.mark.parametrize(
    ("said", "facts"),
    [
        ("Ich heiße Maria und wohne in Berlin.", {"name": "Maria", "location": "Berlin"}),
        ("Meine Lieblingsfarbe ist Blau.", {"favorite_farbe": "Blau"}),
        ("Die Frist für das Projekt ist am 15. März.", {"frist_projekt": "15. März"}),
        ("Me llamo Carlos y vivo en Madrid. Tengo 34 años.", {"name": "Carlos", "location": "Madrid", "age": "34"}),
        ("Mi color favorito es el azul.", {"favorite_color": "el azul"}),
        ("Je m'appelle Marie et j'habite à Paris.", {"name": "Marie", "location": "Paris"}),
        ("Ma couleur préférée est le bleu.", {"favorite_couleur": "le bleu"}),
    ],
)
def test_german_spanish_and_french_have_their_own_rules(said: str, facts: dict[str, str]) -> None:
    assert {fact.key: fact.value for fact in learn(said)} == facts


@pytest.mark.parametrize(
    ("said", "content", "category"),
    [
        ("Ich bin allergisch gegen Nüsse.", "Ich bin allergisch gegen Nüsse", Category.CONSTRAINT),
        ("Bitte antworte immer auf Deutsch.", "Bitte antworte immer auf Deutsch", Category.INSTRUCTION),
        ("Ich habe gestern ein Rad gekauft.", "Ich habe gestern (2024-02-10) ein Rad gekauft", Category.EVENT),
        ("Soy alérgico a los cacahuetes.", "Soy alérgico a los cacahuetes", Category.CONSTRAINT),
        ("Ayer compré una bicicleta.", "Ayer (2024-02-10) compré una bicicleta", Category.EVENT),
        ("Réponds toujours en français.", "Réponds toujours en français", Category.INSTRUCTION),
        ("Je préfère le thé.", "Je préfère le thé", Category.PREFERENCE),
    ],
)
def test_other_languages_keep_the_users_words(said: str, content: str, category: Category) -> None:
    learned = only(said)
    assert (learned.content, learned.category) == (content, category)


@pytest.mark.parametrize(
    ("first", "correction", "value"),
    [
        ("Mein Budget für die Hawaii-Reise ist 10.000 €", "Nein, eigentlich sind es 12.000 €", "12.000 €"),
        ("Mi presupuesto para el viaje a Hawái es de $10,000", "No, en realidad es $12,000", "$12,000"),
        ("Mon budget pour le voyage à Hawaï est de 10 000 €", "Non, en fait c'est 12 000 €", "12 000 €"),
    ],
)
def test_a_correction_carries_its_subject_in_every_language(first: str, correction: str, value: str) -> None:
    stated, fixed = learn(first, "AI: OK.", correction)
    assert (fixed.key, fixed.value, fixed.correction) == (stated.key, value, True)
    assert fixed.content == stated.content.replace(stated.value or "", value)


@pytest.mark.parametrize(
    "said",
    ["Wenn ich reich wäre, würde ich in Monaco wohnen.", "¿Cómo me llamo?", "Si j'étais riche, je vivrais à Nice"],
)
def test_suppositions_and_questions_of_other_languages_state_nothing(said: str) -> None:
    assert learn(said) == []


@pytest.mark.parametrize(
    ("said", "day"),
    [
        ("My daughter Emma turns 8 on Saturday.", (2024, 2, 17)),
        ("My daughter is turning 8 on Saturday.", (2024, 2, 17)),
        ("My manager Julia wants the report by Friday.", (2024, 2, 16)),
        ("My brother is getting married in January.", (2025, 1, 1)),
        ("My appointment was rescheduled to Friday.", (2024, 2, 16)),
        ("The exam was postponed to 5 January.", (2025, 1, 5)),
        ("The meeting with Anna was moved to January 10.", (2025, 1, 10)),
        ("My flight got pushed back to Tuesday.", (2024, 2, 13)),
        ("The party was moved from Friday to Saturday.", (2024, 2, 17)),
        ("We moved the meeting to Friday.", (2024, 2, 16)),
        ("I rescheduled my appointment to Friday.", (2024, 2, 16)),
        ("We moved the couch on Friday.", (2024, 2, 9)),
        ("Der Termin wurde auf Freitag verschoben.", (2024, 2, 16)),
        # What was is dated back.
        ("My daughter Emma turned 8 on Saturday.", (2024, 2, 10)),
        ("My sister Anna got married by the lake on Saturday", (2024, 2, 10)),
        ("My brother started at Bosch in January.", (2024, 1, 1)),
        ("The exam was on 5 January.", (2024, 1, 5)),
        ("The meeting with Anna was on January 10.", (2024, 1, 10)),
        ("The concert was moved to another hall on Friday", (2024, 2, 9)),
    ],
)
def test_a_day_lies_ahead_unless_the_words_say_that_it_is_over(said: str, day: tuple[int, int, int]) -> None:
    learned = only(said)
    assert learned.occurred_at == datetime(*day, tzinfo=UTC)
    assert ("(" not in learned.content) or f"({learned.occurred_at:%Y-%m-%d})" in learned.content
