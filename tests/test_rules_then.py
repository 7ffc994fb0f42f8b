"""What people say of how things have changed since: one new value, in the place of the one that was known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect import Memory
from recollect.settings import Settings
from recollect.testing.fake_embedder import FakeEmbedder


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(settings=Settings(home=tmp_path, learn="rules"), embedder=FakeEmbedder(32)) as memory:
        yield memory


def known_after(memory: Memory, *said: str) -> list[str]:
    """What is known once each of these was said in a conversation of its own."""
    for number, text in enumerate(said):
        memory.remember(text, user_id="a", session_id=f"s{number}", wait=True)
    found = memory.get_all(user_id="a", filters={"category": {"ne": "turn"}})
    return sorted(record.content for record in found)


@pytest.mark.parametrize(
    ("before", "then", "known"),
    [
        ("I live in Oslo.", "I moved from Oslo to Lisbon.", "User lives in Lisbon"),
        ("I live in Oslo.", "We relocated from the north of Norway to Lisbon last month.", "User lives in Lisbon"),
        ("I live in Oslo.", "I just moved back to Lisbon.", "User lives in Lisbon"),
        ("Ich wohne in Berlin.", "Ich bin von Berlin nach Hamburg umgezogen.", None),
        ("Vivo en Madrid.", "Me mudé de Madrid a Sevilla.", None),
        ("J'habite à Paris.", "J'ai déménagé de Paris à Lyon.", None),
    ],
)
def test_whoever_moved_from_one_place_to_another_lives_there(
    memory: Memory, before: str, then: str, known: str | None
) -> None:
    # Other languages keep the user's own words.
    assert known_after(memory, before, then) == [known or then.rstrip(".")]


def test_a_thing_that_was_moved_is_nobodys_home(memory: Memory) -> None:
    assert known_after(memory, "I moved the files from Drive to Dropbox.") == []


@pytest.mark.parametrize(
    "correction", ["Actually it's $12,000 for the Hawaii trip", "No, sorry, it is $12,000 for the Hawaii trip."]
)
def test_a_correction_that_names_its_thing_finds_it_in_another_conversation(memory: Memory, correction: str) -> None:
    known = known_after(memory, "My budget for the Hawaii trip is $10,000.", correction)
    assert known == ["User's budget for the Hawaii trip is $12,000"]


def test_and_in_the_same_one(memory: Memory) -> None:
    said = "My budget for the Hawaii trip is $10,000. I live in Oslo. Actually, it's $12,000 for the Hawaii trip."
    assert known_after(memory, said) == ["User lives in Oslo", "User's budget for the Hawaii trip is $12,000"]


def test_a_price_of_which_nothing_is_known_is_no_budget(memory: Memory) -> None:
    assert known_after(memory, "Actually it's $500 for the flight.") == []


@pytest.mark.parametrize("then", ["Tim is 6 now", "Tim just turned 6.", "Tim is already 6 years old."])
def test_someone_known_grows_older(memory: Memory, then: str) -> None:
    assert known_after(memory, "My son Tim is 5.", then) == ["User's son Tim is 6 years old"]


def test_of_someone_unknown_no_age_is_kept(memory: Memory) -> None:
    assert known_after(memory, "Tim is 6 now", "Windows is 11 now", "My daughter Ida is 3.", "Tom is 4 now.") == [
        "User's daughter Ida is 3 years old"
    ]


@pytest.mark.parametrize(
    ("before", "then", "known"),
    [
        ("I am married to Karl.", "Karl and I divorced.", ["Karl and I divorced"]),
        (
            "My husband is named Karl.",
            "Karl and I divorced.",
            ["Karl and I divorced", "Karl is no longer User's husband"],
        ),
        ("My wife is named Ann.", "I got divorced.", ["I got divorced", "User no longer has a wife"]),
        (
            "My wife is named Ann.",
            "My wife and I are divorced.",
            ["My wife and I are divorced", "User no longer has a wife"],
        ),
        ("My boss is named Karl.", "Karl and I divorced.", ["Karl and I divorced", "User's boss is named Karl"]),
        ("I am divorced.", "I got married.", ["I got married"]),
        ("I am married.", "I am engaged in a lawsuit.", ["I am engaged in a lawsuit", "I am married"]),
    ],
)
def test_the_end_of_a_marriage_ends_what_was_known_of_it(
    memory: Memory, before: str, then: str, known: list[str]
) -> None:
    assert known_after(memory, before, then) == known


@pytest.mark.parametrize("when", ["yesterday", "last week", "about 3 months ago", "on Friday", "this morning"])
def test_what_is_so_since_is_told_without_when_it_began(memory: Memory, when: str) -> None:
    assert known_after(memory, f"I adopted a grey kitten called Pixel {when}") == [
        "User has a grey kitten named Pixel"
    ]
    [kept] = memory.get_all(user_id="a", filters={"category": "fact"})
    assert kept.occurred_at is not None


def test_a_name_that_is_a_time_is_kept(memory: Memory) -> None:
    assert known_after(memory, "My favorite song is Yesterday.") == ["User's favorite song is Yesterday"]


@pytest.mark.parametrize(
    ("before", "then", "known"),
    [
        ("Ich wohne in Berlin.", "Ich wohne nicht mehr in Berlin.", "Ich wohne nicht mehr in Berlin"),
        ("Ich wohne in Berlin.", "Ich wohne nicht in Berlin, sondern in Hamburg.", "Ich wohne in Hamburg"),
        (
            "Ich wohne in Berlin.",
            "Ich wohne nicht mehr in Berlin, jetzt wohne ich in Hamburg.",
            "Jetzt wohne ich in Hamburg",
        ),
        ("Ich mag Kaffee.", "Ich mag keinen Kaffee mehr.", "Ich mag Kaffee nicht mehr"),
        ("Ich mag Kaffee.", "Ich mag keinen Kaffee.", "Ich mag keinen Kaffee"),
        (
            "Ich bin allergisch gegen Nüsse.",
            "Ich bin nicht allergisch gegen Nüsse.",
            "Ich bin nicht allergisch gegen Nüsse",
        ),
        ("Vivo en Madrid.", "Ya no vivo en Madrid.", "Ya no vivo en Madrid"),
        ("Vivo en Madrid.", "Ya no vivo en Madrid, ahora vivo en Sevilla.", "Vivo en Sevilla"),
        ("Vivo en Madrid.", "No vivo en Madrid, sino en Sevilla.", "Vivo en Sevilla"),
        ("Soy alérgico a las nueces.", "No soy alérgico a las nueces.", "No soy alérgico a las nueces"),
        ("J'habite à Paris.", "Je n'habite plus à Paris.", "Je n'habite plus à Paris"),
        ("J'habite à Paris.", "Je n'habite pas à Paris mais à Lyon.", "J'habite à Lyon"),
        ("J'habite à Paris.", "Je n'habite plus à Paris, j'habite maintenant à Lyon.", "J'habite maintenant à Lyon"),
        ("Je suis allergique aux noix.", "Je ne suis pas allergique aux noix.", "Je ne suis pas allergique aux noix"),
        ("I like coffee.", "I don't like coffee.", "User does not like coffee"),
    ],
)
def test_what_is_denied_ends_what_was_known(memory: Memory, before: str, then: str, known: str) -> None:
    assert known_after(memory, before, then) == [known]


def test_whoever_does_it_with_the_user_is_named(memory: Memory) -> None:
    [kept] = known_after(memory, "My brother Alex and I went to Rome last week.")
    assert kept.startswith("My brother Alex and I went to Rome last week")


def test_where_several_speak_each_statement_is_its_speakers(memory: Memory) -> None:
    said = [
        ("Dan", "My sister plays the cello."),
        ("Cleo", "I adopted a grey kitten called Pixel yesterday."),
        ("Dan", "My son Tim is 5."),
        ("Cleo", "Tim is 6 now."),
        ("Dan", "Karl and I got divorced."),
        ("Dan", "I attended a concert in Rome last week."),
        ("Cleo", "Mi hermana se llama Ana."),
        ("Dan", "From now on, always answer in French."),
    ]
    messages = [{"role": "user", "content": text, "name": name} for name, text in said]
    memory.remember(messages, user_id="a", session_id="s", wait=True)
    told = [re.sub(r" \(\S+ to \S+\)$", "", content) for content in known_after(memory)]
    assert told == [
        "Cleo has a grey kitten named Pixel",
        "Cleo: Mi hermana se llama Ana",
        "Dan attended a concert in Rome last week",
        "Dan's sister plays the cello",
        "Dan's son Tim is 5 years old",
        "Dan: Karl and I got divorced",
        "From now on, always answer in French",
    ]


def test_where_one_speaks_with_a_name_that_is_the_user(memory: Memory) -> None:
    message = {"role": "user", "content": "My sister is named Ada. I live in Oslo.", "name": "Dan"}
    memory.remember([message], user_id="a", session_id="s", wait=True)
    assert known_after(memory) == ["User lives in Oslo", "User's sister is named Ada"]
