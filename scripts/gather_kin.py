"""Gather the words that may stand for each other, for `recollect.write.settling`, from WordNet.

Kept are pairs of everyday words (one token of the embedder that ships, or met in the texts that WordNet counts senses
in) that share a sense, of which one is made from the other ("promote" and "promotion"), or that are verbs of which
one is a way of the other ("postpone" and "delay"), if the embedder finds them near too. Nouns for whoever does
something are kept apart ("runner"), for a runner is not the same as running. Irregular forms of verbs come along, and
the words for people and animals, for whoever is spoken of must be the same.

    apt-get download wordnet-base && dpkg -x wordnet-base_*.deb wordnet      # or WordNet 3.0 from elsewhere
    python scripts/gather_kin.py --wordnet wordnet/usr/share/wordnet --out src/recollect/write/settling
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from recollect.models.static_embedder import BUNDLED_TABLE, StaticEmbedder
from recollect.write.settling.lexicon import stem

HEADER = "# Made by scripts/gather_kin.py from WordNet 3.0; see NOTICE."
Pair = tuple[str, str]
Sense = tuple[str, str]

KINDS = {"n": "noun", "v": "verb", "a": "adj", "s": "adj", "r": "adv"}
EVERYDAY = re.compile(r"[a-z]{3,}")
DOER = re.compile(r"[a-z]{2,}(?:er|or|ist|ee)")
MADE_FROM, OPPOSITE, WAY_OF = ("+", "\\"), "!", "@"
COMMON_WAY = 4
# The files of WordNet's own makers for words of animals and of people, and its letter for nouns in its counts.
OF_BEINGS, NOUN = ("05", "18"), "1"
# How near the embedder must find two words that share the most common sense of both, or another.
NEAR_BY_FIRST, NEAR_BY_OTHER, NEAR_BY_MAKING, NEAR_BY_WAY = 0.3, 0.45, 0.35, 0.4
# Forms that are everyday words of another kind.
AMBIGUOUS = frozenset(
    "saw ground rose wound felt spoke lay bound found bore shot lit left fell born wed rent might bit dove kent pent "
    "gan abode rove gilt cleft clove drunk had got stole".split()
)


@dataclass(frozen=True, slots=True)
class Net:
    """WordNet: the senses of each word, the most common first, and of each sense its words and its links."""

    senses: dict[tuple[str, str], list[str]]
    counted: set[str]
    words: dict[Sense, list[str]]
    links: dict[Sense, list[tuple[str, Sense, int, int]]]
    beings: set[str]

    def rank(self, word: str, sense: Sense) -> int:
        """How common a sense of a word is; 0 for the most common."""
        return self.senses[word.lower(), sense[0]].index(sense[1])


def read_net(folder: Path) -> Net:
    net = Net({}, set(), {}, defaultdict(list), set())
    for kind in sorted(set(KINDS.values())):
        for fields in _lines(folder / f"index.{kind}"):
            links = int(fields[3])
            net.senses[fields[0], kind] = fields[6 + links :]
            if int(fields[5 + links]):
                net.counted.add(fields[0])
        for fields in _lines(folder / f"data.{kind}"):
            sense, count = (kind, fields[0]), int(fields[3], 16)
            if kind == "noun" and fields[1] in OF_BEINGS:
                net.beings.add(fields[0])
            net.words[sense] = [word.partition("(")[0] for word in fields[4 : 4 + 2 * count : 2]]
            rest = fields[5 + 2 * count :]
            for link, to, to_kind, ends in zip(
                *(rest[at : 4 * int(fields[4 + 2 * count]) : 4] for at in range(4)), strict=True
            ):
                net.links[sense].append((link, (KINDS[to_kind], to), int(ends[:2], 16) - 1, int(ends[2:], 16) - 1))
    return net


def _lines(file: Path) -> Iterator[list[str]]:
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith(" "):
            yield line.split(" | ")[0].split()


def synonyms(net: Net) -> Iterator[tuple[Pair, int]]:
    """Words that share a sense, with how common it is for the one to which it is rarer."""
    for sense, words in net.words.items():
        for at, one in enumerate(words):
            for other in words[at + 1 :]:
                yield _pair(one, other), max(net.rank(one, sense), net.rank(other, sense))


def linked(net: Net, links: tuple[str, ...]) -> Iterator[tuple[Pair, int]]:
    """Words of which one leads to the other, likewise."""
    for sense, those in net.links.items():
        for link, to, mine, theirs in those:
            if link in links:
                one, other = net.words[sense][mine], net.words[to][theirs]
                yield _pair(one, other), max(net.rank(one, sense), net.rank(other, to))


def ways(net: Net) -> Iterator[Pair]:
    """Verbs of which one is a way of the other, in common senses of both."""
    for sense, those in net.links.items():
        for link, to, _, _ in those:
            if link == WAY_OF and sense[0] == "verb":
                for one in net.words[sense]:
                    for other in net.words[to]:
                        if max(net.rank(one, sense), net.rank(other, to)) < COMMON_WAY:
                            yield _pair(one, other)


def _pair(one: str, other: str) -> Pair:
    return (one, other) if one < other else (other, one)


def nearness(pairs: set[Pair]) -> dict[Pair, float]:
    words = sorted({word for pair in pairs for word in pair})
    vectors = dict(zip(words, asyncio.run(StaticEmbedder().embed(words)), strict=True))
    return {(one, other): float(vectors[one] @ vectors[other]) for one, other in pairs}


def tokens() -> set[str]:
    return set(json.loads((BUNDLED_TABLE / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"])


def gather(net: Net) -> tuple[set[Pair], dict[str, str]]:
    """The pairs that are kept, and what whoever is named after a deed does."""
    everyday = {word for word in tokens() | net.counted if EVERYDAY.fullmatch(word)}
    apart = {pair for pair, _ in linked(net, (OPPOSITE,))}
    usable = lambda pair: pair[0] != pair[1] and set(pair) <= everyday and pair not in apart  # noqa: E731
    shared = [(pair, rank) for pair, rank in synonyms(net) if usable(pair)]
    made = [(pair, rank) for pair, rank in linked(net, MADE_FROM) if usable(pair)]
    way = {pair for pair in ways(net) if usable(pair)}
    near = nearness({pair for pair, _ in (*shared, *made)} | way)
    kept = {pair for pair, rank in shared if near[pair] >= (NEAR_BY_OTHER if rank else NEAR_BY_FIRST)}
    kept |= {pair for pair in way if near[pair] >= NEAR_BY_WAY}
    derived = {pair for pair, _ in made if near[pair] >= NEAR_BY_MAKING}
    verbs = {word for word, kind in net.senses if kind == "verb"}
    doers: dict[str, str] = {}
    for pair in sorted(derived):
        for doer, deed in (pair, pair[::-1]):
            if DOER.fullmatch(doer) and deed in verbs and len(deed) <= len(doer) and doer[:3] == deed[:3]:
                doers.setdefault(doer, deed)
    return {pair for pair in kept | derived if doers.keys().isdisjoint(pair)}, doers


def irregular(folder: Path) -> dict[str, str]:
    everyday = tokens()
    return {
        form: base
        for form, base, *_ in _lines(folder / "verb.exc")
        if {form, base} <= everyday - AMBIGUOUS and not form.endswith(("ed", "ing", "s"))
    }


def beings(net: Net, folder: Path) -> list[str]:
    """Everyday nouns that are mostly people or animals; names written large are left out."""
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for fields in _lines(folder / "cntlist.rev"):
        word, _, where = fields[0].partition("%")
        counts[word][where[0]] += int(fields[2])
    everyday = tokens() | net.counted
    found = set()
    for sense in (("noun", each) for each in net.beings):
        for word in net.words[sense]:
            first = EVERYDAY.fullmatch(word) and word in everyday and net.rank(word, sense) == 0
            if first and not _is_more(counts[word]):
                found.add(word)
    return sorted(found)


def _is_more(counts: Mapping[str, int]) -> bool:
    """Whether a word is not first of all a noun."""
    return any(count > counts.get(NOUN, 0) for count in counts.values())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--wordnet", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    net = read_net(given.wordnet)
    pairs, doers = gather(net)
    # By stems, and as plain lines: it is read while someone waits.
    others: dict[str, set[str]] = defaultdict(set)
    for one, other in sorted((stem(one), stem(other)) for one, other in pairs):
        if one != other:
            others[min(one, other)].add(max(one, other))
    lines = [HEADER, *(" ".join([one, *sorted(those)]) for one, those in sorted(others.items()))]
    (given.out / "kin.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (given.out / "beings.txt").write_text("\n".join([HEADER, *beings(net, given.wordnet)]) + "\n", encoding="utf-8")
    write(given.out / "forms.toml", doers=doers, irregular=irregular(given.wordnet))


def write(file: Path, **sections: Mapping[str, str]) -> None:
    lines = [HEADER]
    for name, rows in sections.items():
        lines += ["", f"[{name}]", *(f'{word} = "{rest}"' for word, rest in sorted(rows.items()))]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
