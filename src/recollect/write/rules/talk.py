"""What was said before a clause that it leans on: the thing spoken of, the question it answers, what it corrects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from recollect.write.rules.clauses import Clause, clauses
from recollect.write.rules.match import Hit, first_hit, slug
from recollect.write.rules.pack import Pack, pack_for
from recollect.write.rules.retimed import bare, fitting, later
from recollect.write.sentences import sentence_of, sentences
from recollect.write.rules.shapes import shaped

_MOST_ANSWER_WORDS = 10
_MOST_ANSWER_CHARS = 100
_MOST_VALUE_WORDS = 6
_MOST_MEANT_WORDS = 4
_MOST_STATED = 50
_MOST_SAID = 20
_MOST_HEARD_CHARS = 4_000
# Shapes by which a value tells what it can replace.
_EXACT = ("amount", "date", "name")
_IN_WORDS = ("words", "phrase", "")
_NAMES = ("name", "given_name", "place")


@dataclass(slots=True)
class Talk:
    """The conversation so far, as far as later words lean on it; what was said is only read when something does."""

    language: str
    said: list[str] = field(default_factory=list)
    heard: str = ""
    stated: list[Hit] = field(default_factory=list)
    _now: list[Hit] = field(default_factory=list)
    _before: list[Hit] = field(default_factory=list)
    gone: Hit | None = None

    def begin_turn(self) -> None:
        """The user speaks again."""
        self._before, self._now, self.gone = self._now, [], None

    @property
    def latest(self) -> Hit | None:
        """What was stated last, in this turn of the user or the one before."""
        return next(iter([*self._now[-1:], *self._before[-1:]]), None)

    def hear(self, text: str) -> None:
        """Take in what the assistant said: its question, and what it repeated of the user's."""
        self.heard = text[-_MOST_HEARD_CHARS:]
        self.note(self.heard)

    def note(self, text: str) -> None:
        """Take in what somebody said, for the thing it speaks of."""
        self.said = [*self.said, text][-_MOST_SAID:]

    def answered(self, text: str) -> str:
        """The whole sentence that a short answer to the last question stands for; nothing if it is none."""
        answer = text.strip().rstrip(".!")
        if not self.heard or len(answer) > _MOST_ANSWER_CHARS or "\n" in answer or "?" in answer or ". " in answer:
            return ""
        pack = pack_for(self.heard, usual=self.language)
        if opening := pack.patterns["answer_opens"].match(answer):
            answer = answer[opening.end() :]
        if not answer or pack.patterns["no_answer"].match(answer) or len(answer.split()) > _MOST_ANSWER_WORDS:
            return ""
        asked = _statement_asked_for([each.text for each in sentences(self.heard) if each.asks], pack)
        return asked.replace("{answer}", answer)

    def _repeated(self) -> list[Hit]:
        """What the assistant said last about the user, put as the user would."""
        pack = pack_for(self.heard, usual=self.language)
        found: list[Hit] = []
        for sentence in sentences(self.heard):
            mine = pack.patterns["yours"].sub(lambda word: pack.short[word.group().lower()], sentence.text)
            if not sentence.asks and mine != sentence.text:
                first = (first_hit(clause, pack) for clause in clauses(sentence_of(mine), pack))
                found += [hit for hit in first if hit is not None and hit.key]
        return found

    def _topic(self, pack: Pack) -> str:
        """The last thing spoken of that a budget or a date can belong to."""
        for text in reversed(self.said):
            for found in reversed(list(pack.patterns["topics"].finditer(text))):
                if found["place"]:
                    return f"{found['place']} {pack.texts['trip']}"
                if slug(found["thing"], pack):
                    return str(found["thing"])
        return ""

    def state(self, found: list[Hit]) -> None:
        """Keep what was stated, so that a correction can name it."""
        self.stated = [*self.stated, *found][-_MOST_STATED:]
        self._now += found

    def completed(self, hit: Hit, pack: Pack) -> Hit:
        """The hit with what it belongs to, if it was said without: a budget of nothing is that of the trip."""
        if not hit.rule.topical:
            return hit
        if _is_whole(hit.topic, pack):
            return hit
        head = slug(hit.topic, pack)
        known = [old for old in reversed(self.stated) if old.rule.topical and _is_whole(old.topic, pack)]
        same = next((old for old in known if old.key and head in old.key.split("_")), None)
        topic = self._topic(pack)
        # Another thing may have been spoken of since.
        if same is not None and set(slug(topic, pack).split("_")) <= {"", *(same.key or "").split("_")}:
            return _with_value(same, hit.value)
        if hit.rule.tell and topic:
            return _of(hit, pack.texts["about"].format(head=_bare(hit.topic, pack), topic=topic), pack)
        return replace(hit, key=None)

    def renewed(self, hit: Hit, pack: Pack) -> Hit:
        """The hit as a change of what was said of the same: "now at 4 pm" says nothing of the day."""
        about = slug(hit.topic, pack)
        same = [old for old in reversed(self.stated) if old.rule.shape == "date" and slug(old.topic, pack) == about]
        is_part = about and hit.rule.shape == "date" and same and later(same[0].value, hit.value) != hit.value
        return _with_value(same[0], hit.value) if is_part else hit

    def corrected(self, clause: Clause, pack: Pack) -> Hit | None:
        """What was stated before with the new value that the clause gives; None if it does not name one for sure."""
        opposes = not pack.cues["not_but"].isdisjoint(clause.plain.lower().split())
        if opposes and (swap := pack.patterns["not_but"].match(clause.plain)):
            old, new = swap["old"] or swap["old2"], swap["new"] or swap["new2"]
            known = next((hit for hit in self._known() if _same(hit.value, old)), None)
            return _with_value(known, new) if known and _could_be(known, new, pack) else None
        opening = pack.patterns["meant"].match(clause.plain)
        if not clause.corrects and not pack.patterns["meant_for_sure"].match(clause.plain):
            return None
        new = clause.plain[opening.end() :] if opening else clause.plain
        if clause.corrects and (split := pack.patterns["value_for"].match(new)):
            return self._corrected_of(split["about"], split["new"], clause, pack)
        if not new or len(new.split()) > _MOST_VALUE_WORDS:
            return None
        if not any(_has(shape, new, pack) for shape in _EXACT):
            return self._meant(new, clause, pack)
        known = next((hit for hit in self._known() if _fits(hit, new, pack)), None)
        return _with_value(known, new) if known else self._meant(new, clause, pack)

    def _meant(self, new: str, clause: Clause, pack: Pack) -> Hit | None:
        """What was said last with words for its value that could be meant: others of its kind, or said to be."""
        latest = next(iter([*(self._repeated()[-1:] if self.heard else []), *filter(None, [self.latest])]), None)
        if latest is None or not latest.key or latest.rule.shape not in _IN_WORDS:
            return None
        meant = pack.patterns["meant_words"].match(clause.plain) and not pack.patterns["no_answer"].match(new)
        sure = meant and len(new.split()) <= _MOST_MEANT_WORDS and shaped("phrase", new, pack) == new
        return _with_value(latest, new) if sure or _alike(latest.value, new, pack) else None

    def instead(self, clause: Clause, pack: Pack) -> Hit | None:
        """What was just taken back with the value that the clause gives: "Scratch that, it's blue"."""
        found = pack.patterns["instead"].match(clause.plain) if self.gone else None
        if found is None or self.gone is None or not self.gone.key:
            return None
        new, before = found["new"], self.gone.content.partition(self.gone.value)[0].split()[-1:]
        at = "at" if found["joined"] or found["at"] in ("with", "for") else found["at"]
        # Who no longer works at Bosch and is in Paris now does not work at Paris.
        fits = [at] == before if at or not found["it"] else True
        fits = fits and _could_be(self.gone, new, pack) and shaped("phrase", new, pack) == new
        return _with_value(self.gone, new) if fits and len(new.split()) <= _MOST_MEANT_WORDS else None

    def _corrected_of(self, about: str, new: str, clause: Clause, pack: Pack) -> Hit | None:
        """What was stated of a thing that the correction names; else what may be known of it from another time."""
        words = set(slug(about, pack).split("_"))
        known = [
            hit for hit in self._known() if hit.key and words <= set(hit.key.split("_")) and _fits(hit, new, pack)
        ]
        text = pack.texts["spends"].format(about=about, value=new)
        meant = first_hit(replace(clause, said=text, plain=text), pack)
        if known:
            # Of several things of the trip that cost something, what may be spent on it is meant.
            named = [hit for hit in known if meant and hit.key == meant.key]
            sure = named or (known if len({hit.key for hit in known}) == 1 else [])
            return _with_value(sure[0], new) if sure else None
        return replace(meant, rule=replace(meant.rule, only_known=True)) if meant else None

    def _known(self) -> Iterator[Hit]:
        """What a correction may be about, the nearest first: what the assistant just said, then what was stated."""
        yield from reversed(self._repeated() if self.heard else [])
        yield from reversed(self.stated)


