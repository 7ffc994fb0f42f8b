"""The rules take little time for an ordinary turn, and no more than linear time for the worst."""

from __future__ import annotations

import time

import pytest
from test_rules import learn

from recollect.write.rules.sentences import sentences

WORST = {
    "one subject again and again": "i am ",
    "names": "my name my ",
    "commas": "I, ",
    "conjunctions": "and I like ",
    "spaces": " ",
    "quotes": '"',
    "quoted words": '"a b c ',
    "full stops": ". ",
    "oppositions": "not a but ",
    "lines": "I live in Rome\n",
    "sentences": "I bought a car yesterday. ",
    "items": "1. ",
    "speakers": "Bob: hi\n",
    "digits": "my budget is $1,",
    "lead-ins": "well, by the way, ",
    "capitals": "A of the ",
    "requests": "write a a a a ",
    "purposes": "to deploy ",
    "fences": "```\n",
    "broken characters": "\ufffd",
    "notes": "Hawaii budget: ",
    "weekdays": "I ran on Monday last week ",
}


def taken_s(*said: str) -> float:
    """The processor time of the best of three, so that a busy machine does not count."""
    times = []
    for _ in range(3):
        start = time.process_time()
        learn(*said)
        times.append(time.process_time() - start)
    return min(times)


@pytest.mark.parametrize("name", WORST)
def test_a_hundred_kilobytes_of_anything_are_read_in_no_time(name: str) -> None:
    learn("I bought a car yesterday.")
    text = (WORST[name] * 100_000)[:100_000]
    assert taken_s(text) < 0.25
    assert taken_s(f"AI: {text}", "No, it's $12,000") < 0.25


@pytest.mark.parametrize("name", WORST)
def test_a_message_ten_times_as_long_takes_no_longer(name: str) -> None:
    learn("I bought a car yesterday.")
    short, long = ((WORST[name] * size)[:size] for size in (100_000, 1_000_000))
    assert taken_s(long) < 5 * taken_s(short) + 0.05


def test_an_ordinary_turn_takes_little_time() -> None:
    turn = (
        "I'm planning a dinner for friends next week and want to impress them. By the way, I just turned 30. "
        "Can you suggest a main course that is easy to make?"
    )
    learn(turn)
    assert min(taken_s(turn) for _ in range(30)) < 0.005


def test_a_message_is_split_into_its_sentences_only() -> None:
    said = sentences("Dr. No lives at 5 p.m. on Main St. in Rome! Really? Yes.\n- first\n> quoted\n2. second")
    assert [(each.item, each.text) for each in said] == [
        ("", "Dr. No lives at 5 p.m. on Main St. in Rome!"),
        ("", "Really?"),
        ("", "Yes."),
        ("-", "first"),
        ("2.", "second"),
    ]
