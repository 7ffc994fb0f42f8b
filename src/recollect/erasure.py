"""Find what to forget along with a fact, because it says the same.

- With a memory, the turns it was learned from. Other memories learned from the same turns stay.
- With a turn, the memories that have no other evidence.
- With a turn, its copies in the session, and the next answer of the assistant if it repeats the fact.
- With either, the answers of the built-in model that quote it, in all sessions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from recollect.lazy_pattern import lazy_pattern
from recollect.ledger.ledger import Ledger, read_pages
from recollect.ledger.tokenizer import terms_of
from recollect.model.memory import QUOTES_MEMORY, Category, MemoryRecord, Status
from recollect.model.query import And, Filter, Listing, Op, Where, any_of
from recollect.model.scope import Scope
from recollect.model.turn import Role
from recollect.read.multilingual_stopwords import split_words, stop_words_for
from recollect.read.select import normalize_words
from recollect.text.small_talk import WORD, fold_text, load_small_talk

# An answer repeats a fact if it has this share of its content words.
REPEATED_SHARE = 0.6
# The number of turns after a turn that may hold its answer.
_NEXT_TURNS = 4
_PAGE = 1000
_SUMMARY_CATEGORIES = (Category.EPISODE, Category.SUMMARY)
# Words for the user and for possession in statements.
_SUBJECTS = lazy_pattern(
    r"\b(?:users?|nutzer(?:in|s)?|usuari[oa]|utilisat(?:eur|rice)|utente|sein(?:e[mnrs]?)?|ihr(?:e[mnrs]?)?|sus?|leurs?)\b"
    "|用户|ユーザー",
    re.IGNORECASE,
)


async def find_dependents(
    records: Sequence[MemoryRecord], *, ledger: Ledger, whole: bool = False
) -> list[MemoryRecord]:
    """Return what is to be forgotten along with some memories and turns of a user, without those themselves.

    Of a `whole` session, project or user all turns are among the records, so that none is searched for.
    """
    deleted = [record for record in records if record.category is Category.TURN]
    memories = [record for record in records if record.category is not Category.TURN]
    sources = await _sources(memories, ledger)
    statements = _statements(memories, sources)
    statements |= {turn.id: [turn.content] for turn in deleted}
    turns = [*deleted, *sources]
    if not whole:
        for copy, original in await _copies(turns, ledger):
            statements[copy.id] = statements[original.id]
            turns.append(copy)
            deleted += [copy] if original in deleted else []
    learned = await _learned_from(deleted, ledger)
    for record in learned:
        for id in statements.keys() & set(record.evidence):
            statements[id] = [*statements[id], record.content]
    answers = [] if whole else await _repetitions(turns, statements, ledger)
    if records and not whole:
        answers += await _quotations([*memories, *turns], ledger)
    named = {record.id for record in records}
    dependents = {each.id: each for each in (*turns, *learned, *answers) if each.id not in named}
    return list(dependents.values())


def content_terms(text: str) -> frozenset[str]:
    """Return the stems of a text's content words, without stop words and words for the user."""
    words = split_words(_SUBJECTS.sub(" ", text))
    small = stop_words_for(words)
    return frozenset(terms_of(" ".join(word for word in words if word not in small)))


def repeats(answer: str, statement: str) -> bool:
    """Return whether an answer has most of a statement's content words."""
    words = content_terms(statement)
    return bool(words) and len(words & content_terms(answer)) >= REPEATED_SHARE * len(words)


async def _sources(memories: Sequence[MemoryRecord], ledger: Ledger) -> list[MemoryRecord]:
    """Return the turns that memories, other than summaries, were learned from; also evicted ones."""
    sources: dict[str, MemoryRecord] = {}
    for record in memories:
        if not record.evidence or record.category in _SUMMARY_CATEGORIES:
            continue
        for turn in await ledger.get(Scope(record.scope.user), record.evidence):
            # A turn of a project is not forgotten for a memory of another project.
            is_near = record.scope.project in ("", turn.scope.project)
            if turn.category is Category.TURN and is_near:
                sources[turn.id] = turn
    return list(sources.values())


def _statements(memories: Sequence[MemoryRecord], turns: Sequence[MemoryRecord]) -> dict[str, list[str]]:
    """Return the statements that are forgotten with each turn."""
    return {turn.id: [each.content for each in memories if turn.id in each.evidence] for turn in turns}


