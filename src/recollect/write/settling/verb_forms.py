"""Forms of a verb: that of what is over, of what is so, and of what goes on."""

from __future__ import annotations

import re

from recollect.write.settling.lexicon import lexicon, stem
from recollect.write.settling.small_words import OF_BOTH_TIMES

# "Win" becomes "winning", "begin" "beginning"; "show" and "beat" double nothing.
_DOUBLED = re.compile(r"(?:be)?[^aeiou]*[aeiou][^aeiouwxy]")


def past_of(verb: str) -> str:
    """A form of a verb that tells of the past."""
    irregular = next((form for form, base in lexicon().past.items() if base == verb), None)
    if irregular or verb in OF_BOTH_TIMES:
        return irregular or verb
    if verb.endswith("e"):
        return verb + "d"
    return verb + (verb[-1] if _DOUBLED.fullmatch(verb) else "") + "ed"


def present_of(word: str) -> str:
    """A form of a verb that tells of no past, given its participle."""
    known = lexicon().past.get(word)
    if known:
        return known
    # "Pulled" is of "pull", "filed" of "file", "stopped" of "stop": whichever has the same stem.
    forms = (word[:-2], word[:-1], word[:-3])
    return next((form for form in forms if stem(form) == stem(word)), word[:-1])


def going_on(word: str) -> str:
    """The form of a verb that tells what goes on, given its participle."""
    if word.endswith("ed"):
        return word[:-2] + "ing"
    base = present_of(word)
    if base.endswith("e") and not base.endswith("ee"):
        return base[:-1] + "ing"
    return base + (base[-1] if _DOUBLED.fullmatch(base) else "") + "ing"
