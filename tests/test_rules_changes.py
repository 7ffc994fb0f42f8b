"""What plain words take back or change, without an LLM: through the whole write flow, and nothing else is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from remember_samples import opened, user
from test_rules import SUNDAY, learn

from recollect import Memory
from recollect.model.scope import Scope
from recollect.model.turn import Role, Turn
from recollect.write.rules.learn import find_by_rules


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    home: Path = tmp_path_factory.mktemp("changes")
    with opened(home) as opening:
        yield opening


def known(memory: Memory, said: str) -> list[str]:
    """What is known after some things, parted by a bar, were said in as many conversations."""
    for number, each in enumerate(said.split("|")):
        memory.remember(user(each.strip()), user_id=said, session_id=f"s{number}", wait=True)
    return sorted(each.content for each in memory.get_all(user_id=said))


CHANGES = [
    # What is listed stays, save for the one.
    ("I'm allergic to nuts and eggs|I'm no longer allergic to eggs", ["User is allergic to nuts"]),
    ("I'm allergic to nuts and eggs|I'm not allergic to nuts", ["User is allergic to eggs"]),
    ("I like running, swimming and tennis|I no longer like swimming", ["User likes running and tennis"]),
    # What is denied, or was so once, is over.
    ("I'm allergic to nuts|I'm not allergic to nuts", ["User is not allergic to nuts"]),
    (
        "I'm allergic to penicillin|I'm allergic to crabs|Actually, I'm not allergic to crabs, just penicillin",
        ["User is allergic to penicillin", "User is not allergic to crabs"],
    ),
    ("I don't eat meat|Actually I do eat meat", ["User eats meat"]),
    ("I can't eat gluten|I can eat gluten again", ["User can eat gluten"]),
    ("I like cats|I used to like cats", ["User used to like cats"]),
    ("My name is Al|My name isn't Al.", ["User's name is not Al"]),
    (
        "Je suis allergique aux arachides|Je ne suis plus allergique aux arachides",
        ["Je ne suis plus allergique aux arachides"],
    ),
    ("Me gusta el fútbol|Ya no me gusta el fútbol", ["Ya no me gusta el fútbol"]),
    ("Ich wohne in Köln|Ich wohne nicht mehr in Köln, sondern in Bonn", ["Ich wohne in Bonn"]),
    # What is said to be something else has one value.
    ("My name is Al|My name isn't Al, it's Hal.", ["User's name is Hal"]),
    ("My name is Al|My name is not Al, it is Hal.", ["User's name is Hal"]),
    (
        "My phone number is 555-1234|My phone number is not 555-1234, it's 555-9999",
        ["User's phone number is 555-9999"],
    ),
    ("My dog is called Rex|My dog isn't called Rex, it's Max", ["User's dog is named Max"]),
    ("My kitchen budget is 9,000|Actually, make the kitchen budget 9,500", ["User's kitchen budget is 9,500"]),
    ("I'm 30 years old|I'm 31 now", ["User is 31 years old"]),
    ("I'm 30|I'm not 30, I'm 31", ["User is 31 years old"]),
    ("My budget is 100 euros|My budget is now 200 euros", ["User's budget is 200 euros"]),
    ("I prefer tea over coffee|I prefer coffee over tea", ["User prefers coffee over tea"]),
    ("I'm vegan|I'm vegetarian now", ["User is vegetarian"]),
    ("My name is Maria|My name is Maria Lindqvist", ["User's name is Maria Lindqvist"]),
    ("My birthday is 12 April 1992|My birthday is 13 April", ["User's birthday is 13 April 1992"]),
]

STAYS = [
    ("I hate snakes|I don't like spiders anymore", ["User hates snakes", "User no longer likes spiders"]),
    ("I hate running|I no longer like tea", ["User hates running", "User no longer likes tea"]),
    (
        "I'm allergic to nuts|I'm no longer allergic to eggs",
        ["User is allergic to nuts", "User is no longer allergic to eggs"],
    ),
    (
        "I'm allergic to tree nuts and eggs|I'm no longer allergic to nuts",
        ["User is allergic to tree nuts and eggs", "User is no longer allergic to nuts"],
    ),
    ("I live in Milan|I no longer live in Rome", ["User lives in Milan"]),
    ("I live in Milan|I used to live in Rome", ["User lives in Milan"]),
    ("I live in Rome|We moved to Milan in 2019 but came back", ["User lives in Rome"]),
    ("I hate broccoli|I used to hate broccoli but now I love it", ["User hates broccoli"]),
    ("I'm diabetic|I'm vegan now", ["User is diabetic", "User is vegan"]),
    ("I like dogs|Actually I do like birds", ["User likes birds", "User likes dogs"]),
    ("I don't drink alcohol|I do drink coffee", ["I don't drink alcohol"]),
    ("My dog is called Rex|My cat is called Tom now", ["User's cat is named Tom", "User's dog is named Rex"]),
    (
        "My budget for the Hawaii trip is $10,000|My budget is now $200",
        ["User's budget for the Hawaii trip is $10,000", "User's budget is $200"],
    ),
    (
        "I prefer tea over coffee|I prefer tea over juice",
        ["User prefers tea over coffee", "User prefers tea over juice"],
    ),
    ("I'm Maria Lindqvist|I'm Maria", ["User's name is Maria Lindqvist"]),
    ("My birthday is 12 April 1992|My birthday is 12 April", ["User's birthday is 12 April 1992"]),
    ("My birthday is 12 April|I was born in 1992", ["User was born in 1992", "User's birthday is 12 April"]),
    ("I live in New York|I live in York", ["User lives in York"]),
    ("I'm not vegan", []),
    ("I used to like cats", []),
]


@pytest.mark.parametrize(("said", "left"), CHANGES)
def test_what_is_taken_back_or_changed_is_not_known_beside_the_new(
    memory: Memory, said: str, left: list[str]
) -> None:
    assert known(memory, said) == left


@pytest.mark.parametrize(("said", "left"), STAYS)
def test_what_is_about_something_else_takes_nothing_away(memory: Memory, said: str, left: list[str]) -> None:
    assert known(memory, said) == left


def test_a_day_that_is_said_instead_of_another_takes_its_place(memory: Memory) -> None:
    [flight] = known(memory, "My flight is on Friday|My flight is on Saturday, not Friday")
    assert flight.startswith("My flight is on Saturday (")


def test_a_correction_without_a_name_finds_what_was_just_said() -> None:
    first, second = learn("My birthday is 3 May", "No, it's not 3 May, it's 4 May")
    assert (second.content, second.correction, first.value) == ("User's birthday is 4 May", True, "3 May")


@pytest.mark.parametrize(
    "said", ["My name isn't Al", "It isn't Al, it's what my name is", "It's not Al, it's my name"]
)
def test_no_value_is_made_of_the_words_that_ask_for_one(said: str) -> None:
    assert [each.value for each in learn("My name is Al", said) if not each.retraction] == ["Al"]


def test_what_is_to_be_forgotten_must_be_the_one_thing_that_was_said_of_it() -> None:
    *_, gone = learn("I like tea", "I like coffee", "Forget what I told you about tea")
    assert (gone.content, gone.retraction) == ("No longer true: User likes tea", True)
    assert not any(
        each.retraction for each in learn("I like tea", "I hate green tea", "Forget what I said about tea")
    )


@pytest.mark.parametrize(
    ("said", "content"),
    [
        ("I can't stand people who chew loudly.", "User does not like people who chew loudly"),
        ("I like pizza, but only with pineapple", "User likes pizza, but only with pineapple"),
        ("I love trying new foods when I travel", "I love trying new foods when I travel"),
        ("I hate everyone except my mom", "I hate everyone except my mom"),
        ("I love hiking because it calms me when I'm sad", "User loves hiking"),
        ("I don't like coffee unless it has milk", None),
        ("I like beer only when it's cold", None),
        ("I love movies that make me cry", None),
        ("My rent is 900 euros unless they raise it", None),
        ("I live in Rome if that matters", None),
    ],
)
def test_what_a_statement_depends_on_is_kept_or_nothing_is(said: str, content: str | None) -> None:
    assert [each.content for each in learn(said)] == ([content] if content else [])


@pytest.mark.parametrize(
    "said",
    [
        "Here is the email I got:\n\nHi, my name is Tom and I live in Oslo. I am allergic to cats.",
        'Email from my landlord:\n"I live in Cannes and my phone number is 0601020304"',
        "Email from my landlord:\nI live in Cannes and my phone number is 0601020304",
        "A message from my boss: I live in Paris now.",
        "She says:\nI am allergic to cats.",
        "---------- Forwarded message\nFrom: Tom\nI live in Oslo.",
        "From: Tom\nI live in Oslo.",
        '"Dear all,\nI live in Oslo.\nYours, Tom"',
        'Traceback (most recent call last):\n  File "a.py", line 3, in go\n    I live in Tokyo\nSyntaxError: no',
        "Nachricht von meinem Chef:\nIch wohne in Bonn.",
    ],
)
def test_what_others_wrote_is_not_the_users(said: str) -> None:
    assert learn(said) == []


@pytest.mark.parametrize(
    "said",
    [
        "I live in Rome. Here is the email I got:\nI live in Oslo.",
        "I live in Rome.\n---\nI live in Oslo.",
        "Note: I live in Rome",
        "I wrote an email to my boss. I live in Rome.",
        "    I live in Rome",
        "I don't remember this song. I live in Rome.",
        "The gap between us is 5 years and I live in Rome.",
    ],
)
def test_what_is_the_users_own_still_counts(said: str) -> None:
    assert [each.value for each in learn(said)] == ["Rome"]


@pytest.mark.parametrize(
    "said",
    [
        "Off the record, I'm allergic to cats",
        "Don't remember this: I live in Oslo.",
        "Between us, I hate my job. I live in Rome.",
        "Please don't remember this. My salary is 5000 euros.",
        "I live in Rome, but please don't save that.",
        "Unter uns: ich wohne in Bonn.",
        "Entre nous, j'habite à Paris.",
        "Entre nosotros, vivo en Madrid.",
    ],
)
def test_what_is_not_to_be_kept_is_not_learned(said: str) -> None:
    assert learn(said) == []


def test_what_is_too_much_for_one_turn_is_told() -> None:
    said = " ".join(f"I like food{number}." for number in range(43))
    turn = Turn(id="t", scope=Scope(user="ann"), role=Role.USER, content=said, said_at=SUNDAY)
    found = find_by_rules([turn], now=SUNDAY)
    assert len(found.learned) == 40
    assert [each.rpartition(": ")[2] for each in found.dropped] == [f"User likes food{n}" for n in (40, 41, 42)]