def _statement_asked_for(questions: list[str], pack: Pack) -> str:
    """What an answer would say; nothing if more than one thing is asked, for then it is unclear which is answered."""
    meant: list[str] = []
    for question in questions:
        for ask in pack.asks:
            if found := ask.pattern.search(question):
                topic = (found.groupdict().get("topic") or "").replace("your", "my")
                meant.append(ask.means.replace("{topic}", topic))
                break
    return meant[0] if len(meant) == 1 else ""


def _is_whole(topic: str, pack: Pack) -> bool:
    """Whether a topic says what it is of: "Hawaii budget", not "budget" or "budget for the trip"."""
    words = [word for word in slug(topic, pack).split("_") if word]
    return any(word not in pack.words["heads"] or word in pack.words["whole"] for word in words)


def _bare(topic: str, pack: Pack) -> str:
    return next((word for word in topic.lower().split() if word in pack.words["heads"]), topic)


def _of(hit: Hit, topic: str, pack: Pack) -> Hit:
    content = hit.rule.tell.format(topic=topic, value=hit.value)
    return replace(hit, content=content[:1].upper() + content[1:], topic=topic, key=slug(topic, pack) or None)


def _same(value: str, said: str) -> bool:
    return value.strip(" .").lower() == said.strip(" .").lower()


