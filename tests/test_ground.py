"""A claim must not say the opposite of what was said."""

from __future__ import annotations

import pytest

from recollect.write.extraction.ground import Said, made_up

OPPOSITE = "the turns it cites say the opposite"


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
