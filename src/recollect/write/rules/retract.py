"""Find what the user takes back: "I no longer like it", "forget that"."""

from __future__ import annotations

from dataclasses import replace

from recollect.model.learned import Learned
from recollect.write.rules.clauses import Clause
from recollect.write.rules.match import Hit, first_hit
from recollect.write.rules.pack import Pack
from recollect.write.rules.talk import Talk

_SURE = 0.9


def retracted(clause: Clause, talk: Talk, pack: Pack) -> Learned | None:
    """What no longer holds, if the clause takes something back; its content is true when it is kept by itself."""
    if found := pack.patterns["no_longer"].match(clause.plain):
        return _no_longer(found.groupdict(), clause, pack)
    if pack.patterns["forget"].match(clause.plain):
        return _untrue(talk.latest, pack) if talk.latest else None
    if found := pack.patterns["forget_that"].match(clause.plain):
        stated = first_hit(replace(clause, said=found["what"], plain=found["what"]), pack)
        return _untrue(talk.completed(stated, pack), pack) if stated else None
    if found := pack.patterns["forget_my"].match(clause.plain):
        return _forgotten(found["what"], talk, pack)
    return None


def _no_longer(found: dict[str, str | None], clause: Clause, pack: Pack) -> Learned | None:
    who = found["who"] or ""
    does = found.get("does") or found.get("did")
    if does and found.get("rest"):
        does = f"{does} {found['rest']}"
    be = found.get("is") or found.get("isnt")
    before = f"{who} {does}" if does else pack.texts["was"].format(who=who, what=be)
    hit = first_hit(replace(clause, said=before, plain=before), pack)
    if hit is None:
        return None
    content = clause.said[:1].upper() + clause.said[1:]
    if hit.content.startswith("User ") and pack.language == "en":
        content = _negated(hit.content)
    return _gone(hit, content)


def _negated(content: str) -> str:
    """The statement about the user with "no longer" where it belongs."""
    subject, verb, rest = content.split(" ", 2)
    return f"User is no longer {rest}" if verb == "is" else f"{subject} no longer {verb} {rest}"


def _untrue(hit: Hit, pack: Pack) -> Learned:
    return _gone(hit, pack.texts["untrue"].format(content=hit.content))


def _forgotten(what: str, talk: Talk, pack: Pack) -> Learned | None:
    """The last statement about what is to be forgotten; without one, only the words themselves say what is meant."""
    words = {word for word in what.lower().split() if word not in pack.words["light"] | pack.words["own"]}
    for hit in reversed(talk.stated):
        if words and words <= set(hit.content.lower().replace("'s", " ").split()) | set((hit.key or "").split("_")):
            return _untrue(hit, pack)
    return None


def _gone(hit: Hit, content: str) -> Learned:
    return Learned(
        content=content,
        category=hit.rule.category,
        type=hit.rule.type,
        key=hit.key,
        value=hit.value if hit.key else None,
        importance=hit.rule.importance,
        confidence=min(hit.confidence, _SURE),
        retraction=True,
    )