async def _copies(turns: Sequence[MemoryRecord], ledger: Ledger) -> list[tuple[MemoryRecord, MemoryRecord]]:
    """Return turns with the same text in the same session, also evicted ones, each with its original."""
    by_place: dict[Scope, dict[tuple[str, str], MemoryRecord]] = {}
    for turn in turns:
        if not load_small_talk().is_all_of(WORD.findall(fold_text(turn.content))):
            by_place.setdefault(turn.scope, {})[(_role(turn), turn.content)] = turn
    ids = {turn.id for turn in turns}
    copies = []
    for scope, originals in by_place.items():
        for part in _chunks(sorted({content for _, content in originals})):
            same = And((Where("category", Op.EQ, str(Category.TURN)), any_of("content", part)))
            for copy in await _find_all(scope, same, (Status.ACTIVE, Status.FORGOTTEN), ledger):
                original = originals.get((_role(copy), copy.content))
                if original is not None and copy.scope == scope and copy.id not in ids:
                    copies.append((copy, original))
    return copies


async def _learned_from(turns: Sequence[MemoryRecord], ledger: Ledger) -> list[MemoryRecord]:
    """Return the memories that have no other evidence than these turns."""
    if not turns:
        return []
    deleted_ids = {turn.id for turn in turns}
    places = {(turn.scope, turn.detail.get("position")) for turn in turns}
    scope, statuses = Scope(turns[0].scope.user), (Status.ACTIVE, Status.REVIEW, Status.SUPERSEDED)
    citing: dict[str, MemoryRecord] = {}
    for part in _chunks(sorted(deleted_ids)):
        citing |= {each.id: each for each in await _find_all(scope, any_of("evidence", part), statuses, ledger)}
    left = sorted({id for record in citing.values() for id in record.evidence} - deleted_ids)
    supporting = (
        {each.id for each in await ledger.get(scope, left) if _supports(each, places)} if left else set[str]()
    )
    return [
        record
        for record in citing.values()
        if record.category is not Category.TURN and supporting.isdisjoint(record.evidence)
    ]


def _supports(record: MemoryRecord, places: set[tuple[Scope, object]]) -> bool:
    """Return whether a source counts by itself: not forgotten, and no answer to one of the erased turns."""
    position = record.detail.get("position")
    answered = (record.scope, position - 1 if isinstance(position, int) else None)
    is_answer = _role(record) == Role.ASSISTANT and answered in places
    return record.status is not Status.FORGOTTEN and not is_answer


async def _repetitions(
    turns: Sequence[MemoryRecord], statements: dict[str, list[str]], ledger: Ledger
) -> list[MemoryRecord]:
    """Return the next answers after turns that repeat a statement forgotten with them."""
    answer_ids: list[str] = []
    for turn in turns:
        position = turn.detail.get("position")
        if not isinstance(position, int) or _role(turn) != Role.USER:
            continue
        following = await ledger.turns(turn.scope, after=position, limit=_NEXT_TURNS)
        answer = next((each for each in following if each.role is Role.ASSISTANT), None)
        if answer is not None and any(repeats(answer.content, each) for each in statements.get(turn.id, ())):
            answer_ids.append(answer.id)
    return await ledger.get(Scope(turns[0].scope.user), answer_ids) if answer_ids else []


async def _quotations(records: Sequence[MemoryRecord], ledger: Ledger) -> list[MemoryRecord]:
    """Return the answers that quote one of the records."""
    texts = {words for record in records if (words := normalize_words(record.content).strip(" .!?"))}
    quoting = And((Where("category", Op.EQ, str(Category.TURN)), Where(f"metadata.{QUOTES_MEMORY}", Op.EQ, True)))
    answers = await _find_all(Scope(records[0].scope.user), quoting, (Status.ACTIVE,), ledger)
    return [each for each in answers if any(text in normalize_words(each.content) for text in texts)]


async def _find_all(scope: Scope, filter: Filter, statuses: tuple[Status, ...], ledger: Ledger) -> list[MemoryRecord]:
    listing = Listing(filter=filter, statuses=statuses, limit=_PAGE)
    return [record async for page in read_pages(ledger, scope, listing) for record in page]


def _chunks(values: Sequence[str]) -> Iterable[Sequence[str]]:
    return (values[start : start + _PAGE] for start in range(0, len(values), _PAGE))


def _role(record: MemoryRecord) -> str:
    return str(record.detail.get("role", Role.USER))
