"""What the rules learn from plain sentences of the user, and how they put it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from recollect.model.learned import Learned
from recollect.model.memory import Category, MemoryType
from recollect.model.scope import Scope
from recollect.model.turn import Role, Turn
from recollect.write.rules.learn import learn_by_rules

SUNDAY = datetime(2024, 2, 11, 10, tzinfo=UTC)


def learn(*said: str, at: datetime = SUNDAY) -> list[Learned]:
    """What is learned from some turns; those that begin with "AI:" are the assistant's."""
    turns = [
        Turn(
            id=f"turn-{number}",
            scope=Scope(user="ann"),
            role=Role.ASSISTANT if text.startswith("AI:") else Role.USER,
            content=text.removeprefix("AI:").strip(),
            said_at=at,
        )
        for number, text in enumerate(said)
    ]
    return learn_by_rules(turns, now=at + timedelta(hours=1))


def only(*said: str, at: datetime = SUNDAY) -> Learned:
    """The one thing that is learned."""
    [learned] = learn(*said, at=at)
    return learned


def test_a_name_and_a_language_said_in_one_sentence_are_two_facts() -> None:
    name, language = learn("My name is Alex and I prefer Python")
    assert (name.category, name.key, name.value, name.confidence) == (Category.IDENTITY, "name", "Alex", 1.0)
    assert (language.category, language.key, language.value) == (Category.PREFERENCE, "language", "Python")
    assert language.confidence == 0.9
    assert (name.content, language.content) == ("User's name is Alex", "User prefers Python")


def test_a_nickname_is_less_sure_than_a_name_and_a_full_name_almost_as_sure() -> None:
    facts = learn("My name is Alex", "Call me Al", "My full name is Alexander", "My name is actually Sasha")
    assert [(fact.key, fact.value, fact.confidence) for fact in facts] == [
        ("name", "Alex", 1.0),
        ("name", "Al", 0.6),
        ("name", "Alexander", 0.95),
        ("name", "Sasha", 1.0),
    ]
    assert [fact.correction for fact in facts] == [False, False, False, True]


def test_a_budget_keeps_what_it_is_for() -> None:
    budget = only("My budget for the Hawaii trip is $10,000")
    assert budget.content == "User's budget for the Hawaii trip is $10,000"
    assert (budget.key, budget.value, budget.category) == ("budget_hawaii", "$10,000", Category.CONSTRAINT)


@pytest.mark.parametrize("said", ["The Hawaii budget is now $12,000", "I increased the Hawaii budget to $12,000"])
def test_a_budget_has_the_same_key_however_it_is_put(said: str) -> None:
    budget = only(said)
    assert (budget.key, budget.value) == ("budget_hawaii", "$12,000")


@pytest.mark.parametrize(
    ("said", "content"),
    [
        ("Final Hawaii budget is $12,000", "User's Hawaii budget is $12,000"),
        ("Hawaii budget: $12,000", "User's Hawaii budget is $12,000"),
        ("Hawaii trip budget is now $12,000", "User's Hawaii trip budget is $12,000"),
        ("New budget for Hawaii: $12,000", "User's budget for Hawaii is $12,000"),
        ("Budget for the Hawaii trip: $12,000.", "User's budget for the Hawaii trip is $12,000"),
    ],
)
def test_a_budget_noted_down_without_my_is_theirs(said: str, content: str) -> None:
    budget = only(said)
    assert (budget.key, budget.value, budget.content) == ("budget_hawaii", "$12,000", content)
    assert budget.confidence == only("My Hawaii budget is $10,000").confidence


@pytest.mark.parametrize(
    "junk", ["\ufffd", "\ufffd ", "\u200b\ufffd\ufffd", "...", "***", "\U0001f389 ", "\x7f", "· "]
)
def test_what_stands_before_the_first_word_does_not_hide_it(junk: str) -> None:
    assert only(f"{junk}My name is Alex\ufffd").content == "User's name is Alex"
    assert [each.value for each in learn(f"Hello there.\n{junk}My name is Alex")] == ["Alex"]


def test_a_deadline_is_a_dated_fact() -> None:
    deadline = only("The project deadline is March 15th")
    assert deadline.content == "The project deadline is March 15th"
    assert (deadline.category, deadline.importance) == (Category.FACT, 0.9)
    assert deadline.occurred_at == datetime(2024, 3, 15, tzinfo=UTC)


def test_a_preference_for_summaries_and_a_standing_instruction_are_kept() -> None:
    preference, instruction = learn("I prefer bullet-point summaries.", "Always answer in bullet points.")
    assert (preference.content, preference.category) == ("User prefers bullet-point summaries", Category.PREFERENCE)
    assert (instruction.content, instruction.category) == ("Always answer in bullet points", Category.INSTRUCTION)
    assert instruction.kind is MemoryType.PROCEDURAL
    assert instruction.importance == 0.8


