"""Generated memories of everyday life, and questions about them."""

from __future__ import annotations

import random

_WHO = "I|my sister Anna|my brother|our neighbour Tom|my boss|my daughter Mia|grandma|my friend Leo|Kim".split("|")
_DOES = (
    "bought {thing} in {city}|moved to {city} {when}|is allergic to {food}|loves {food} and {hobby}|"
    "has an appointment with the dentist in {city} {when}|wants to learn {hobby}|works as {job} in {city}|"
    "lost {thing} {when}|is planning a trip to {city} {when}|never eats {food}|started {hobby} {when}|"
    "paid {number} euros for {thing}|met {other} at the {place} {when}|prefers {food} over {food2}|"
    "has to return {thing} to the {place} {when}|keeps {thing} in the {place}|will be {number} years old {when}"
).split("|")
_WORDS = {
    "thing": "a red bicycle|an old camera|the car keys|a piano|two tickets|a laptop|hiking boots|a drill".split("|"),
    "city": "Paris|Lisbon|Kyoto|Hamburg|Oslo|Toronto|Lima|Nairobi|Prague|Dublin|Seoul|Valencia".split("|"),
    "food": "peanuts|sushi|lentil soup|strawberries|goat cheese|mushrooms|dark chocolate|oysters".split("|"),
    "food2": "pizza|salad|curry|porridge|pancakes|noodles".split("|"),
    "hobby": "chess|pottery|rock climbing|the cello|Portuguese|gardening|woodwork|swimming|baking".split("|"),
    "job": "a nurse|an architect|a bus driver|a teacher|a lawyer|a carpenter|a data analyst".split("|"),
    "place": "library|garage|kitchen|office|train station|gym|garden|market".split("|"),
    "when": "last Monday|in March|next summer|on the 14th of July|in 2019|tomorrow|at Easter".split("|"),
    "other": "Paula|a former colleague|the new teacher|Mr Okafor|an old classmate".split("|"),
    "number": [str(n) for n in range(3, 99, 5)],
}  # fmt: skip
_QUESTION_TEMPLATES = (
    "Where did {who} move?|What is {who} allergic to?|Who works as {job}?|What happened in {city}?|Who likes {food}?|"
    "How much was {thing}?|Where is {thing}?|What does {who} want to learn?|Who plays or does {hobby}?|"
    "What is planned {when}?|Whom did {who} meet at the {place}?"
).split("|")


def _filled(shape: str, dice: random.Random) -> str:
    words = {kind: dice.choice(options) for kind, options in _WORDS.items()}
    return shape.format(who=dice.choice(_WHO), **words)


def memories(count: int, *, seed: int) -> list[str]:
    """Return different sentences."""
    dice, results = random.Random(seed), dict[str, None]()
    while len(results) < count:
        first = _filled("{who} " + dice.choice(_DOES), dice)
        # There are some thousand of one clause, and as many of two as anyone may want.
        results[first if len(results) < 5_000 else f"{first}, and {_filled('{who} ' + dice.choice(_DOES), dice)}"] = (
            None
        )
    return list(results)


def questions(count: int, *, seed: int) -> list[str]:
    """Return questions about them."""
    dice = random.Random(seed)
    return [_filled(dice.choice(_QUESTION_TEMPLATES), dice) for _ in range(count)]