def _fits(hit: Hit, value: str, pack: Pack) -> bool:
    """Whether a value could stand where the hit has its own: an amount for an amount, a date for a date."""
    if not hit.value:
        return False
    shape = "name" if hit.rule.shape in _NAMES else hit.rule.shape
    return shape in _EXACT and _has(shape, value, pack)


def _could_be(hit: Hit, value: str, pack: Pack) -> bool:
    """Whether the hit may have the value: of its kind, and no statement itself."""
    if hit.rule.shape in (*_EXACT, *_NAMES):
        return _fits(hit, value, pack)
    words = value.lower().split()
    return pack.words["own"].isdisjoint(words) and not pack.patterns["no_value"].search(value)


def _alike(value: str, other: str, pack: Pack) -> bool:
    """Whether both are words of one list: colours, languages."""
    last = [each.lower().split()[-1] for each in (value, other) if each]
    lists = pack.texts.get("alike", pack.texts["by_value"]).split()
    return len(last) == 2 and any(pack.words[name].issuperset(last) for name in lists)


def _has(shape: str, value: str, pack: Pack) -> bool:
    return shaped(shape, value, pack) == value.strip(" .") and (shape != "name" or value[:1].isupper())


def _with_value(known: Hit, value: str) -> Hit:
    value = value.strip(" .")
    if known.rule.shape == "date":
        value = later(known.value, value)
    if known.value not in known.content:
        return replace(known, content=f"{known.content}: {value}", value=value)
    if known.rule.shape == "date":
        before, _, after = known.content.partition(known.value)
        return replace(known, content=f"{fitting(before, value)}{value}{after}", value=bare(value))
    return replace(known, content=known.content.replace(known.value, value), value=value)