def test_an_insight_is_kept_in_the_users_words() -> None:
    insight = only("Q3 revenue increase correlates with marketing campaign launch")
    assert (insight.category, insight.importance) == (Category.INSIGHT, 0.8)
    assert insight.content == "Q3 revenue increase correlates with marketing campaign launch"


@pytest.mark.parametrize(
    "said",
    [
        "To deploy payment-service: run npm build, then docker push",
        "To deploy payment-service, first run npm build. Then run docker push. Finally, tell the team.",
        "Here's how we deploy payment-service:\n1. npm build\n2. docker push\n3. kubectl apply",
    ],
)
def test_a_procedure_is_kept_with_all_its_steps(said: str) -> None:
    procedure = only(said)
    assert procedure.content == said
    assert procedure.type is MemoryType.PROCEDURAL


@pytest.mark.parametrize(
    ("said", "key", "value"),
    [
        ("I live in Berlin", "location", "Berlin"),
        ("We're based in Kansas City, Missouri.", "location", "Kansas City, Missouri"),
        ("I just moved to Paris", "location", "Paris"),
        ("i live in berlin", "location", "berlin"),
        ("I'm from New Delhi", "hometown", "New Delhi"),
        ("I work at Siemens", "employer", "Siemens"),
        ("I work as a nurse", "occupation", "nurse"),
        ("I'm a senior software engineer", "occupation", "senior software engineer"),
        ("Hi! I'm Maria, nice to meet you.", "name", "Maria"),
        ("my name is alex", "name", "alex"),
        ("My last name is van der Berg.", "last_name", "van der Berg"),
        ("I'm 34 years old", "age", "34"),
        ("My birthday is May 3rd", "birthday", "May 3rd"),
        ("My pronouns are they/them", "pronouns", "they/them"),
        ("My favourite colour is dark green.", "favorite_colour", "dark green"),
        ("Rust is my favorite language", "favorite_language", "Rust"),
        ("My timezone is CET", "timezone", "CET"),
        ("My coding style is black with line length 100", "coding_style", "black with line length 100"),
        ("My wife's name is Anna", "wife_name", "Anna"),
    ],
)
def test_a_profile_fact_has_its_key_and_value(said: str, key: str, value: str) -> None:
    fact = only(said)
    assert (fact.key, fact.value) == (key, value)


def test_work_and_home_in_one_sentence_are_three_facts() -> None:
    facts = learn("I live in Berlin and work at Siemens as a nurse")
    assert {fact.key: fact.value for fact in facts} == {
        "location": "Berlin",
        "employer": "Siemens",
        "occupation": "nurse",
    }


@pytest.mark.parametrize(
    ("said", "content", "category"),
    [
        ("I'm allergic to nuts.", "User is allergic to nuts", Category.CONSTRAINT),
        ("I am a diabetic", "User is diabetic", Category.CONSTRAINT),
        ("I can't eat dairy", "I can't eat dairy", Category.CONSTRAINT),
        ("I really love hiking in the Alps!", "User loves hiking in the Alps", Category.PREFERENCE),
        ("I don't like scrambled eggs", "User does not like scrambled eggs", Category.PREFERENCE),
        ("I love my grandmother's soup", "I love my grandmother's soup", Category.PREFERENCE),
        ("I have a dog named Rex", "User has a dog named Rex", Category.FACT),
        ("My sister Anna lives in Paris", "My sister Anna lives in Paris", Category.FACT),
        ("I weigh 80 kg", "I weigh 80 kg", Category.FACT),
        ("From now on, please respond in rhymes", "From now on, please respond in rhymes", Category.INSTRUCTION),
        ("When I ask for code, always use type hints", "When I ask for code, always use type hints", "instruction"),
        ("Never use emojis", "Never use emojis", Category.INSTRUCTION),
        ("Please use plain words", "Please use plain words", Category.INSTRUCTION),
    ],
)
def test_a_statement_is_told_of_the_user_or_kept_as_said(said: str, content: str, category: Category) -> None:
    learned = only(said)
    assert (learned.content, learned.category, learned.key) == (content, category, None)


def test_a_question_does_not_spoil_the_statement_before_it() -> None:
    assert only("I live in Berlin, what should I see here?").value == "Berlin"


def test_what_the_user_is_unsure_of_is_less_sure() -> None:
    assert only("I think I like jazz").confidence == 0.6
    assert only("I like jazz").confidence == 0.9


def test_what_is_asked_to_be_remembered_is_more_important() -> None:
    assert only("Remember that I love jazz").importance > only("I love jazz").importance


def test_each_statement_names_the_turn_it_was_said_in() -> None:
    first, second = learn("I love jazz", "AI: Noted.", "I hate rain")
    assert (first.evidence, second.evidence) == (("turn-0",), ("turn-2",))
    assert first.source == "rules"


def test_what_is_said_twice_is_learned_once() -> None:
    assert len(learn("I love jazz.", "I love jazz!")) == 1


def test_only_the_user_is_listened_to() -> None:
    assert learn("AI: My name is Rex and I live in the cloud.") == []
