"""A text as it was meant: letters that were read in the wrong code, and unions of states by their initials."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

# What UTF-8 looks like if it was read as one of these.
_CODES = {"â€": "cp1252", "Ã": "cp1252", "Â": "cp1252", "‚Ä": "mac_roman", "√": "mac_roman"}
_CUE = re.compile(r"[UENSGIW](?:[.SKNUT]|AE|HO|nited |uropean U|reat B|orld H)")
_INITIALS = re.compile(
    r"\b(?:IT\b|WHO\b|World Health Organi[sz]ation\b"
    r"|U\.? ?S\.?A?\b\.?|U\.?K\b\.?|U\.?N\b\.?|E\.?U\b\.?|UAE\b|[NS]\.(?= Korea)"
    r"|United (?:States(?: of America)?|Kingdom|Nations|Arab Emirates)\b|European Union\b|Great Britain\b)"
)
# "US" in small letters is "us", "IT" is "it", "UN" and "EU" are small words of other languages: each is told by a
# word of its own.
_MEANT: Mapping[str, str] = {
    **dict.fromkeys(("US", "USA", "UnitedStates", "UnitedStatesofAmerica"), "America"),
    **dict.fromkeys(("UK", "UnitedKingdom", "GreatBritain"), "Britain"),
    **dict.fromkeys(("UN", "UnitedNations"), "Unitednations"),
    **dict.fromkeys(("EU", "EuropeanUnion"), "Europeanunion"),
    **dict.fromkeys(("UAE", "UnitedArabEmirates"), "Emirates"),
    **dict.fromkeys(("WHO", "WorldHealthOrganization", "WorldHealthOrganisation"), "Worldhealth"),
    "IT": "Informatics",
    "N": "North",
    "S": "South",
}


def mended(text: str) -> str:
    """The text with one kind of apostrophe, letters as they were written, and "U.S." told as "America"."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _decoded(text)).replace("’", "'").replace("‘", "'")
    if _CUE.search(text) and not text.isupper():
        text = _INITIALS.sub(_in_full, text.replace("US$", "$"))
    return text


def _decoded(text: str) -> str:
    """The text read in the code that it was written in, where it is plain that it was read in another."""
    for sign, code in _CODES.items():
        if sign in text:
            try:
                return text.encode(code).decode()
            except UnicodeError:
                continue
    return text


def _in_full(found: re.Match[str]) -> str:
    ends = "." if found[0].endswith(".") and found.end() == len(found.string) else ""
    return _MEANT[found[0].replace(".", "").replace(" ", "")] + ends
