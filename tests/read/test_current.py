"""Recall shows what holds: turns give way to the memories that superseded their facts."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from recollect.config.fields import RankingSettings, RecallSettings
from recollect.index.exact import ExactIndex
from recollect.ledger.ledger import Ledger
from recollect.ledger.sqlite import open_in_memory, open_sqlite
from recollect.model.change import Add, Author, Change, Forget, Supersede, Update
from recollect.model.ids import new_id
from recollect.model.memory import Category, MemoryRecord, MemoryType
from recollect.model.query import parse_filter
from recollect.model.result import RecallResult, SearchResult
from recollect.model.scope import Level, Scope
from recollect.model.turn import Role, Turn
from recollect.read.calibration import EmbedderCalibration
from recollect.recall import RecallRequest, recall
from recollect.search import SearchDeps, SearchRequest, search
from recollect.testing.fake_embedder import FakeEmbedder

BY = Author("test", "")
ANN = Scope("ann")
TALK = Scope("ann", "", "talk")
MARCH = datetime(2025, 3, 10, 9, tzinfo=UTC)
MAY = datetime(2025, 5, 20, 9, tzinfo=UTC)
NOW = datetime(2026, 6, 1, 9, tzinfo=UTC)
WHERE = "which town do I live in?"


class World:
    """One user's ledger, what is said and learned in it, and what a search of it gives."""

    def __init__(self, ledger: Ledger, embedder: FakeEmbedder) -> None:
        self.ledger = ledger
        self._embedder = embedder
        index = ExactIndex(ledger, embedder.model, budget_bytes=1 << 20)
        self._finders = SearchDeps(ledger, index, embedder, EmbedderCalibration(embedder))

    async def say(self, *texts: str, at: datetime = MARCH, scope: Scope = TALK) -> list[str]:
        """Append turns of the user and, every second one, of the assistant; gives their ids."""
        roles = (Role.USER, Role.ASSISTANT)
        turns = [
            Turn(id=new_id(), scope=scope, role=roles[n % 2], content=text, said_at=at + timedelta(seconds=n))
            for n, text in enumerate(texts)
        ]
        vectors = await self._embedder.embed(list(texts), role="document")
        await self.ledger.append(scope, turns, vectors=vectors, by=BY)
        return [turn.id for turn in turns]

    async def learn(self, content: str, *evidence: str, at: datetime = MARCH, **fields: Any) -> MemoryRecord:
        """Add a memory learned from turns."""
        record = self._record(content, evidence, at, fields)
        [vector] = await self._embedder.embed([content], role="document")
        await self.change(Add(record, vector))
        return record

    async def supersede(
        self, old: MemoryRecord, content: str, *evidence: str, at: datetime = MAY, **fields: Any
    ) -> MemoryRecord:
        """Put a memory in the place of another."""
        record = self._record(content, evidence, at, {"valid_from": at, **fields})
        [vector] = await self._embedder.embed([content], role="document")
        await self.change(Supersede(old.id, record, vector=vector))
        return record

    async def change(self, *changes: Change) -> None:
        await self.ledger.apply(ANN, changes, by=BY)

    def _record(self, content: str, evidence: tuple[str, ...], at: datetime, fields: dict[str, Any]) -> MemoryRecord:
        usual: dict[str, Any] = {
            "id": new_id(),
            "scope": ANN,
            "level": Level.USER,
            "type": MemoryType.SEMANTIC,
            "category": Category.FACT,
        }
        return MemoryRecord(content=content, evidence=evidence, created_at=at, updated_at=at, **usual | fields)

    async def search(self, query: str = WHERE, **options: Any) -> SearchResult:
        expected = SearchRequest(query=query, **{"limit": 10, **options})
        return await search(TALK, expected, RankingSettings(hits_per_source=9, diversity=1.0), self._finders)

    async def search_contents(self, query: str = WHERE, **options: Any) -> list[str]:
        """The words of the hits, best first."""
        return [hit.memory for hit in await self.search(query, **options)]

    async def recall(self, query: str = WHERE, style: str = "recollect", **options: Any) -> RecallResult:
        question = RecallRequest(
            messages=[{"role": "user", "content": query}], at=NOW, **{"limit": 10, "min_score": 0.0, **options}
        )
        return await recall(
            TALK,
            question,
            RecallSettings(context_format=style, recall_timeout_s=60, recall_decide=False),
            self._finders,
        )

    async def lines(self, query: str = WHERE, **options: Any) -> list[dict[str, str]]:
        """The lines of the context block."""
        context = (await self.recall(query, **options)).context.text
        return [json.loads(line) for line in context.splitlines() if line.startswith("{")]


