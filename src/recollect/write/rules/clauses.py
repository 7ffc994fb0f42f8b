"""Take a sentence apart into clauses in which its author states something, without words that only lead in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from recollect.write.rules.pack import Pack
from recollect.write.sentences import Sentence
from recollect.write.screening.others import ELIDED

_SPACE = re.compile(r"\s+")
_ENDING = " .!,;:…–—-"
# The minus of a blood type or a grade is no dash.
_SIGNED = re.compile(r"(?:^|\s)(?:AB|[ABCDFO0])[-–−](?=[ .!,;:…]*$)")
_MOST_OPENINGS = 6


@dataclass(frozen=True, slots=True)
class Clause:
    """One statement of a sentence: as it was said, and as the rules read it.

    `plain` has no contractions and none of the words that lead in; what these say of it are the flags. It `changes`
    something if it says what is so now; it is `kept` if they want it known, `asked` if they ask for that; it is
    `alone` if the sentence has no other. Who does it with the user, as in "Karl and I", is `beside`.
    """

    said: str
    plain: str
    corrects: bool = False
    hedged: bool = False
    kept: bool = False
    changes: bool = False
    alone: bool = False
    beside: str = ""
    asked: bool = False


def clauses(sentence: Sentence, pack: Pack) -> list[Clause]:
    """The clauses that state something; a sentence that only supposes or jokes has none."""
    if not _may(sentence, "states", pack):
        return []
    text = _SPACE.sub(" ", sentence.text.replace("’", "'")).strip()
    if run_on := pack.patterns["runs_on"].match(text):
        text = f"{text[: run_on.end()].rstrip()}, {text[run_on.end() :]}"
    if pack.patterns["supposes"].match(text):
        return []
    if _may(sentence, "jokes", pack) and pack.patterns["jokes"].search(text):
        return []
    if _may(sentence, "undone", pack) and pack.patterns["undone"].search(text):
        return []
    parts = list(_parts(text, pack))
    alone = len(parts) == 1
    if sentence.asks:
        # The question is what stands last: "I live in Rome, can you find me a gym?"
        parts = parts[:-1]
    found: list[Clause] = []
    reports = _may(sentence, "reports", pack)
    for part, beside in parts:
        if reports and pack.patterns["reports"].search(part) and not pack.takes_back.match(part):
            # What follows is somebody else's words or thoughts.
            break
        if ELIDED not in part and not pack.patterns["asks"].match(part):
            clause = replace(_clause(part, sentence, pack), alone=alone)
            found.append(_together(beside, clause, pack) if beside else clause)
    return found


def _together(beside: str, clause: Clause, pack: Pack) -> Clause:
    """The clause with whom the user does it with, as it was said."""
    return replace(clause, said=pack.texts["together"].format(who=beside, said=clause.said), beside=beside)


def _may(sentence: Sentence, name: str, pack: Pack) -> bool:
    """Whether the pattern of that name can fit the sentence at all, by its words."""
    return not pack.cues[name].isdisjoint(sentence.words)


def _parts(text: str, pack: Pack) -> Iterator[tuple[str, str]]:
    """The text cut where a new subject begins, each part with whoever shares its subject: "Karl and I".

    A verb that shares the subject before gets it again.
    """
    start, subject, beside = 0, "", ""
    for cut in pack.patterns["joins"].finditer(text):
        others = pack.patterns["companion"].match(text, start)
        if others is not None and others.end() == cut.end():
            start, beside = cut.end(), others["who"]
            continue
        if cut.lastgroup != "shared" and leads_in(text[start : cut.start()], pack):
            continue
        if pack.patterns["but_is"].match(text, cut.end()) and pack.patterns["isnt"].search(text, start, cut.start()):
            # "It is not the third, it is the fourth" says one thing.
            continue
        part = subject + text[start : cut.start()]
        yield part, beside
        subject = beside = ""
        if cut.lastgroup == "shared":
            again = pack.patterns["subject"].match(part)
            subject = f"{again[1]} " if again else ""
        start = cut.end()
    yield subject + text[start:], beside


def leads_in(part: str, pack: Pack) -> bool:
    """Whether the words only lead to what follows them: "No, sorry", "From now on", "Last week"."""
    if pack.patterns["leads"].match(part):
        return True
    left = f"{part.strip()} "
    for _ in range(_MOST_OPENINGS):
        if (opening := pack.patterns["opens"].match(left)) is None:
            break
        left = left[opening.end() :]
    left = left.strip(_ENDING)
    return not left or pack.patterns["time_alone"].match(left) is not None


def corrects(part: str, pack: Pack) -> bool:
    """Whether words that lead in say that what was said before is wrong."""
    opening = pack.patterns["opens"].match(f"{part} ")
    return opening is not None and opening["corrects"] is not None


def _clause(part: str, sentence: Sentence, pack: Pack) -> Clause:
    corrects = hedged = kept = changes = asked = False
    said = trimmed(part, " ,;:-–—")
    for _ in range(_MOST_OPENINGS):
        opening = pack.patterns["opens"].match(said)
        if opening is None or opening.end() == len(said):
            break
        corrects |= opening["corrects"] is not None
        hedged |= opening["hedges"] is not None
        kept |= opening["keeps"] is not None
        asked |= opening["keeps"] is not None and pack.patterns["asks_to_keep"].match(said) is not None
        said = said[opening.end() :].lstrip(" ,;:-–—")
    if trailing := pack.patterns["trails"].search(said):
        said = said[: trailing.start()]
    said = pack.patterns["dangles"].sub("", trimmed(said))
    plain = trimmed(_expanded(said, pack))
    if time := pack.patterns["time_first"].match(plain):
        plain = plain[time.end() :]
    if _may(sentence, "corrects_within", pack) and (within := pack.patterns["corrects_within"].search(plain)):
        corrects, plain = True, plain[: within.end("kept")] + plain[within.end() :]
    if "not" in plain and (swap := pack.patterns["isnt_but"].match(plain)):
        corrects = changes = True
        said = plain = " ".join(filter(None, (swap["what"], swap["how"], swap["new"])))
    changes |= pack.patterns["changes"].search(plain) is not None
    if last := pack.patterns["now_last"].search(plain):
        changes, plain = True, plain[: last.start()]
    if _may(sentence, "hedges_within", pack):
        hedged |= pack.patterns["hedges_within"].search(plain) is not None
    return Clause(trimmed(said), plain.strip(), corrects, hedged, kept, changes, asked=asked)


def trimmed(text: str, ending: str = _ENDING) -> str:
    """The text without the signs that it ends with, unless they are part of its last word: "A-"."""
    signed = _SIGNED.search(text)
    return text[: signed.end()].lstrip(ending) if signed else text.strip(ending)


def _expanded(text: str, pack: Pack) -> str:
    if pack.contraction is None or not ("'" in text or pack.patterns["bare"].search(text)):
        return text
    return pack.contraction.sub(lambda found: pack.short[found.group().lower()], text)
