"""The same thing noted by two: ways of saying it that are one, and near ones that are not."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from recollect.evaluation.dedup import cosines
from recollect.evaluation.merging import decisions, merges
from recollect.evaluation.pairs import Pair
from recollect.settings import Settings

# By what makes them one: pairs that say the same, one a line.
SAME = {
    "what goes before the main clause": """
        User painted the fence with Dad over the summer.|Over the summer, the user painted the fence with Dad.
        User walked the dog with Marta despite the rain.|Despite the rain, the user walked the dog with Marta.
        User got a 10% raise thanks to their manager.|Thanks to their manager, the user got a 10% raise.
        User bakes with Jen at Christmas every year.|Every year at Christmas the user bakes with Jen.
    """,
    "what has been so for a time began that long ago": """
        User has had a tandem bicycle for six weeks.|The user got a tandem bicycle six weeks ago.
        User has lived in Porto for nine years.|The user moved to Porto nine years ago.
        User has been playing the cello for two years.|The user started playing the cello two years ago.
        User has been a vegetarian for five years.|The user became a vegetarian five years ago.
    """,
    "what has been so since a date began then": """
        User has worked at the mill since 2015.|The user started working at the mill in 2015.
        User has known Ingrid since college.|The user met Ingrid in college.
        User has been a member of the choir since 2020.|The user joined the choir in 2020.
        User has had a parrot since March.|The user got a parrot in March.
    """,
    "what someone has done": """
        User is thinking of getting their roof repaired.|The user is thinking of having their roof repaired.
        User wants to get the piano tuned in May.|The user wants to have the piano tuned in May.
        User had their gutters cleaned last week.|Last week the user got their gutters cleaned.
    """,
    "what goes with what was done": """
        User cycled along the Inn in June, covering 90 km.|In June the user cycled along the Inn and covered 90 km.
        User went to see the opera Carmen with their parents.|The user saw the opera Carmen with their parents.
        User used 900 points to book a hotel in Bath.|The user booked a hotel in Bath with 900 points.
        User finished painting the shed in May.|The user painted the shed in May.
        It took the user three days to assemble the bunk bed.|The user assembled the bunk bed in three days.
    """,
    "units in full and in short": """
        User's van gets 22 miles per gallon.|The user's van gets 22 mpg.
        User rode the scooter at 30 miles per hour.|The user rode the scooter at 30 mph.
        User's studio has 450 square feet.|The user's studio has 450 sq ft.
        User baked two dozen scones.|The user baked 24 scones.
        User's train was delayed 1 hour.|The user's train was delayed an hour.
    """,
    "lately": """
        User's knee has recently been swollen.|The user's knee has lately been swollen.
        User has been sleeping badly.|The user has been sleeping badly lately.
        User recently finished the pottery course.|The user has just finished the pottery course.
    """,
    "who gives and who gets": """
        User received a globe from their uncle that was cracked.|User's uncle gave them a globe that was cracked.
        User lent their snow chains to their neighbor.|The user's neighbor borrowed their snow chains.
        User bought a floor lamp at Habitat.|The user purchased a floor lamp from Habitat.
    """,
    "who comes along": """
        User went to a rugby match in Cork with their dad.|The user and their dad attended a rugby match in Cork.
        User hiked in Nepal with their wife in 2018.|In 2018 the user and their wife hiked in Nepal.
        User enjoys watching soaps with their roommate.|User and their roommate enjoy watching soaps together.
    """,
    "what is looked for is wanted": """
        User is looking for a second-hand kayak.|The user wants a used kayak.
        User is looking for quick lunches that can be frozen.|The user wants quick lunches that can be frozen.
        User is looking for a tutor for algebra.|The user wants a tutor for algebra.
    """,
    "other words for it": """
        User took part in a chess tournament in Graz.|The user joined a chess tournament in Graz.
        User wants to lower their heating bill.|The user wants to bring down their heating bill.
        User keeps receipts apart from letters in the desk.|The user separates receipts from letters in the desk.
        User fixed a leaky radiator in the hall.|The user repaired a leaking radiator in the hall.
        User's pulse has dropped since spring.|The user's pulse has fallen since spring.
    """,
    "what had to be done": """
        User had to cancel the boat trip on Sunday.|On Sunday the user cancelled the boat trip.
        User had to book the cabin four months ahead.|The user booked the cabin four months in advance.
        User had to replace the boiler in 2021.|The user replaced the boiler in 2021.
    """,
    "what is only reported": """
        User found out that their house was a bakery.|The user's house was a bakery.
        User noticed that their bike has a flat tyre.|The user's bike has a flat tyre.
        User recently discovered that they are allergic to wasps.|User is allergic to wasps.
    """,
    "names with what they are names of": """
        User camped for two nights in Acadia National Park in June.|In June the user camped for two nights in Acadia.
        User has 9,000 points with Kestrel Airlines.|The user has 9,000 points with Kestrel.
        User works as an auditor at Bramley Ltd.|The user works as an auditor at Bramley.
    """,
    "what is done instead": """
        User now gets up at 6:15 instead of 7:45.|The user now gets up at 6:15 instead of their usual 7:45.
        User pays 30 euros instead of 40 euros for the gym.|The user pays 30 euros for the gym instead of 40 euros.
        User rides a Vespa instead of a Honda.|Instead of a Honda, the user rides a Vespa.
    """,
}

# By what keeps them apart, however near they sound.
APART = {
    "what goes before the main clause": """
        Instead of a Shark, the user bought a Dyson|Instead of a Dyson, the user bought a Shark
        Thanks to Anna the user got a job|Thanks to the user Anna got a job
        To see Anna, the user visited Tom|To see Tom, the user visited Anna
        Over 50 guests came to the user's party|50 guests came to the user's party
        While Anna likes tea, the user likes coffee|While Anna likes coffee, the user likes tea
    """,
    "when it began": """
        User has had a kayak for three weeks|User got a kayak three months ago
        User has had a cat for two years|User sold a cat two years ago
        User has lived in Oslo for six years|User moved from Oslo six years ago
        User has been learning Dutch for six months|User stopped learning Dutch six months ago
        User has been vegan for five years|User was vegan five years ago
        User has worked at the mill since 2015|User stopped working at the mill in 2015
        User has worked at the mill since 2015|User worked at the mill in 2015
        User has had a cat since March|User lost a cat in March
        User has been a member of the choir since 2020|User left the choir in 2020
    """,
    "what someone has done": """
        User is getting their roof fixed|User got their roof fixed
        User will have the tooth pulled|User had the tooth pulled
        User has an older sister who lives in Kyoto|User has an older sister who lived in Kyoto
    """,
    "what goes with what was done": """
        User started learning Spanish in May|User learned Spanish in May
        User visited Rome and is studying art|User visited Rome and studied art
        User finished painting the fence in May|User started painting the fence in May
        User went to see a doctor on Monday|User will see a doctor on Monday
        It took the user three days to paint the fence|User painted the fence three days ago
        User used 900 points to book a hotel in Bath|User books hotels in Bath with 900 points
        User saves money to make a down payment|User made a down payment
    """,
    "units": """
        User's car gets 28 mpg|User's car gets 28 mph
        User drove at 60 mph|User drove at 60 kph
        User bought two dozen eggs|User bought two eggs
        User waited 1 hour|User waited 11 hours
    """,
    "lately": """
        User recently bought a car|User just wants a car
        User has recently been to Rome|User will soon be in Rome
        User once lived in Rome|User lives in Rome
    """,
    "who gives and who gets": """
        User borrowed Sam's car|Sam borrowed the user's car
        User received a ring from their aunt that was found|User gave their aunt a ring that was found
        User sold a lamp to Habitat|User bought a lamp at Habitat
        User and Anna cook together|User cooks for Anna
        User cooks for Tom with Anna|User cooks for Anna with Tom
        User replaced the lamp with a candle|User replaced the candle with a lamp
    """,
    "who comes along": """
        User and Leo visited Kyoto|User visited Leo in Kyoto
        User and Leo visited Kyoto|Leo visited Kyoto
        User and their dad saw a play|User's dad saw a play
    """,
    "what was done and what is": """
        User has painted four fences|User paints four fences
        User has read six plays|User reads six plays
        User has finished the report|User finishes the report
    """,
    "when it was used": """
        User used Trello|User uses Trello
        User used a cane in May|User uses a cane in May
        User owed Tom 50 euros|User owes Tom 50 euros
    """,
    "who has it in the end": """
        User got a bike for $100|User sold a bike for $100
        User got a drill last week|User lent a drill last week
        User got a Welsh oak table in May|User built a Welsh oak table in May
        User got a package on Monday|User sent a package on Monday
        User's rent is $180, up from $120|User's rent is €180, up from $120
    """,
    "what is looked for": """
        User is looking for her cat|User wants her cat
        User is looking for a bike|User wants to sell a bike
        User is looking for Anna|User wants Anna
        User is looking for a tent|User has a tent
        User is looking for a quick lentil soup recipe for winter|User has a quick lentil soup recipe for winter
    """,
    "other words for it": """
        User took part in the race|User watched the race
        User gave a presentation on bees|User attended a presentation on bees
        User wants to bring down their weight|User wants to bring up their weight
        User keeps cats apart from dogs|User keeps cats together with dogs
        User eats everything apart from fish|User eats everything with fish
        User's average has fallen|User's average has risen
    """,
    "what had to be done": """
        User had to pay the fine|User must pay the fine
        User needed to sell the boat|User sold the boat
        User had to sell the boat|User did not sell the boat
    """,
    "what is only reported": """
        User learned that their boss quit|User's boss learned that they quit
        User noticed that Anna left|Anna noticed that the user left
        User discovered that their car is sold|User discovered that their car is not sold
        User hopes that their car is sold|The user's car is sold
        User suspects that their car is stolen|The user's car is stolen
    """,
    "names": """
        User flew to Alaska|User flew with Alaska Airlines
        User visited Zion National Park|User visited Zion National Forest
        User visited Oslo|User visited Oslo Park
    """,
    "what is done instead": """
        User wakes up at 7:00 AM instead of 8:30 AM|User wakes up at 8:30 AM instead of 7:00 AM
        User goes to bed at ten instead of eleven|User goes to bed at eleven instead of ten
        User pays 30 euros instead of 40 euros|User pays 40 euros instead of 30 euros
    """,
}


def _pairs(lines: str) -> list[tuple[str, str]]:
    told = [line.strip().partition("|") for line in lines.strip().splitlines()]
    return [(first, second) for first, _, second in told]


@pytest.mark.parametrize("way", SAME)
def test_what_two_note_of_one_thing_is_one(way: str) -> None:
    pairs = _pairs(SAME[way])
    _, cosine = asyncio.run(cosines([Pair(first, second, 5.0) for first, second in pairs], Settings()))
    for order in (pairs, [(second, first) for first, second in pairs]):
        merged = merges(decisions(order, cosine))
        assert [pair for pair, one in zip(order, merged, strict=True) if not one] == []


@pytest.mark.parametrize("way", APART)
def test_what_only_sounds_like_it_stays_apart_even_if_the_embedding_is_the_same(way: str) -> None:
    pairs = _pairs(APART[way])
    for order in (pairs, [(second, first) for first, second in pairs]):
        merged = merges(decisions(order, np.ones(len(order))))
        assert [pair for pair, one in zip(order, merged, strict=True) if one] == []
