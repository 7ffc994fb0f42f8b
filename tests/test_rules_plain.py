"""Ordinary sentences that the rules learn from: procedures, wishes, medicines, what is to be kept, small letters."""

from __future__ import annotations

import pytest
from test_rules import learn, only

from recollect.model.memory import Category, MemoryType


@pytest.mark.parametrize(
    ("said", "key"),
    [
        ("To deploy the app, run the tests, build the image, push it and restart the pods.", "how_to_app_deploy"),
        ("To reset the router: 1. unplug it 2. wait ten seconds 3. plug it in again.", "how_to_reset_router"),
        ("To reset the router: 1. Unplug it 2. Wait ten seconds 3. Plug it in again.", "how_to_reset_router"),
        ("Our release process: run the tests, tag the commit, push the tag, and tell Ann.", None),
        ("Our release process: run the tests, tag the commit, and announce it in Slack.", "release_process"),
        ("How we deploy: 1) run tests 2) build 3) push", "how_to_deploy"),
        ("To deploy payment-service: run npm build, then docker push", "how_to_deploy_payment-service"),
    ],
)
def test_a_procedure_in_one_sentence_is_kept_whole(said: str, key: str | None) -> None:
    found = [(each.content, each.type, each.key) for each in learn(said)]
    assert found == ([(said, MemoryType.PROCEDURAL, key)] if key else [])


@pytest.mark.parametrize(
    "said",
    [
        "To do this, run the tests, then build the image.",
        "Here's how we do it: run the tests, then build the image.",
        "The steps are as follows: run the tests, then build the image.",
        "My routine: run the tests, then build the image.",
    ],
)
def test_a_procedure_for_something_unnamed_takes_no_place_of_another(said: str) -> None:
    procedure = only(said)
    assert (procedure.type, procedure.key) == (MemoryType.PROCEDURAL, None)


@pytest.mark.parametrize(
    "said",
    [
        "To lose weight, eat less, sleep more and run daily.",
        "To deploy the app, should I run the tests, build the image and push it?",
        "If you want to deploy the app, run the tests and build it.",
        "To celebrate my birthday, I went to Rome, then Paris.",
        "Our process: slow.",
        "How I feel: sad",
        "How we lead:\nThe team talks to every department.",
    ],
)
def test_advice_questions_and_stories_are_no_procedures(said: str) -> None:
    assert not any(each.type is MemoryType.PROCEDURAL for each in learn(said))


@pytest.mark.parametrize(
    ("said", "content", "category"),
    [
        ("Stop using bullet points.", "Stop using bullet points", Category.INSTRUCTION),
        ("Stop calling me Al.", "Stop calling me Al", Category.INSTRUCTION),
        ("Don't use semicolons in my code.", "Don't use semicolons in my code", Category.INSTRUCTION),
        ("Do not use tables in your answers", "Do not use tables in your answers", Category.INSTRUCTION),
        ("Please speak Dutch to me.", "Please speak Dutch to me", Category.INSTRUCTION),
        ("I have been a vegetarian since 2015.", "User is vegetarian", Category.CONSTRAINT),
        (
            "I take 20 mg of lisinopril every evening.",
            "User takes 20 mg of lisinopril every evening",
            Category.CONSTRAINT,
        ),
        ("Note that I take metformin every morning.", "I take metformin every morning", Category.FACT),
        ("I need gluten-free options.", "User needs gluten-free options", Category.CONSTRAINT),
        ("Remember that the garage code is 4412.", "The garage code is 4412", Category.FACT),
        ("Don't forget that Anna hates olives.", "Anna hates olives", Category.FACT),
        ("Remember that Tom will be late tomorrow.", "Tom will be late tomorrow (2024-02-12)", Category.FACT),
        ("My girlfriend is Sofia.", "User's girlfriend is named Sofia", Category.FACT),
        ("My girlfriend is Sofia and she lives in Rome.", "User's girlfriend is named Sofia", Category.FACT),
        ("My hobbies are: chess, pottery, running", "User's hobbies are chess, pottery, running", Category.FACT),
        ("Do not forget that I am vegan", "User is vegan", Category.CONSTRAINT),
        ("My landlord raised my rent to 950 euros.", "User's rent is 950 euros", Category.CONSTRAINT),
        ("I earn 54k a year.", "User earns 54k a year", Category.CONSTRAINT),
        ("The rent went up from 900 to 950 euros.", "User's rent is 950 euros", Category.CONSTRAINT),
        (
            "My train leaves at 14:05 on Sunday.",
            "My train leaves at 14:05 on Sunday (2024-02-11)",
            Category.EVENT,
        ),
        ("im vegan", "User is vegan", Category.CONSTRAINT),
    ],
)
def test_an_ordinary_sentence_is_learned(said: str, content: str, category: Category) -> None:
    learned = only(said)
    assert (learned.content, learned.category) == (content, category)


@pytest.mark.parametrize(
    "said",
    [
        "Stop it.",
        "Stop using that library.",
        "Don't use the old API.",
        "I have been vegan before",
        "I have been vegan for two years but not anymore",
        "I take a look every day",
        "I need gluten-free options for the party",
        "If I take 20 mg of lisinopril every evening, is it fine?",
        "My doctor says I take 20 mg of lisinopril too often",
        "Remember that my PIN is [redacted: PIN]",
        "Remember the milk",
        "Remember, the key is to start small.",
        "Remember to call Tom",
        "Remember the time we were in Rome",
        "Keep in mind that it is late",
        "Note the function is slow",
        "The garage code is 4412.",
        "Do you remember that the garage code is 4412?",
        "I make 3 cakes a week",
        "Ich bin im Urlaub",
    ],
)
def test_what_only_sounds_like_it_is_not(said: str) -> None:
    assert learn(said) == []


@pytest.mark.parametrize(
    ("said", "facts"),
    [
        ("I'm Sarah, 29, vegan", {"name": "Sarah", "age": "29", "diet": "vegan"}),
        # A word in small letters may be anything: it is no name.
        ("i'm sarah, 29, vegan", {"age": "29", "diet": "vegan"}),
        ("My name is Tom, 34, and I live in Rome", {"name": "Tom", "age": "34", "location": "Rome"}),
        ("hi im tom i live in leeds and love football", {"location": "leeds", None: None}),
        ("my name is tom i live in leeds", {"name": "tom", "location": "leeds"}),
        ("i'm tired, 29 emails today", {}),
        ("I'm busy, 29, 30 and 31 March", {}),
        ("the town i live in is nice", {}),
    ],
)
def test_an_introduction_tells_several_things(said: str, facts: dict[str | None, str | None]) -> None:
    assert {each.key: each.value for each in learn(said)} == facts