@pytest.fixture(params=["sqlite", "memory"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    embedder = FakeEmbedder(64)
    opened: dict[str, Callable[[], Awaitable[Ledger]]] = {
        "sqlite": lambda: open_sqlite(tmp_path / "ledger.db", embedder.model),
        "memory": lambda: open_in_memory(embedder.model),
    }
    ledger = await opened[request.param]()
    yield World(ledger, embedder)
    await ledger.close()


async def test_a_turn_whose_fact_was_superseded_gives_way_to_the_memory_that_replaced_it(world: World) -> None:
    (ghent,) = await world.say("we live in a flat in Ghent, a lovely town")
    old = await world.learn("The user lives in Ghent", ghent)
    before = await world.search()
    assert {hit.memory for hit in before} == {"we live in a flat in Ghent, a lovely town", "The user lives in Ghent"}
    (bruges,) = await world.say("boxes everywhere, it is Bruges from today", at=MAY)
    await world.supersede(old, "The user moved to Bruges", bruges)
    hits = await world.search(trace=True)
    assert hits[0].memory == "The user moved to Bruges"
    assert hits[0].scores["relevance"] == pytest.approx(before[0].scores["relevance"], abs=0.2)
    assert not any("Ghent" in hit.memory for hit in hits)
    assert len({hit.id for hit in hits}) == len(hits)
    decisions = {each.memory: each.decision for each in hits.candidates}
    assert decisions["we live in a flat in Ghent, a lovely town"] == "its facts were superseded"


async def test_the_end_of_a_chain_takes_the_place_of_the_first_turn(world: World) -> None:
    (ghent,) = await world.say("the town I live in is Ghent")
    memory = await world.learn("The user lives in Ghent", ghent)
    for day, town in enumerate(("Bruges", "Leuven", "Namur")):
        memory = await world.supersede(memory, f"Home of the user: {town}", at=MAY + timedelta(days=day))
    assert await world.search_contents() == ["Home of the user: Namur"]


async def test_where_some_facts_hold_the_memories_are_shown_and_not_the_turn(world: World) -> None:
    (text,) = await world.say("the town I live in is Ghent and I play the bassoon")
    old = await world.learn("The user lives in Ghent", text)
    await world.learn("The user plays the bassoon", text)
    await world.supersede(old, "The user lives in Bruges")
    assert set(await world.search_contents()) == {"The user lives in Bruges", "The user plays the bassoon"}
    assert (await world.search_contents())[0] == "The user lives in Bruges"
    assert (await world.search_contents("which bassoon do I play?"))[0] == "The user plays the bassoon"


async def test_a_turn_whose_facts_hold_stays_and_so_does_one_that_taught_nothing(world: World) -> None:
    town, chat = "the town I live in is Ghent, near the old harbour", "which town is good to live in, you think?"
    (text,) = await world.say(town)
    await world.say(chat)
    await world.learn("The user lives in Ghent", text)
    summary = await world.learn("They spoke of Ghent", text, category=Category.EPISODE, type=MemoryType.EPISODIC)
    await world.supersede(summary, "They spoke of towns")
    assert {town, chat, "The user lives in Ghent"} <= set(await world.search_contents())


async def test_a_turn_whose_facts_ended_is_marked_as_past_where_nothing_replaced_them(world: World) -> None:
    (text,) = await world.say("I am on the waiting list of the town library")
    memory = await world.learn("The user is on a waiting list", text)
    await world.change(Update(memory.id, {"valid_to": MAY}))
    (hit,) = await world.search("am I on the waiting list of the library?")
    assert (hit.record.category, hit.record.valid_to) == (Category.TURN, MAY)
    (line,) = await world.lines("am I on the waiting list of the library?")
    assert (line["date"], line["until"]) == ("2025-03-10", "2025-05-20")


async def test_a_replacement_that_was_forgotten_or_is_filtered_out_leaves_a_turn_marked_as_past(world: World) -> None:
    (text,) = await world.say("the town I live in is Ghent")
    old = await world.learn("The user lives in Ghent", text)
    new = await world.supersede(old, "The user lives in Bruges", tags=("home",))
    (hit,) = await world.search(filter=parse_filter({"category": "turn"}))
    assert (hit.memory, hit.record.valid_to) == ("the town I live in is Ghent", MAY)
    await world.change(Forget(new.id))
    (hit,) = await world.search()
    assert (hit.memory, hit.record.valid_to) == ("the town I live in is Ghent", MAY)


async def test_a_fact_that_ends_later_still_holds(world: World) -> None:
    (text,) = await world.say("the town I live in is Ghent")
    old = await world.learn("The user lives in Ghent", text)
    await world.supersede(old, "The user will live in Bruges", at=datetime.now(UTC) + timedelta(days=30))
    (hit,) = await world.search()
    assert (hit.memory, hit.record.valid_to) == ("the town I live in is Ghent", None)


async def test_a_replacement_that_is_out_of_sight_is_not_shown(world: World) -> None:
    (text,) = await world.say("the town I live in is Ghent")
    old = await world.learn("The user lives in Ghent", text)
    other = Scope("ann", "secret")
    await world.supersede(old, "The user lives in Bruges", scope=other, level=Level.PROJECT)
    assert await world.search_contents() == ["the town I live in is Ghent"]


async def test_a_correction_learned_with_what_it_corrects_takes_the_place_of_the_first_turn(world: World) -> None:
    first, _ = await world.say("my flight lands at 18:40", "Noted.")
    (second,) = await world.say("sorry, the flight lands at 16:40", at=MARCH + timedelta(minutes=1))
    await world.learn("The flight of the user lands at 16:40", first, second)
    results = await world.search_contents("when does my flight land?")
    assert "The flight of the user lands at 16:40" in results
    assert "my flight lands at 18:40" not in results


async def test_what_was_only_said_again_stays(world: World) -> None:
    (first,) = await world.say("I am allergic to peanuts and grew up by the sea")
    (second,) = await world.say("as I said, allergic to peanuts", at=MAY)
    await world.learn("allergic to peanuts", first, second)
    assert "I am allergic to peanuts and grew up by the sea" in await world.search_contents("what am I allergic to?")


async def test_the_reply_that_repeats_a_superseded_fact_goes_with_its_turn(world: World) -> None:
    text, *_ = await world.say("the town I live in is Ghent", "Ghent is a lovely town to live in")
    old = await world.learn("The user lives in Ghent", text)
    await world.supersede(old, "The user lives in Bruges")
    assert await world.search_contents() == ["The user lives in Bruges"]
    await world.say("hello", "Bruges is a town I can tell you much about", at=MAY)
    assert "Bruges is a town I can tell you much about" in await world.search_contents()


async def test_a_long_reply_to_a_stale_turn_stays_and_is_marked_as_past(world: World) -> None:
    advice = "For a parking permit bring " + ", ".join(f"paper{n}" for n in range(30)) + " to the town hall of Ghent"
    text, _ = await world.say("the town I live in is Ghent", advice)
    old = await world.learn("The user lives in Ghent", text)
    await world.supersede(old, "The user lives in Bruges")
    hits = {hit.memory: hit.record.valid_to for hit in await world.search("parking permit of the town")}
    assert hits[advice] == MAY


async def test_a_reply_is_judged_by_its_turn_even_where_only_the_reply_is_found(world: World) -> None:
    reply = "Noted, the town you live in: Ghent"
    text, _ = await world.say("Ghent!", reply)
    old = await world.learn("The user lives in Ghent", text)
    for n in range(40):
        await world.say(
            f"town {n} is where I would live", at=MARCH + timedelta(hours=n), scope=Scope("ann", "", str(n))
        )
    question = "what did you note of the town I live in?"
    assert reply in await world.search_contents(question, limit=3)
    await world.supersede(old, "The user lives in Bruges")
    assert reply not in await world.search_contents(question, limit=3)


async def test_a_question_about_the_past_keeps_the_turn_and_says_until_when(world: World) -> None:
    (text,) = await world.say("the town I live in is Ghent")
    old = await world.learn("The user lives in Ghent", text)
    await world.supersede(old, "The user lives in Bruges")
    lines = {line["text"]: line.get("until") for line in await world.lines("which town did I live in before?")}
    assert lines == {"the town I live in is Ghent": "2025-05-20", "The user lives in Bruges": None}


async def test_as_of_shows_what_held_then(world: World) -> None:
    (text,) = await world.say("the town I live in is Ghent")
    old = await world.learn("The user lives in Ghent", text)
    await world.supersede(old, "The user lives in Bruges")
    then = MARCH + timedelta(days=9)
    assert set(await world.search_contents(as_of=then)) == {"the town I live in is Ghent", "The user lives in Ghent"}
    lines = {line["text"]: line.get("until") for line in await world.lines(as_of=then)}
    assert lines["The user lives in Ghent"] == "2025-05-20"


async def test_an_ended_memory_is_not_recalled_as_current(world: World) -> None:
    memory = await world.learn("The user lives in Ghent")
    await world.change(Update(memory.id, {"valid_to": MAY}))
    assert await world.search_contents() == []
    (listed,) = await world.ledger.get(ANN, [memory.id])
    assert listed.to_dict()["valid_to"] == MAY.isoformat()


async def test_a_turn_and_a_memory_in_its_words_are_not_both_shown(world: World) -> None:
    (text,) = await world.say("I live in the town of Ghent.")
    await world.learn("I live in the town of Ghent.", text)
    (hit,) = await world.search()
    assert hit.record.category is Category.FACT
    (text,) = await world.say("Do I need a passport for my trip to Malta? I ask since a ferry goes there. I row.")
    await world.learn("I row.", text)
    assert await world.search_contents("do I need a passport for the Malta ferry trip?", limit=1) == [
        "Do I need a passport for my trip to Malta? I ask since a ferry goes there. I row."
    ]
    assert "I row." not in await world.search_contents("do I need a passport for the Malta ferry trip?")


async def test_a_short_turn_is_shown_whole_instead_of_a_memory_that_quotes_a_part_of_it(world: World) -> None:
    text = "I'm vegan. Honey is fine though, and at Christmas the family makes an exception for cheese"
    [said] = await world.say(text)
    await world.learn("I'm vegan", said)
    assert await world.search_contents("am I vegan?") == [text]


async def test_a_long_turn_does_not_hide_the_memory_that_is_a_small_part_of_it(world: World) -> None:
    text = "I'm vegan. " + "By the way, here is the whole story of how the garden grew this year. " * 10
    [said] = await world.say(text)
    await world.learn("I'm vegan", said)
    hits = await world.search_contents("am I vegan?")
    assert hits[0] == "I'm vegan"
    assert text.strip() in [each.strip() for each in hits]


async def test_lines_about_one_subject_stand_together_with_the_newest_first(world: World) -> None:
    await world.learn("The user drinks green tea in the morning", at=MARCH)
    await world.learn("The tea shop opens at nine", at=MARCH)
    await world.learn("Since May the user drinks green tea in the evening", at=MAY)
    lines = await world.lines("when do I drink green tea?")
    visible = [line["text"] for line in lines]
    assert all(line["date"] for line in lines)
    assert visible.index("Since May the user drinks green tea in the evening") + 1 == visible.index(
        "The user drinks green tea in the morning"
    )


async def test_a_turn_stands_with_the_memory_learned_from_it(world: World) -> None:
    (text,) = await world.say("we keep bees on the roof, mostly for fun")
    await world.learn("Bees need water in summer", at=MARCH - timedelta(days=2))
    await world.learn("The family has an apiary", text)
    visible = [line["text"] for line in await world.lines("where are the bees of the family kept?")]
    places = sorted(
        (visible.index("we keep bees on the roof, mostly for fun"), visible.index("The family has an apiary"))
    )
    assert places[1] - places[0] == 1


async def test_other_styles_say_until_when_in_their_own_shape(world: World) -> None:
    (text,) = await world.say("I am on the waiting list of the town library")
    memory = await world.learn("The user is on a waiting list", text)
    await world.change(Update(memory.id, {"valid_to": MAY}))
    report = await world.recall("am I on the waiting list of the library?", style="semantic-router")
    assert "- user: I am on the waiting list of the town library (until 2025-05-20)\n" in report.context.text


async def test_a_message_that_only_asks_does_not_come_before_the_answer(world: World) -> None:
    await world.say("Where did I live before?", "I do not know.", "I live in Ghent since the summer.", "Noted.")
    hits = await world.search_contents("Where do I live?")
    assert hits[0] == "I live in Ghent since the summer."
    asked = await world.search_contents("What did I ask you about where I live?")
    assert "Where did I live before?" in asked


async def test_a_question_that_tells_something_is_ranked_by_its_words(world: World) -> None:
    question = "I moved to Ghent on 3 May, can you help me find a doctor there?"
    await world.say(question, "Of course.", "The trams of Ghent are old.", "They are.")
    assert (await world.search_contents("When did I move to Ghent?"))[0] == question
