"""Made-up memories: sentences about people, places, things and money, with words as rare and common as in speech."""

from __future__ import annotations

import random
from collections.abc import Iterator
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
    """Endless different sentences."""
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
    """Endless questions that the sentences may answer."""
    rnd = random.Random(seed)
    while True:
        yield rnd.choice(
            [
                f"What did {rnd.choice(_PEOPLE)} do with the {rnd.choice(_THINGS)} in {rnd.choice(_PLACES)}?",
                f"How much was the {rnd.choice(_THINGS)} that {rnd.choice(_PEOPLE)} bought?",
                f"Which of my friends {rnd.choice(_VERBS)} something {rnd.choice(_TAILS)} in {rnd.choice(_PLACES)}?",
            ]
        )
