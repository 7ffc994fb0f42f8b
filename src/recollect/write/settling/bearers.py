"""Names with and without what they are names of: Zion National Park is Zion, United Airlines is United."""

from __future__ import annotations

from dataclasses import replace

from recollect.write.settling.lexicon import entry
from recollect.write.settling.reading import Reading

# What a firm may be called with or without.
_FIRMS = frozenset("airlines airways inc ltd llc corp gmbh".split())
_PARK = ("national", "park")
_BEARERS = _FIRMS.union(_PARK)


def by_name_alone(reading: Reading, other: Reading) -> Reading:
    """The reading without what only says that a name is one of a firm or a park, where the other leaves it out."""
    more = {name for name in reading.names if name not in other.order}
    if not more or not more <= _BEARERS:
        return reading
    behind = {at: name for name in reading.names if (at := reading.order.get(name)) is not None}
    if not all(_is_bearer(name, reading, other, behind) for name in more):
        return reading
    return replace(reading, names=reading.names - more, words=reading.words - {entry(name).verb for name in more})


def _is_bearer(name: str, a: Reading, b: Reading, behind: dict[int, str]) -> bool:
    """Whether a word of a name only says what bears it; what is a firm with it may be a place without."""
    before = behind.get(a.order[name] - 1, "")
    if name in _FIRMS:
        bearer = entry(before).verb
        is_place = before in b.placed and "in" in b.sides
        return bool(bearer) and not is_place and bearer not in b.follows.get("to", ()) and before not in b.origins
    if name == _PARK[1]:
        return before == _PARK[0] and behind.get(a.order[name] - 2, "") in b.order
    return name == _PARK[0] and behind.get(a.order[name] + 1) == _PARK[1] and before in b.order and before != ""
