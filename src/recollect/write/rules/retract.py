"""Find what the user takes back: "I no longer like it", "I am not allergic to nuts", "forget that"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from recollect.model.learned import Learned
from recollect.model.memory import Category
from recollect.write.rules.clauses import Clause
from recollect.write.rules.match import Hit, first_hit
from recollect.write.rules.pack import Pack
from recollect.write.rules.talk import Talk

_SURE = 0.9
# Of other things that are not so there is no end.
_WORTH_DENYING = frozenset([Category.IDENTITY, Category.CONSTRAINT, Category.PREFERENCE])


def retracted(clause: Clause, talk: Talk, pack: Pack) -> list[Learned] | None:
    """What no longer holds, if the clause takes something back; its content is true when it is kept by itself."""
    if not pack.takes_back.match(clause.plain):
        return None
    gone: Learned | None = None
    if found := pack.patterns["no_longer"].match(clause.plain):
        return _no_longer(found.groupdict(), clause, talk, pack)
    if pack.patterns["forget"].match(clause.plain):
        gone, talk.gone = (_untrue(talk.latest, pack) if talk.latest else None), talk.latest
    elif found := pack.patterns["forget_that"].match(clause.plain):
        stated = _stated(found["what"], clause, pack)
        gone = _untrue(talk.completed(stated, pack), pack) if stated else None
    elif found := pack.patterns["forget_my"].match(clause.plain):
        parts = found.groupdict()
        gone = _forgotten(parts["what"] or parts.get("about") or "", talk, pack)
    return None if gone is None else [gone]


def ended(hit: Hit, pack: Pack) -> Iterator[Learned]:
    """What else is over with it: whoever is divorced from Karl has no husband of that name any more."""
    for key in hit.rule.over:
        what = key.partition("_")[0]
        content = pack.texts["over" if hit.who else "over_all"].format(who=hit.who, what=what)
        gone = _gone(replace(hit, key=key, value=hit.who), content)
        yield replace(gone, value=hit.who or None, only_known=True)


def lost(clause: Clause, talk: Talk, pack: Pack) -> Iterator[Learned]:
    """What is over with what happened: who sold the car drives it no more, what was called off is not on."""
    if found := pack.patterns["died"].match(clause.plain):
        known = next((hit for hit in reversed(talk.stated) if found["who"] in _words_said(hit)), None)
        pet = f"User no longer has a {found['topic'].lower()} named {found['who']}"
        yield Learned(content=pet, category=known.rule.category if known else Category.FACT, retraction=True)
    elif found := pack.patterns["sold"].match(clause.plain):
        thing = set(found["thing"].split())
        hit = next((hit for hit in reversed(talk.stated) if thing <= set(_words_said(hit))), None)
        if hit and (kept := pack.patterns["keeps"].match(hit.content)):
            yield _gone(hit, f"{kept['who']} no longer {kept['verb']} {kept['rest']}")
        elif hit and hit.key and thing <= set(hit.value.split()):
            yield _gone(hit, f"User no longer has {hit.value}")
    elif found := pack.patterns["called_off"].match(clause.plain):
        words = [word for word in found["topic"].lower().split() if word not in pack.words["light"]]
        events = [hit for hit in talk.stated if hit.rule.category is Category.EVENT]
        on = [hit for hit in events if set(words) <= {word.lower() for word in _words_said(hit)}]
        yield from [_untrue(on[-1], pack)] if len({hit.content for hit in on}) == 1 else []


def _words_said(hit: Hit) -> list[str]:
    return hit.content.replace(",", " ").replace("'s", " ").split()


def denied(clause: Clause, pack: Pack) -> Iterator[Learned]:
    """What the clause says is not so, or was so once: it ends what is known to be so, and is nothing by itself."""
    if found := pack.patterns["denies"].match(clause.plain):
        text = " ".join(filter(None, _parts(found.groupdict())))
        if (hit := _worth_denying(text, clause, pack)) is None:
            return
        yield _gone(hit, _negated(hit, clause, found.groupdict(), pack))
        if (but := found["but"]) and text.endswith(hit.value):
            # "Not in Rome but in Milan": the small word may be said again.
            before = text.removesuffix(hit.value)
            again = before.split()[-1] if before else ""
            instead = _stated(before + but.removeprefix(f"{again} "), clause, pack)
            yield from [_held(instead, _elided(instead.content, pack))] if instead else []
    elif clause.alone and (found := pack.patterns["used_to"].match(clause.plain)):
        # "I used to hate it but ..." may take back what it seems to say.
        if hit := _worth_denying(" ".join(_parts(found.groupdict())), clause, pack):
            yield _gone(hit, f"User used to {found['tail']}" if _is_told(hit, pack) else _sentence(clause.said))
    elif clause.alone and (found := pack.patterns["does_again"].match(clause.plain)):
        head, tail = _parts(found.groupdict())
        can = found["head2"] is not None
        if hit := _worth_denying(f"{head} {'cannot' if can else 'do not'} {tail}", clause, pack):
            verb, _, rest = tail.partition(" ")
            told = f"User can {tail}" if can else f"User {pack.third.get(verb) or verb + 's'} {rest}"
            yield _gone(hit, told if pack.words["own"].isdisjoint(tail.lower().split()) else _sentence(clause.said))


def _parts(found: Mapping[str, str | None]) -> tuple[str, str]:
    head = found["head"] or found.get("head2") or ""
    # Where "not" stands around the verb, head and verb are apart.
    tails = (found.get(name) for name in ("tail", "tail2", "tail3"))
    return f"{head} {found.get('be') or ''}".strip(), next(filter(None, tails), "")


def _worth_denying(text: str, clause: Clause, pack: Pack) -> Hit | None:
    hit = _stated(text, clause, pack)
    return hit if hit and hit.rule.category in _WORTH_DENYING else None


def _stated(text: str, clause: Clause, pack: Pack) -> Hit | None:
    return first_hit(replace(clause, said=text, plain=text), pack)


def _is_told(hit: Hit, pack: Pack) -> bool:
    return hit.content.startswith("User") and pack.language == "en"


def _no_longer(found: Mapping[str, str | None], clause: Clause, talk: Talk, pack: Pack) -> list[Learned] | None:
    who = found.get("who") or ""
    does = found.get("does") or found.get("did") or found.get("verb")
    where = found.get("rest") or found.get("where") or ""
    verb = does if where else (does or "").split(" ")[0]
    does = does and f"{does} {where}".rstrip()
    be = found.get("is") or found.get("isnt") or found.get("quit")
    if left := found.get("left"):
        does = pack.texts["works"].format(where=left)
    before = f"{who} {does}".strip() if does else pack.texts["was"].format(who=who, what=be)
    if (hit := _stated(before, clause, pack)) is None:
        return None
    talk.gone = hit
    if but := found.get("but"):
        # "I no longer live in Rome, but in Milan": the verb is said once for both.
        instead = _stated(f"{who} {verb} {but}", clause, pack)
        if instead is not None and instead.key is not None and instead.key == hit.key:
            return [replace(_held(instead, _elided(instead.content, pack)), correction=True)]
        return None
    content = _sentence(clause.said)
    if found.get("rest") and found.get("did"):
        # "Keinen Kaffee mehr": told so that it plainly denies what it ends.
        content = pack.texts["no_more"].format(before=_sentence(before))
    if hit.content.startswith("User ") and pack.language == "en":
        subject, verb, rest = hit.content.split(" ", 2)
        content = f"User is no longer {rest}" if verb == "is" else f"{subject} no longer {verb} {rest}"
    # Who left a place may never have worked there.
    return [replace(_gone(hit, content), only_known=left is not None)]


def _negated(hit: Hit, clause: Clause, found: Mapping[str, str | None], pack: Pack) -> str:
    """The statement about the user with its "not"."""
    if not _is_told(hit, pack):
        return _sentence(clause.said)
    if tail := found.get("tail2"):
        return f"User does not {tail}"
    subject, be, rest = hit.content.partition(" is ")
    return f"{subject} is not {rest}" if be else _sentence(clause.said)


def _elided(content: str, pack: Pack) -> str:
    """The words as they are written where the language runs them together: "j'habite"."""
    for short, long in pack.short.items() if "elides" in pack.texts else ():
        if content.lower().startswith(f"{long.lower()} "):
            return _sentence(short + content[len(long) :])
    return content


def _sentence(said: str) -> str:
    return said[:1].upper() + said[1:]


def _untrue(hit: Hit, pack: Pack) -> Learned:
    return _gone(hit, pack.texts["untrue"].format(content=hit.kept or hit.content))


def _forgotten(what: str, talk: Talk, pack: Pack) -> Learned | None:
    """The one statement about what is to be forgotten; without one, only the words themselves say what is meant."""
    words = {word for word in what.lower().split() if word not in pack.words["light"] | pack.words["own"]}
    about = [hit for hit in reversed(talk.stated) if words and words <= _words_of(hit)]
    return _untrue(about[0], pack) if len({hit.key or hit.content for hit in about}) == 1 else None


def _words_of(hit: Hit) -> set[str]:
    return set(hit.content.lower().replace("'s", " ").split()) | set((hit.key or "").split("_"))


def _gone(hit: Hit, content: str) -> Learned:
    return replace(_held(hit), content=content, retraction=True)


def _held(hit: Hit, content: str = "") -> Learned:
    return Learned(
        content=content or hit.content,
        category=hit.rule.category,
        type=hit.rule.type,
        key=hit.key,
        value=hit.value if hit.key else None,
        importance=hit.rule.importance,
        confidence=min(hit.confidence, _SURE),
    )
