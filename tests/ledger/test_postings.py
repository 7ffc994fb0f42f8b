"""Words kept at hand must say what the full text says, whatever happened in between."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from recollect.ledger.sql import full_text
from recollect.ledger.sql.ledger import SqlLedger
from recollect.ledger.sqlite import open_sqlite
from recollect.model.change import Add, Author, Change, Forget, Restore, Update
from recollect.model.scope import Scope
from recollect.models.embedding import EmbeddingModel
from recollect.write.draft import draft

MODEL = EmbeddingModel(name="none", dimensions=4)
ANN, BY = Scope("ann"), Author("test")
WORDS = ("tea", "rome", "train", "violin", "budget", "garden")


async def lexical_result(ledger: SqlLedger, text: str) -> tuple[list[int], list[float], float]:
    results = await ledger.lexical(ANN, text)
    scores = [score for share in (results.scores, results.coverage) for score in share.tolist()]
    return results.rows.tolist(), scores, results.missing_share


async def test_what_is_at_hand_equals_the_full_text_after_every_kind_of_change(tmp_path: Path) -> None:
    chance = random.Random(7)
    ledger = await open_sqlite(tmp_path / "a.db", MODEL)
    ids: list[str] = []
    for step in range(150):
        text = " ".join(chance.choices(WORDS, k=3)) + f" {step}"
        change: Change = Add(draft(ANN, text, {}))
        if ids and step % 3 == 0:
            id = chance.choice(ids)
            change = chance.choice([Update(id, {"content": text}), Forget(id), Restore(id)])
        outcome = (await ledger.apply(ANN, [change], by=BY)).outcomes[0]
        ids.append(outcome.id)
        question = " ".join(chance.sample(WORDS, 2))
        at_hand = await lexical_result(ledger, question)
        ledger._postings = full_text.PostingCache()
        assert at_hand == await lexical_result(ledger, question)
    await ledger.close()


async def test_words_are_read_from_the_full_text_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = await open_sqlite(tmp_path / "a.db", MODEL)
    requests: list[str] = []
    terms = ledger._engine.terms
    read = terms.postings

    async def counted(tx: object, words: list[str]) -> list[full_text.Postings]:
        requests.extend(words)
        return await read(tx, words)  # type: ignore[arg-type]

    monkeypatch.setattr(terms, "postings", counted)
    for text in ("tea in rome", "a train to rome", "rome again"):
        await ledger.apply(ANN, [Add(draft(ANN, text, {}))], by=BY)
        results = await ledger.lexical(ANN, "rome")
    assert len(results.rows) == 3
    assert len(requests) == 1
    await ledger.close()


async def test_little_memory_is_enough(tmp_path: Path) -> None:
    ledger = await open_sqlite(tmp_path / "a.db", MODEL)
    ledger._postings = full_text.PostingCache(max_bytes=0)
    await ledger.apply(ANN, [Add(draft(ANN, "tea in rome", {}))], by=BY)
    assert len((await ledger.lexical(ANN, "tea rome")).rows) == 1
    assert not ledger._postings._users
    await ledger.close()
