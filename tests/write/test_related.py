"""The stored memories that are shown to extraction with new turns."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from recollect.deps import Deps
from recollect.index.exact import ExactIndex
from recollect.model.change import Add
from recollect.model.scope import Level, Scope
from recollect.models.static_embedder import StaticEmbedder
from recollect.write.embed import embed
from recollect.write.related import find_related
from tests.support.extract_samples import turn
from tests.support.ledger_samples import ANN, BY, memory
from tests.support.maintenance_samples import ledger_in

EMBEDDER = StaticEmbedder()
# A message of many topics, and as many memories as are shown that share words with it.
TALK = (
    "Today was long. The train to the office was late, so the planning meeting began late as well, and the coffee "
    "was cold. After lunch we tested the new release, wrote the report, and booked the flights for the holiday. "
    "In the evening I cooked pasta with garlic and tomatoes, and watched a film. Also {} called."
)
OTHERS = (
    "takes the train to the office", "has a planning meeting on the train", "drinks cold coffee after lunch",
    "tests the new release after lunch", "wrote the report on the release", "booked flights for the holiday",
    "cooks pasta with garlic", "cooks pasta with tomatoes in the evening", "watched a film in the evening",
    "the office has a coffee machine", "the report was late", "the meeting began late",
)  # fmt: skip


@pytest.fixture
async def deps(tmp_path: Path) -> AsyncIterator[Deps]:
    async with ledger_in(tmp_path, EMBEDDER.model) as ledger:
        yield Deps(ledger, ExactIndex(ledger, EMBEDDER.model, budget_bytes=1 << 26), EMBEDDER)


async def store(deps: Deps, *contents: str, scope: Scope = ANN, level: Level = Level.USER) -> None:
    vectors = await embed(contents, embedder=EMBEDDER)
    records = [memory(content, scope=scope, level=level) for content in contents]
    changes = [Add(record, vector) for record, vector in zip(records, vectors, strict=True)]
    await deps.ledger.apply(scope, changes, by=BY)


async def related(deps: Deps, text: str, *, limit: int = 10) -> list[str]:
    return [record.content for record in await find_related(ANN, [turn(text)], [], deps, limit=limit)]


@pytest.mark.parametrize("name", ["Zbigniew", "zbigniew", "Anna Maria", "anna maria"])
async def test_a_memory_that_shares_a_name_with_a_long_message_is_related(deps: Deps, name: str) -> None:
    fact = f"owes 40 euros to {name.title()}"
    await store(deps, fact, *OTHERS)
    assert fact in await related(deps, TALK.format(name), limit=3)
    assert fact not in await related(deps, TALK.format("someone"), limit=3)


async def test_a_word_that_only_begins_sentences_is_no_shared_name(deps: Deps) -> None:
    await store(deps, "Called off the wedding", *OTHERS)
    assert "Called off the wedding" not in await related(deps, TALK.format("someone"), limit=3)


async def test_memories_of_another_user_or_project_are_not_related_by_a_name(deps: Deps) -> None:
    await store(deps, "owes 40 euros to Zbigniew", scope=Scope("bob"))
    await store(deps, "pays 50 euros to Zbigniew", scope=Scope("ann", "other"), level=Level.PROJECT)
    await store(deps, *OTHERS)
    assert not [each for each in await related(deps, TALK.format("Zbigniew"), limit=20) if "Zbigniew" in each]
