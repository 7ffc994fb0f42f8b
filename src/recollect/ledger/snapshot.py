"""A read-only ledger of a few given records, for searching memories as they were at an earlier time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import numpy as np

from recollect.ledger.sql.full_text import DocLengths, bm25
from recollect.ledger.sql.history import successions
from recollect.ledger.tokenizer import query_terms, spelling_terms, terms_of
from recollect.ledger.types import Derived, IndexRow, LexicalMatches, NumberedRecord, Revision
from recollect.model.memory import EFFECTIVE_STATUSES, MemoryRecord, Status, is_valid_now, valid_at
from recollect.model.query import Filter, matches
from recollect.model.scope import Scope
from recollect.model.times import micros_or_none, now, to_micros
from recollect.models.embedding import EmbeddingModel
from recollect.models.traits import compute_traits, speaker_name


class LedgerSnapshot:
    """The reading methods of a `Ledger` over the records of one user, which are numbered from 1.

    Unlike a ledger it accepts records that say the same or hold the same key. `vectors` are packed, by record id.
    """

    def __init__(self, records: Sequence[MemoryRecord], vectors: Mapping[str, bytes]) -> None:
        self._records = tuple(NumberedRecord(row, record) for row, record in enumerate(records, 1))
        self._by_id = {each.record.id: each for each in self._records}
        self._vectors = vectors

    async def get(self, scope: Scope, ids: Sequence[str]) -> list[MemoryRecord]:
        return [self._by_id[id].record for id in ids if id in self._by_id]

    async def lexical(self, scope: Scope, text: str) -> LexicalMatches:
        """Score by BM25, as the full text of a SQL ledger does."""
        documents = [Counter(terms_of(each.record.content)) for each in self._records]
        counts = np.array([document.total() for document in documents], np.int32)
        lengths = DocLengths(rows=np.arange(1, len(documents) + 1), counts=counts, total=int(counts.sum()))
        terms = query_terms(text)
        occurrences = [[(row, each[term]) for row, each in enumerate(documents, 1) if term in each] for term in terms]
        postings = [np.array(each, np.int64).reshape(-1, 2) for each in occurrences]
        return bm25(terms, lengths, [(each[:, 0], each[:, 1]) for each in postings], optional=spelling_terms(text))

    async def fetch(
        self, scope: Scope, rows: Sequence[int], *, filter: Filter, as_of: datetime | None = None
    ) -> list[NumberedRecord]:
        row_numbers = {int(row) for row in rows}
        return [each for each in self._visible(scope, filter, as_of) if each.row in row_numbers]

    async def matching(self, scope: Scope, filter: Filter, *, as_of: datetime | None = None) -> Sequence[int]:
        return [each.row for each in self._visible(scope, filter, as_of)]

    async def keyed_facts(
        self,
        scope: Scope,
        filter: Filter,
        *,
        min_importance: float,
        limit: int,
        with_rules: bool = False,
        as_of: datetime | None = None,
    ) -> list[MemoryRecord]:
        visible = (each.record for each in self._visible(scope, filter, as_of))
        facts = [
            record
            for record in visible
            if record.importance >= min_importance and (record.key is not None or (with_rules and record.is_rule))
        ]
        return sorted(facts, key=lambda fact: (fact.key is None, -fact.importance))[:limit]

    async def derived(self, scope: Scope, turn_ids: Sequence[str]) -> Mapping[str, Sequence[Derived]]:
        result: dict[str, list[Derived]] = {}
        for row, record in ((each.row, each.record) for each in self._records):
            if record.status not in EFFECTIVE_STATUSES:
                continue
            successor = record.superseded_by if record.status is Status.SUPERSEDED else None
            each = Derived(record.id, row, record.status, record.type, record.category, record.valid_to, successor)
            for source in set(turn_ids).intersection(record.evidence):
                result.setdefault(source, []).append(each)
        return result

    async def succession(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, tuple[NumberedRecord, ...]]:
        return successions(ids, self._by_id)

    async def revision(self, user: str) -> Revision:
        return Revision(1, 0)

    async def index_rows(
        self, user: str, *, model: EmbeddingModel, after: int, vectors: bool = True
    ) -> tuple[Revision, list[IndexRow]]:
        rows = [self._index_row(each, vectors=vectors) for each in self._records] if after < 1 else []
        return await self.revision(user), rows

    def _visible(self, scope: Scope, filter: Filter, as_of: datetime | None) -> Iterator[NumberedRecord]:
        moment = now()
        for each in self._records:
            record = each.record
            is_valid = is_valid_now(record, moment) if as_of is None else valid_at(record, as_of)
            if is_valid and scope.can_see(record.visibility_key) and matches(record, filter):
                yield each

    def _index_row(self, numbered: NumberedRecord, *, vectors: bool) -> IndexRow:
        record = numbered.record
        ends = min(filter(None, (record.valid_to, record.expires_at)), default=None)
        vector = self._vectors.get(record.id)
        return IndexRow(
            row=numbered.row,
            visibility_key=record.visibility_key,
            status=str(record.status),
            session=record.scope.session,
            speaker=speaker_name(record),
            traits=compute_traits(record),
            at=to_micros(record.occurred_at or record.created_at),
            begins=micros_or_none(record.valid_from),
            ends=micros_or_none(ends),
            vector=vector if vectors or vector is None else b"",
        )
