"""Match one clause against a pack's rules: what it states, in words that stand by themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from recollect.write.rules.clauses import Clause
from recollect.write.rules.pack import Pack, Rule
from recollect.write.rules.shapes import shaped

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_FIELD = re.compile(r"\{(\w+)\}")
_LISTED = re.compile(r",? and (?:(?:a|an|also) )?|, ?(?:(?:a|an|also) )?", re.IGNORECASE)
# Each thing that is listed may have a time of its own.
_LISTS = frozenset(["several", "exact_list"])
_HEDGED = 0.6
_MOST_VALUE_CHARS = 200


@dataclass(frozen=True, slots=True)
class Hit:
    """A rule that a clause fits, with what it found."""

    rule: Rule
    content: str
    value: str
    key: str | None
    topic: str
    confidence: float
    who: str = ""
    more: bool = False
    kept: str = ""


def hits(clause: Clause, pack: Pack) -> Iterator[Hit]:
    """What the clause states by each rule that it fits, the surest first; the first is meant, see Rule.further."""
    first = _WORD.match(clause.plain)
    for word in (first.group().lower(), "*") if first else ():
        if word in pack.gates and pack.gates[word].match(clause.plain):
            for rule in pack.rules[word]:
                if (hit := _hit(rule, clause, pack)) is not None:
                    yield from _apart(hit, clause, pack) if rule.each else [hit]


def _apart(hit: Hit, clause: Clause, pack: Pack) -> Iterator[Hit]:
    """A hit for each thing that is listed; all but the last tell that there is `more`."""
    values = [value for value in _LISTED.split(hit.value) if value]
    for number, value in enumerate(values, 1):
        found = {"value": value, "topic": hit.topic}
        yield replace(
            hit,
            content=_told(hit.rule, found, clause, pack),
            value=value,
            key=_keyed(hit.rule, found, pack),
            more=number < len(values),
        )


def first_hit(clause: Clause, pack: Pack) -> Hit | None:
    """What the clause states by the first rule that needs no time to be sure."""
    return next((hit for hit in hits(clause, pack) if not hit.rule.when.startswith("must")), None)


def _hit(rule: Rule, clause: Clause, pack: Pack) -> Hit | None:
    if rule.asked and not clause.asked:
        return None
    for pattern in rule.patterns:
        match = pattern.match(clause.plain)
        if match is None:
            continue
        found = {name: text.strip() for name, text in match.groupdict().items() if text}
        if clause.beside and (name := pack.patterns["last_name"].search(clause.beside)):
            found.setdefault("who", name.group())
        value = _shaped(rule, found.get("value", ""), pack)
        if value is None or len(value) > _MOST_VALUE_CHARS:
            continue
        if rule.key and pack.patterns["no_value"].search(value):
            # A value is a thing, not another statement.
            return None
        if rule.refuse is not None and rule.refuse.search(value):
            return None
        found["value"] = value
        about = found.pop("about", "")
        if about and f" {about.split()[0]} " not in found["topic"]:
            # What it is for may stand behind the value: "$500 for the bike".
            found["topic"] = f"{found['topic']} {about}"
        return Hit(
            rule=rule,
            content=_told(rule, found, clause, pack),
            value=value,
            key=_keyed(rule, found, pack),
            topic=found.get("topic", ""),
            who=found.get("who", ""),
            confidence=min(rule.confidence, _HEDGED) if clause.hedged else rule.confidence,
        )
    return None


def _shaped(rule: Rule, text: str, pack: Pack) -> str | None:
    """The value, if the text is one. What is so is told without when it began: "has a cat named Tom yesterday"."""
    if not rule.tell or rule.when not in ("", "said") or rule.shape in _LISTS:
        return shaped(rule.shape, text, pack)
    last = pack.patterns["time_last"]
    value = shaped(rule.shape, last.sub("", text), pack)
    return value and last.sub("", value)


def _told(rule: Rule, found: Mapping[str, str], clause: Clause, pack: Pack) -> str:
    """The statement about the user where it can be put so for sure, else what they said."""
    said = " ".join(text for name, text in found.items() if name != "verb")
    own = pack.words["own"]
    if not rule.tell or any(word.lower() in own for word in _WORD.findall(said)):
        return _sentence_case(clause.said)
    return _sentence_case(_FIELD.sub(lambda field: _field(field[1], found, pack), rule.tell))


def _field(name: str, found: Mapping[str, str], pack: Pack) -> str:
    if name == "topic":
        return _within(found.get(name, ""), pack)
    if name == "be":
        return found.get(name, "is").lower()
    if name != "verbs":
        return found.get(name, "")
    verb = found["verb"].lower()
    return pack.third.get(verb) or f"{verb}s"


def _within(topic: str, pack: Pack) -> str:
    """The topic as it is written within a sentence: it may have been its first word."""
    first, space, rest = topic.partition(" ")
    # A German noun has its capital anywhere.
    is_small = pack.language != "de" and first.lower() in pack.words["heads"]
    return f"{first.lower()}{space}{rest}" if is_small else topic


def _sentence_case(text: str) -> str:
    return text[:1].upper() + text[1:]


def _keyed(rule: Rule, found: Mapping[str, str], pack: Pack) -> str | None:
    if not rule.key:
        return None
    if rule.key == "by_value":
        return key_of_value(found["value"], pack)
    parts = _FIELD.sub(lambda field: slug(found.get(field[1], ""), pack), rule.key)
    return parts.strip("_")[:80] or None


def key_of_value(value: str, pack: Pack) -> str | None:
    """What is chosen by such a value: a language by Python."""
    chosen = value.lower()
    return next((name for name in pack.texts["by_value"].split() if chosen in pack.words[name]), None)


def slug(topic: str, pack: Pack) -> str:
    """The words of a topic that tell it from others, in an order that does not depend on how they are put."""
    words = [word.lower().removesuffix("'s") for word in _WORD.findall(topic)]
    light = pack.words["light"]
    telling = [word for word in words if word not in light]
    heads = [word for word in telling if word in pack.words["heads"]]
    return "_".join([*heads, *sorted(set(telling) - set(heads))])
