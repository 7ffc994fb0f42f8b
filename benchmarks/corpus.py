"""Generated data: memories and questions with words as rare and common as in speech, and chats with an assistant."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

_PEOPLE = (
    "Ana Ben Chloe Dev Elif Finn Grace Hugo Iris Jonas Kira Liam Mona Nils Olga Priya Quinn Rosa Sven Tara".split()
)
_PLACES = "Hawaii Kyoto Lisbon Oslo Nairobi Lima Prague Seoul Tbilisi Quito Galway Hobart Leipzig Porto".split()
_VERBS = "likes dislikes booked cancelled planned visited bought sold repaired painted studies teaches misses".split()
_THINGS = (
    "budget trip piano garden bicycle recipe novel camera server deadline report kitchen tent passport violin "
    "marathon vaccine contract mortgage sailboat telescope chess pottery beekeeping thesis invoice podcast"
).split()
_TAILS = [f"{a}{b}" for a in "bal cor dun fer gal hol jin kor lum mar nor pel rud sel tor vel".split() for b in
          "ado ane eck ert ian ico ile ing ish ium ole ora ost uce ult umb".split()]  # fmt: skip
_TAIL_WEIGHTS = list(accumulate(1 / (rank + 1) for rank in range(len(_TAILS))))


def sentences(seed: int) -> Iterator[str]:
    """Yield different sentences without end."""
    rnd = random.Random(seed)
    number = 0
    while True:
        number += 1
        words = " ".join(rnd.choices(_TAILS, cum_weights=_TAIL_WEIGHTS, k=rnd.randint(3, 12)))
        yield (
            f"{rnd.choice(_PEOPLE)} {rnd.choice(_VERBS)} the {rnd.choice(_THINGS)} in {rnd.choice(_PLACES)} "
            f"for ${rnd.randint(10, 20_000):,} on day {number} with {words}"
        )


def questions(seed: int) -> Iterator[str]:
    """Yield questions about the sentences without end."""
    rnd = random.Random(seed)
    while True:
        yield rnd.choice(
            [
                f"What did {rnd.choice(_PEOPLE)} do with the {rnd.choice(_THINGS)} in {rnd.choice(_PLACES)}?",
                f"How much was the {rnd.choice(_THINGS)} that {rnd.choice(_PEOPLE)} bought?",
                f"Which of my friends {rnd.choice(_VERBS)} something {rnd.choice(_TAILS)} in {rnd.choice(_PLACES)}?",
            ]
        )


_TALK = (
    "Hi!", "Hello there", "Good morning", "Thanks!", "Thank you so much", "ok", "Great, thanks", "Bye for now",
    "Cool", "Got it, thank you",
)  # fmt: skip
_QUESTIONS = (
    "How do I sort a list of dictionaries by two keys in Python?",
    "What is the difference between a mutex and a semaphore?",
    "Can you explain how tides work?",
    "Which vegetables can be planted in October?",
    "Write me a short poem about rain.",
    "Why does bread dough need to rest?",
    "How long does it take to fly around the world?",
    "What does idempotent mean?",
    "Convert 72 degrees Fahrenheit to Celsius.",
    "What are good questions for a job interview?",
)
_ANSWER = (
    "There are a few ways to look at it, and which one fits depends on what you need it for. The short answer is "
    "that the first approach is the simplest and works in most cases, while the second gives you more control at "
    "the price of some extra steps. If you tell me more about your situation I can be more specific."
)
# A message, and after each bar a fact to learn from it.
_STATEMENTS = (
    "My sister Ana is a nurse in Oslo.|The user's sister Ana lives in Oslo|The user's sister Ana is a nurse",
    "I am allergic to peanuts.|The user is allergic to peanuts",
    "The budget for my Kyoto trip is $7,300.|The budget for the user's Kyoto trip is $7,300",
    "I deploy with make release, then watch the logs.|The user deploys with make release, then watches the logs",
    "Please answer me in bullet points.|The user wants answers in bullet points",
    "We adopted a dog called Bruno last spring.|The user has a dog called Bruno",
    "I started to learn the violin.|The user is learning the violin",
    "My thesis about tidal energy is due in June.|The user's thesis about tidal energy is due in June",
    "I prefer trains to planes.|The user prefers trains to planes",
    "Our office is at Hafenstrasse 12 in Hamburg.|The user's office is at Hafenstrasse 12 in Hamburg",
    "I run ten kilometres every Sunday.|The user runs ten kilometres every Sunday",
    "My manager is called Priya Raman.|The user's manager is called Priya Raman",
    "I use a left-handed keyboard.|The user uses a left-handed keyboard",
    "We are moving to a flat with a balcony in April.|The user moves to a flat with a balcony in April",
    "I cannot eat after eight in the evening because of my stomach.|The user cannot eat after eight in the evening",
    "My favourite author is Ursula Le Guin.|The user's favourite author is Ursula Le Guin",
    "The staging server runs PostgreSQL 16.|The staging server of the user runs PostgreSQL 16",
    "I play chess at the Elmwood club on Tuesdays.|The user plays chess at the Elmwood club on Tuesdays",
    "My daughter Mia turned seven in March.|The user's daughter Mia turned seven in March",
    "I drive an old green Volvo.|The user drives an old green Volvo",
    "The rent went up to 1,240 euros.|The user's rent is 1,240 euros",
    "I work from home on Mondays and Fridays.|The user works from home on Mondays and Fridays",
    "My grandmother taught me to bake rye bread.|The user learned to bake rye bread from their grandmother",
    "I speak Portuguese and a little Finnish.|The user speaks Portuguese and a little Finnish",
    "Never schedule meetings before ten for me.|The user wants no meetings before ten",
    "My passport expires in November 2027.|The user's passport expires in November 2027",
    "I broke my wrist skiing two winters ago.|The user broke their wrist skiing",
    "The client wants invoices in Swiss francs.|The user's client wants invoices in Swiss francs",
    "I keep bees on the roof, four hives.|The user keeps four hives of bees on the roof",
    "My brother Jonas is getting married in Galway.|The user's brother Jonas is getting married in Galway",
)  # fmt: skip
_CHANGED = (
    "Actually, the budget for my Kyoto trip is $9,000 now.|The budget for the user's Kyoto trip is $9,000",
    "My sister Ana moved to Bergen.|The user's sister Ana lives in Bergen",
    "The thesis is due in September instead.|The user's thesis about tidal energy is due in September",
    "I run fifteen kilometres every Sunday now.|The user runs fifteen kilometres every Sunday",
    "My manager is now Tom Okafor.|The user's manager is called Tom Okafor",
    "The staging server runs PostgreSQL 17 since today.|The staging server of the user runs PostgreSQL 17",
    "The rent went up again, to 1,310 euros.|The user's rent is 1,310 euros",
    "I sold the green Volvo and cycle now.|The user sold the green Volvo and cycles",
    "I work from home on Mondays only.|The user works from home on Mondays",
    "We have six hives now.|The user keeps six hives of bees",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Exchange:
    """A message, the assistant's answer, and the facts to learn from it."""

    message: str
    answer: str
    facts: tuple[str, ...] = ()

    @property
    def messages(self) -> list[dict[str, str]]:
        """Return the two as a client sends them."""
        return [{"role": "user", "content": self.message}, {"role": "assistant", "content": self.answer}]


def hundred_exchanges(seed: int) -> list[Exchange]:
    """Return 100 exchanges: 20 small talk, 40 questions, 30 that state a fact, 10 that change one."""
    rnd = random.Random(seed)
    first = [
        *(Exchange(rnd.choice(_TALK), "Happy to help!") for _ in range(14)),
        *(Exchange(rnd.choice(_QUESTIONS), _ANSWER) for _ in range(28)),
        *map(_parse_exchange, _STATEMENTS),
    ]
    then = [
        *(Exchange(rnd.choice(_TALK), "Any time.") for _ in range(6)),
        *(Exchange(rnd.choice(_QUESTIONS), _ANSWER) for _ in range(12)),
        *map(_parse_exchange, _CHANGED),
    ]
    rnd.shuffle(first)
    rnd.shuffle(then)
    return first + then


def statements() -> Iterator[Exchange]:
    """Yield exchanges that state a fact, without end."""
    while True:
        yield from map(_parse_exchange, _STATEMENTS)


def _parse_exchange(line: str) -> Exchange:
    text, *results = line.split("|")
    return Exchange(text, "Good to know, I will keep that in mind.", tuple(results))
