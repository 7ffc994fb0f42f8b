"""Rules of grammar and of word formation by which two sentences say the same, each with near misses that do not."""

from __future__ import annotations

import pytest

from recollect.write.settling.same import SameLimits, compare, said_again

# Under each rule what is the same (=) and what is not (!).
RULES = """
# Letters that were read in the wrong code are what was written.
= The bakery’s oven is broken | The bakeryâ€™s oven is broken
= Lena's café opens at 8 | Lena's cafÃ© opens at 8
= The club‚Äôs gate is locked | The club's gate is locked
! The bakeryâ€™s oven is broken | The bakery's oven is not broken
! Lena's cafÃ© opens at 8 | Lena's café opens at 9
! The club‚Äôs gate is locked | The pub's gate is locked
# A union of states is the same by its initials, with or without points.
= The U.S. bought two icebreakers | The US bought two icebreakers
= The United Kingdom left the pact | The UK left the pact
= UN envoy visits the island | United Nations envoy visits the island
! The U.S. bought two icebreakers | The U.K. bought two icebreakers
! EU envoy visits the island | UN envoy visits the island
! Let us buy two icebreakers | The US buys two icebreakers
# What comes from a country is of that country, and of no other.
= Syrian pianist wins the contest | Syria's pianist wins the contest
= The Zambian embassy is closed | The embassy of Zambia is closed
= Dutch tulips are cheap | Tulips from the Netherlands are cheap
! Syrian pianist wins the contest | Libyan pianist wins the contest
! The Zambian embassy is closed | The Gambian embassy is closed
! Niger exports uranium | Nigeria exports uranium
# What is being done by someone is what someone is doing, also if they are counted.
= The fence is being painted by three students | Three students are painting the fence
= The shop is being run by two agencies | Two agencies are running the shop
= The ball is being thrown by a clown | A clown is throwing the ball
! The fence is being painted by three students | Four students are painting the fence
! The price was cut by three euros | The price was cut to three euros
! A clown is throwing the ball | A clown is being thrown by the ball
# Two who change places about what is done do something else.
= The bank sued the airline in May | In May the bank sued the airline
! The bank sued the airline | The airline sued the bank
! A truck hit the bus | The bus hit a truck
! Wheat prices lift flour prices in winter | Flour prices lift wheat prices in winter
# A word for where something is says what no other does.
! The user lives near Rome | The user lives in Rome
! The bike is in front of the shop | The bike is in the shop
! The lamp hangs above the table | The lamp hangs at the table
! A toad hops off a stone into a pond | A toad hops off a pond onto a stone
# A denial written in haste is one.
= The user doesnt eat fish | The user doesn't eat fish
! The user dont eat fish | The user eats fish
! The lift isnt working | The lift is working
! I cant swim | I can swim
"""


def cases(sign: str) -> list[tuple[str, ...]]:
    lines = (line[2:].split(" | ") for line in RULES.strip().splitlines() if line.startswith(sign))
    return [tuple(line) for line in lines]


@pytest.mark.parametrize(("one", "other"), cases("= "))
def test_the_same_by_rule_differs_in_nothing(one: str, other: str) -> None:
    for alike in (compare(one, other), compare(other, one)):
        assert (alike.differs, alike.words) == ("", 1)


@pytest.mark.parametrize(("one", "other"), cases("! "))
def test_a_near_miss_is_never_the_same(one: str, other: str) -> None:
    for alike in (compare(one, other), compare(other, one)):
        assert not said_again(alike, 0.97, limits=SameLimits())
