"""What is said later takes the place of what it contradicts, where that is plain; the new value is never lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from remember_samples import opened, user
from test_rules import learn

from recollect import Memory


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    home: Path = tmp_path_factory.mktemp("newer")
    with opened(home) as opening:
        yield opening


def known(memory: Memory, said: str) -> list[str]:
    """What is known after some things, parted by a bar, were said one after the other."""
    for each in said.split("|"):
        memory.remember(user(each.strip()), user_id=said, session_id="s", wait=True)
    found = memory.get_all(user_id=said, filters={"category": {"ne": "turn"}})
    return sorted(each.content for each in found)


NEWER = [
    ("My rent is 900 euros|My rent is 950 euros|Actually my rent is 970 euros", ["User's rent is 970 euros"]),
    ("My rent is 900 euros|The rent went up from 900 to 950 euros.", ["User's rent is 950 euros"]),
    ("My salary is 50k|My salary is 60k", ["User's salary is 60k"]),
    ("Answer in English.|Please always answer in German.", ["Please always answer in German"]),
    ("Please always answer in German.|Speak English to me.", ["Speak English to me"]),
    ("Use metric units|Use imperial units from now on", ["Use imperial units from now on"]),
    ("I prefer short answers|I prefer long, detailed answers", ["User prefers long, detailed answers"]),
    ("Keep your answers short.|Keep your answers long and detailed.", ["Keep your answers long and detailed"]),
    ("I have two dogs|I have three dogs now", ["I have three dogs now"]),
    (
        "The meeting with Anna is on March 3|The meeting with Anna was moved to March 10",
        ["The meeting with Anna was moved to March 10"],
    ),
    ("My favorite color is green.|Scratch that, it's blue.", ["User's favorite color is blue"]),
    ("My favorite color is green.|No, blue.", ["User's favorite color is blue"]),
    ("My favorite color is green.|Sorry, I meant blue.", ["User's favorite color is blue"]),
    ("My favorite color is green.|It's actually blue.", ["User's favorite color is blue"]),
    ("My favorite food is pizza.|Sorry, I meant ramen.", ["User's favorite food is ramen"]),
    ("My name is Alex.|You got my name wrong, I'm Alexis.", ["User's name is Alexis"]),
    ("I work at Bosch.|I left Bosch and started at Siemens.", ["User works at Siemens"]),
    ("I work at Bosch.|I left Bosch and joined Siemens.", ["User works at Siemens"]),
    ("I work at Shell.|I'm not working at Shell anymore, I'm at BP now.", ["User works at BP"]),
    ("I work at Bosch.|I left Bosch last week.", ["User no longer works at Bosch"]),
    ("I work at Bosch.|I got fired from Bosch", ["User no longer works at Bosch"]),
    ("I weigh 80 kg|I weigh 78 kg now", ["I weigh 78 kg now"]),
    ("My favorite language is Python|No, Rust.", ["User's favorite language is Rust"]),
    ("I live in Rome|I no longer live in Rome, I'm in Milan now.", ["User lives in Milan"]),
    ("I live in Rome|Scratch that, it's Milan.", ["User lives in Milan"]),
    ("I live in Porto.|I used to live in Porto, but now I live in Ghent.", ["User lives in Ghent"]),
    ("I am 40.|I turned 41 yesterday.", ["User is 41 years old"]),
    ("I am 40.|I recently turned 41 years old.", ["User is 41 years old"]),
    (
        "To deploy: run make build, then make push.|Actually, to deploy: run make build, then make test.",
        ["To deploy: run make build, then make test."],
    ),
    ("I have a cat named Luna.|My cat Luna died.", ["My cat Luna died", "User no longer has a cat named Luna"]),
    ("I follow a keto diet.|I stopped keto.", ["User is no longer keto"]),
    ("I drive a Skoda.|I sold my Skoda.", ["I no longer drive a Skoda", "I sold my Skoda"]),
    ("My car is a Skoda.|I sold my Skoda.", ["I sold my Skoda", "User no longer has a Skoda"]),
]
BOTH = [
    ("My rent is 900 euros|The rent is 1200 in that building", ["User's rent is 900 euros"]),
    (
        "My salary is 50k|My wife's salary is 60k",
        ["User's salary is 50k", "User's wife's salary is 60k"],
    ),
    ("The salary is 60k", []),
    (
        "Answer in English.|When I write German, answer in German.",
        ["Answer in English", "When I write German, answer in German"],
    ),
    ("Answer in English.|Answer this question in German.", ["Answer in English"]),
    ("I prefer short answers|I prefer short hair", ["User prefers short answers", "User prefers short hair"]),
    ("I have two dogs|I have two cats", ["I have two cats", "I have two dogs"]),
    ("My favorite color is green.|No, thanks.", ["User's favorite color is green"]),
    ("My favorite color is green.|Sorry, it's late.", ["User's favorite color is green"]),
    ("My favorite color is green.|It's actually fine.", ["User's favorite color is green"]),
    ("My favorite color is green.|I meant well.", ["User's favorite color is green"]),
    ("My favorite food is pizza.|Scratch that, it's raining.", ["No longer true: User's favorite food is pizza"]),
    ("My name is Alex.|You got my name wrong.", ["User's name is Alex"]),
    ("I work at Bosch|I'm at Starbucks now", ["User works at Bosch"]),
    ("I work at Bosch|I left Paris yesterday", ["User works at Bosch"]),
    ("I work at Bosch|I no longer work at Bosch, I'm in Paris now", ["User no longer works at Bosch"]),
    ("I live in Rome|I no longer live in Rome, I'm Italian now", ["User no longer lives in Rome"]),
    ("I live in Rome|I no longer live in Rome, I joined Greenpeace", ["User no longer lives in Rome"]),
    ("I am 40|I turned 30 in Rome", ["User is 40 years old"]),
    (
        "To deploy: run make build, then make push.|To release: run make all, then make push.",
        ["To deploy: run make build, then make push.", "To release: run make all, then make push."],
    ),
    ("I drive a Skoda|I want to sell my Skoda", ["I drive a Skoda"]),
    ("I drive a Skoda|I sold my Honda", ["I drive a Skoda", "I sold my Honda"]),
    ("I'm vegan|I quit vegan cooking classes", ["User is vegan"]),
]


@pytest.mark.parametrize(("said", "left"), NEWER)
def test_the_newer_takes_the_place_of_the_older(memory: Memory, said: str, left: list[str]) -> None:
    assert known(memory, said) == left


@pytest.mark.parametrize(("said", "left"), BOTH)
def test_what_does_not_contradict_takes_nothing_away(memory: Memory, said: str, left: list[str]) -> None:
    assert known(memory, said) == left


def test_what_was_called_off_is_no_longer_on() -> None:
    gone, called_off = learn("The meeting with Bob is on Friday.", "The meeting with Bob is cancelled.")[1:]
    assert (gone.content, gone.retraction) == (
        "No longer true: The meeting with Bob is on Friday (2024-02-16)",
        True,
    )
    assert called_off.content == "The meeting with Bob is cancelled"


@pytest.mark.parametrize(
    "said",
    ["The meeting with Ann is cancelled.", "Is the meeting with Bob cancelled?", "If the meeting is cancelled, ok."],
)
def test_another_meeting_or_a_question_calls_nothing_off(said: str) -> None:
    assert not any(each.retraction for each in learn("The meeting with Bob is on Friday.", said))
