"""Token vectors: made in the background, on demand for what was just written, gone with their memory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recollect import AsyncMemory, Memory
from recollect.config.settings import Settings
from recollect.ledger.ledger import Ledger
from recollect.ledger.sqlite import open_in_memory
from recollect.model.change import Author, Update
from recollect.model.erasure import ErasureRequest, Target
from recollect.models.embedding import TOKEN_MODEL
from recollect.models.token_encoder import DIMENSIONS, encode_passages, encode_question
from recollect.read.late_interaction import LateInteraction, max_similarities
from tests.support.ledger_samples import ANN, BOB, BY, MODEL, add, change, memory, row_of

TEA, PHONE = "I drink green tea in the morning", "My wife's number is 0160 9918844"


@pytest.fixture
async def ledger() -> Ledger:
    return await open_in_memory(MODEL)


async def stored(ledger: Ledger, user: str = "ann") -> list[int]:
    return [row for row in range(1, 20) if await ledger.vectors_of(user, [row], model=TOKEN_MODEL)]


async def test_flushing_stores_one_int8_vector_a_piece(ledger: Ledger) -> None:
    records = await add(ledger, memory(TEA), memory(PHONE))
    late = LateInteraction(ledger)
    assert await late.flush("ann") == 2
    assert await late.flush("ann") == 0
    for record, vectors in zip(records, encode_passages([TEA, PHONE]), strict=True):
        row = await row_of(ledger, record)
        assert (await ledger.vectors_of("ann", [row], model=TOKEN_MODEL))[row] == vectors.tobytes()
    assert len(encode_passages([TEA])[0].tobytes()) == 7 * DIMENSIONS


async def test_a_flush_reads_only_what_changed_since_the_last(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    [tea, _] = await add(ledger, memory(TEA), memory(PHONE))
    late, read, unembedded = LateInteraction(ledger), list[int](), ledger.unembedded

    async def recorded(*args: Any, **options: Any) -> Any:
        read.append(options["changed_after"])
        return await unembedded(*args, **options)

    monkeypatch.setattr(ledger, "unembedded", recorded)
    await late.flush("ann")
    assert set(read) == {0}
    before = (await ledger.revision("ann")).number
    await change(ledger, Update(tea.id, {"content": "I drink coffee"}))
    await add(ledger, memory("I drink milk"))
    read.clear()
    assert await late.flush("ann") == 2
    assert set(read) == {before}
    # After an erasure everything is looked at.
    await ledger.erase(ANN, ErasureRequest(Target.MEMORY, tea.id), by=BY)
    read.clear()
    await late.flush("ann")
    assert set(read) == {0}


async def test_matches_are_the_best_cosines_of_each_piece(ledger: Ledger) -> None:
    [record] = await add(ledger, memory(TEA))
    late = LateInteraction(ledger)
    row = await row_of(ledger, record)
    for _ in range(2):
        matches = await late.best_matches("ann", "what tea do I drink?", np.array([row]))
        expected = (
            encode_question("what tea do I drink?") @ encode_passages([TEA])[0].T.astype(np.float32) / 127
        ).max(1)
        assert matches[0] == pytest.approx(expected, abs=0.02)
        await late.flush("ann")
    await late.close()


async def test_a_search_encodes_the_newest_rows_until_its_time_is_spent(ledger: Ledger) -> None:
    records = await add(ledger, *(memory(f"I drink tea number {number}") for number in range(10)))
    rows = np.array([await row_of(ledger, record) for record in records])
    late = LateInteraction(ledger, on_demand_s=0)
    matches = await late.best_matches("ann", "what tea do I drink?", rows)
    assert np.isnan(matches).any(axis=1).tolist() == [True] * 6 + [False] * 4
    await late.flush("ann")
    assert not np.isnan(await late.best_matches("ann", "what tea do I drink?", rows)).any()
    await late.close()


async def test_rows_of_others_match_nothing(ledger: Ledger) -> None:
    [record] = await add(ledger, memory(TEA, scope=BOB))
    late = LateInteraction(ledger)
    await late.flush("bob")
    matches = await late.best_matches("ann", "tea", np.array([await row_of(ledger, record)]))
    assert np.isnan(matches).all()
    await late.close()


async def test_what_is_written_is_encoded_in_the_background(ledger: Ledger) -> None:
    await add(ledger, memory(TEA), memory(PHONE))
    late = LateInteraction(ledger)
    late.schedule("ann")
    async with asyncio.timeout(60):
        while len(await stored(ledger)) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await late.close()


async def test_a_new_text_loses_the_vectors_of_the_old_one(ledger: Ledger) -> None:
    [record] = await add(ledger, memory(TEA))
    late = LateInteraction(ledger)
    await late.flush("ann")
    await ledger.apply(ANN, [Update(record.id, {"content": PHONE})], by=BY)
    assert await stored(ledger) == []
    await late.flush("ann")
    row = await row_of(ledger, record)
    assert (await ledger.vectors_of("ann", [row], model=TOKEN_MODEL))[row] == encode_passages([PHONE])[0].tobytes()


async def test_vectors_of_a_text_that_changed_meanwhile_are_not_stored(ledger: Ledger) -> None:
    [record] = await add(ledger, memory(TEA))
    row = await row_of(ledger, record)
    await ledger.apply(ANN, [Update(record.id, {"content": PHONE})], by=BY)
    await ledger.store_token_vectors(TOKEN_MODEL, {row: b"\0" * DIMENSIONS}, user="ann", versions={row: 1})
    assert await stored(ledger) == []


async def test_erasing_a_user_erases_their_token_vectors(ledger: Ledger) -> None:
    await add(ledger, memory(TEA))
    late = LateInteraction(ledger)
    await late.flush("ann")
    await ledger.erase(ANN, ErasureRequest(Target.USER), by=Author("test", ""))
    assert await stored(ledger) == []


def test_similarities_are_a_row_a_passage() -> None:
    pieces = encode_question("green tea")
    passages = [own.tobytes() for own in encode_passages([TEA, PHONE])]
    matches = max_similarities(pieces, passages)
    assert matches.shape == (2, len(pieces))
    assert matches[0].mean() > matches[1].mean()


async def test_a_search_ranks_by_them_and_says_so(tmp_path: Path) -> None:
    async with AsyncMemory(home=tmp_path) as store:
        for text in (TEA, PHONE, "office line: 030 4455120"):
            await store.add(text, user_id="ann")
        result = await store.search(
            "which beverage do I have at breakfast?", user_id="ann", trace=True, min_score=0.0
        )
        signals = {each.memory: each.features for each in result.candidates}
    assert all(own["q_has_late"] == 1.0 for own in signals.values())
    assert signals[TEA]["late"] == max(own["late"] for own in signals.values())


def test_it_can_be_turned_off(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, late_interaction=False)
    with Memory(settings=settings) as store:
        store.remember("I drink green tea", user_id="ann", wait=True)
        result = store.search("what do I drink?", user_id="ann", trace=True)
        assert result[0].memory == "I drink green tea"
        assert all(each.features["q_has_late"] == 0.0 for each in result.candidates)
