"""What a statement holds, once it is read."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Reading:
    """What a statement holds. `words` are what it is about; the rest are details that must agree."""

    words: set[str] = field(default_factory=set)
    numbers: list[str] = field(default_factory=list)
    counted: dict[str, str] = field(default_factory=dict)
    times: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    # Names that are written in capitals, as initials are: "NASA".
    short: set[str] = field(default_factory=set)
    # Names that tell where or when: "in Rome", "on New Year's Eve".
    placed: set[str] = field(default_factory=set)
    # How well or how much of what a name stands for: "some Turkish".
    degrees: dict[str, str] = field(default_factory=dict)
    people: set[str] = field(default_factory=set)
    marks: set[str] = field(default_factory=set)
    negated: list[str] = field(default_factory=list)
    past: set[str] = field(default_factory=set)
    present: set[str] = field(default_factory=set)
    # What someone has done: "has painted".
    perfect: set[str] = field(default_factory=set)
    sides: set[str] = field(default_factory=set)
    lesser: set[str] = field(default_factory=set)
    origins: set[str] = field(default_factory=set)
    # What is done to the one who comes first: "was paid".
    undergone: set[str] = field(default_factory=set)
    # What someone likes or hates to do: "hates waiting".
    doing: set[str] = field(default_factory=set)
    # Of what there are several that are taken together: "a group of hikers".
    grouped: set[str] = field(default_factory=set)
    # What is said more than once: "a brown dog on a brown pillow".
    repeated: set[str] = field(default_factory=set)
    # The words of weight of each part between "and" or "but".
    clauses: list[set[str]] = field(default_factory=lambda: [set()])
    # Who did it where it is said last: "sold by the user".
    agents: set[str] = field(default_factory=set)
    # What each of two does where both act.
    deeds: dict[str, set[str]] = field(default_factory=dict)
    # Whose things are, where it is said: "Anna's car"; and what stands behind a word such as "before" or "from".
    owners: dict[str, str] = field(default_factory=dict)
    follows: dict[str, set[str]] = field(default_factory=dict)
    # He or she, where someone was spoken of before; and words that say little by themselves: "go", "make".
    pronouns: set[str] = field(default_factory=set)
    idle: set[str] = field(default_factory=set)
    # What is the user's own ("my guests"), what the text opens with, and who or what comes first in it.
    owned: set[str] = field(default_factory=set)
    opening: str = ""
    # Its very first word if that is one of weight, and the same if it may be a name: no everyday word.
    bare: str = ""
    may_name: str = ""
    lead: str = ""
    # What is said of the one who comes first: the verb, or "be" or "have".
    relation: str = ""
    # What must be done, and whether the user is spoken of at all.
    duty: str = ""
    of_user: bool = False
    # Whether it is an order to whoever reads it ("keep it short"), and whether it has but one clause.
    ordered: bool = False
    simple: bool = False
    # What stands behind "with" and "for"; and for each thing the small words behind which it stands.
    beside: dict[str, set[str]] = field(default_factory=dict)
    governed: dict[str, set[str]] = field(default_factory=dict)
    # Whether something has been so for a time that is told, and whether something is looked for, whichever it be.
    lasting: bool = False
    seeks: bool = False
    # Whether it tells what someone said in their own words.
    quotes: bool = False
    # Whether it names several things, parted by commas or joined by "and".
    listed: bool = False
    # Each word and person as first met, with how many words of weight had come up to then.
    order: dict[str, int] = field(default_factory=dict)

    def held(self) -> frozenset[str]:
        """All of weight that it holds."""
        return frozenset().union(self.words, self.people, self.times, self.numbers)
