"""Resolving: what is learned is settled against what is known, and nothing is lost or changed by mistake."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from recollect.ledger.memory import MemoryLedger
from recollect.model.change import Add, By, Supersede, Update
from recollect.model.learned import Learned
from recollect.model.memory import Category, MemoryRecord, MemoryType, Status, Trust
from recollect.model.query import Listing
from recollect.model.scope import Level, Scope
from recollect.model.times import now
from recollect.models.embedding import EmbeddingModel
from recollect.testing.fake_embedder import FakeEmbedder
from recollect.write.embed import with_vectors
from recollect.write.settling.resolution import Did, Limits, Neighbour, Resolution
from recollect.write.settling.resolve import resolve
from recollect.write.settling.same import SameLimits

ANNA = Scope("anna")
BY = By("extraction")


def known(content: str, **fields: Any) -> MemoryRecord:
    given: dict[str, Any] = {
        "id": "m" + str(abs(hash(content)) % 10**8), "scope": ANNA, "level": Level.USER, "type": MemoryType.SEMANTIC,
        "category": Category.FACT, "created_at": now(), "updated_at": now(), "source": "extraction",
        "importance": 0.5, "confidence": 0.8, "evidence": ("t0",),
    }  # fmt: skip
    return MemoryRecord(**{**given, "content": content, **fields})


def settle(learned: Learned | str, *records: MemoryRecord, near: float = 0.95, **options: Any) -> Resolution:
    one = Learned(content=learned, evidence=("t1",)) if isinstance(learned, str) else learned
    return resolve(ANNA, [one], [[Neighbour(record, near) for record in records]], **options)


def did(resolution: Resolution) -> list[Did]:
    return [each.did for each in resolution.decisions]


def test_what_nothing_is_known_of_is_added() -> None:
    done = settle(Learned(content="User plays chess", importance=0.7, evidence=("t1",), category=Category.PREFERENCE))
    [change] = done.changes
    assert isinstance(change, Add)
    assert (change.record.content, change.record.importance, change.record.evidence) == (
        "User plays chess",
        0.7,
        ("t1",),
    )
    assert (change.record.source, change.record.level, change.record.category) == ("extraction", "user", "preference")
    assert did(done) == [Did.ADDED]


def test_the_same_words_again_only_join_what_they_rest_on() -> None:
    done = settle(Learned(content="user plays  CHESS", importance=0.9, evidence=("t1",)), known("User plays chess"))
    [change] = done.changes
    assert change == Update(known("User plays chess").id, {"importance": 0.9, "evidence": ("t0", "t1")}, 1)
    assert did(done) == [Did.KNOWN]
    assert not settle(Learned(content="User plays chess"), known("User plays chess")).changes


def test_near_equal_words_are_merged_and_matter_more() -> None:
    old = known("The project deadline is March 15th", importance=0.6)
    done = settle("The project deadline is on March 15th!", old, near=0.1)
    [change] = done.changes
    assert isinstance(change, Update)
    assert change.fields["importance"] == pytest.approx(0.7)
    assert change.fields["evidence"] == ("t0", "t1")
    assert change.expected_version == 1
    assert did(done) == [Did.MERGED]


def test_the_fuller_wording_stays() -> None:
    fuller = "User has a young golden retriever"
    [change] = settle(fuller, known("User has a golden retriever")).changes
    assert isinstance(change, Update)
    assert change.fields["content"] == fuller
    [change] = settle("User has a golden retriever", known(fuller)).changes
    assert isinstance(change, Update)
    assert "content" not in change.fields


def test_words_that_someone_chose_are_not_reworded() -> None:
    [change] = settle("User has a young golden retriever", known("User has a golden retriever", source="")).changes
    assert isinstance(change, Update)
    assert "content" not in change.fields


def test_the_thresholds_are_those_that_are_set() -> None:
    old = known("User has a golden retriever")
    strict = Limits(same=SameLimits(letters=0.99, meaning=0.99))
    assert did(settle("User has a young golden retriever", old, limits=strict)) == [Did.UNDECIDED]


@pytest.mark.parametrize(
    "said",
    ["The budget for Hawaii is $12,000", "The budget for Japan is $10,000", "The budget for Hawaii is not $10,000"],
)
def test_what_differs_is_never_merged_however_near_it_is(said: str) -> None:
    done = settle(said, known("The budget for Hawaii is $10,000"), near=0.999)
    assert not done.changes
    [open_] = done.undecided
    assert open_.neighbours[0].record.content == "The budget for Hawaii is $10,000"


def test_what_is_far_from_all_that_is_known_is_new() -> None:
    assert did(settle("User plays chess", known("User's car is red"), near=0.2)) == [Did.ADDED]


def test_the_log_and_what_is_no_longer_active_are_not_resolved_against() -> None:
    gone = [known("User plays chess", category=Category.TURN), known("User plays chess", category=Category.SUMMARY)]
    gone += [
        known("User plays chess", status=status) for status in (Status.SUPERSEDED, Status.REVIEW, Status.FORGOTTEN)
    ]
    assert did(settle("User plays chess", *gone)) == [Did.ADDED]


def test_fifty_times_the_same_in_one_batch_is_one_memory() -> None:
    said = [Learned(content="User plays chess", evidence=(f"t{at}",)) for at in range(50)]
    done = resolve(ANNA, said, [[] for _ in said])
    [change] = done.changes
    assert isinstance(change, Add)
    assert len(change.record.evidence) == 50
    assert did(done) == [Did.ADDED] + [Did.KNOWN] * 49


def test_the_same_in_other_words_within_a_batch_is_one_memory() -> None:
    said = [Learned(content=each) for each in ("User is allergic to peanuts", "The user has a peanut allergy")]
    done = resolve(ANNA, said, [[], []])
    assert len(done.changes) == 1
    assert did(done) == [Did.ADDED, Did.MERGED]


def test_a_memory_that_two_statements_repeat_is_updated_once() -> None:
    old = known("User plays chess on Fridays")
    said = [Learned(content=old.content, evidence=(turn,), importance=0.6) for turn in ("t1", "t2")]
    done = resolve(ANNA, said, [[Neighbour(old, 1.0)]] * 2)
    [change] = done.changes
    assert isinstance(change, Update)
    assert change.fields["evidence"] == ("t0", "t1", "t2")


ENDS = """
User no longer has the red Cargo bike|User has a red Cargo bike
User no longer has the bike|User has a red bike
User no longer has a bike|User has a bike at home
User no longer owns a bike|User has a bike
User doesn't like jazz|User likes jazz
User no longer works at Siemens|User works at Siemens as an engineer
User stopped smoking|User smokes
User is no longer allergic to nuts|User has a nut allergy
No longer true: User lives in Oslo|User lives in Oslo
User's red bike no longer has a lamp|User's red bike has a lamp
Der Nutzer wohnt nicht mehr in Berlin|Der Nutzer wohnt in Berlin
"""
STAYS = """
User no longer has the red Cargo bike|User likes the red Cargo bike
User no longer has the red Cargo bike|User keeps the red Cargo bike in the garage
User no longer has the red Cargo bike|User has a lock for the red Cargo bike
User no longer likes the red Cargo bike|User has a red Cargo bike
User no longer has the bike|User has a bike lock
User no longer plays chess in clubs|User plays chess
User's red bike no longer has a lamp|User's red bike has a lock
User is no longer vegetarian|User's sister is vegetarian
"""


class TestCorrections:
    BUDGET = "The budget for the Hawaii trip is $10,000"

    def test_the_hawaii_budget_is_corrected(self) -> None:
        said = Learned(content="The budget for the Hawaii trip is $12,000", correction=True, evidence=("t1",))
        others = [known("The budget for the Japan trip is $10,000"), known("User's sister likes Hawaii")]
        done = settle(said, known(self.BUDGET), *others)
        [change] = done.changes
        assert isinstance(change, Supersede)
        assert (change.id, change.record.content) == (known(self.BUDGET).id, said.content)
        assert change.expected_version == 1

    def test_only_the_same_subject_is_corrected(self) -> None:
        said = Learned(content="User lives in Rome", correction=True)
        done = settle(said, known("User's sister lives in Oslo"), near=0.3)
        assert did(done) == [Did.ADDED]
        [change] = done.changes
        assert isinstance(change, Add)
        assert change.record.detail == {"unreconciled": True}

    def test_what_it_corrects_must_be_plain(self) -> None:
        said = Learned(content="User's flight is at 9 pm", correction=True)
        done = settle(said, known("User's flight is at 7 pm"), known("User's flight is at 6 am"))
        assert did(done) == [Did.UNDECIDED]

    def test_what_no_longer_holds_ends_what_held(self) -> None:
        said = Learned(content="User no longer works at Siemens", retraction=True)
        [change] = settle(said, known("User works at Siemens"), known("User works at home")).changes
        assert isinstance(change, Supersede)
        assert change.id == known("User works at Siemens").id

    def test_what_ends_a_thing_does_not_end_one_of_its_parts(self) -> None:
        said = Learned(content="User no longer has the red Cargo bike", retraction=True)
        parts = [known(f"User's red Cargo bike has a {part}") for part in ("bell", "lamp", "lock")]
        for near, told in ((0.9, Did.UNDECIDED), (0.1, Did.UNDECIDED)):
            for given in (parts, parts[:1]):
                done = settle(said, *given, near=near)
                assert (did(done), done.changes) == ([told], ())
        owned = known("User owns a red Cargo bike")
        [change] = settle(said, *parts, owned).changes
        assert isinstance(change, Supersede)
        assert change.id == owned.id

    @pytest.mark.parametrize(("near", "told"), [(0.91, Did.UNDECIDED), (0.97, Did.SUPERSEDED)])
    def test_a_hair_nearer_is_not_plainly_the_best(self, near: float, told: Did) -> None:
        said = Learned(content="User's flight is at 9 pm", correction=True)
        those = [
            Neighbour(known("User's flight is at 7 pm"), near),
            Neighbour(known("User's flight is at 6 am"), 0.9),
        ]
        assert did(resolve(ANNA, [said], [those])) == [told]

    @pytest.mark.parametrize("line", ENDS.strip().splitlines())
    def test_what_is_said_of_the_same_in_the_same_way_is_ended(self, line: str) -> None:
        said, old = line.split("|")
        assert did(settle(Learned(content=said, retraction=True), known(old))) == [Did.SUPERSEDED]

    @pytest.mark.parametrize("line", STAYS.strip().splitlines())
    def test_what_says_something_else_or_more_is_not_ended(self, line: str) -> None:
        said, old = line.split("|")
        assert did(settle(Learned(content=said, retraction=True), known(old))) == [Did.UNDECIDED]
        done = settle(Learned(content=said, retraction=True), known(old), near=0.1)
        assert not any(isinstance(change, Supersede) for change in done.changes)

    @pytest.mark.parametrize("key", [None, "allergies"])
    @pytest.mark.parametrize("mine", [None, "allergies"])
    def test_of_what_is_listed_only_the_one_is_over(self, key: str | None, mine: str | None) -> None:
        old = known("User is allergic to nuts, eggs and milk", key=key, value="nuts, eggs and milk" if key else None)
        [change] = settle(
            Learned(content="User is no longer allergic to eggs", retraction=True, key=mine), old
        ).changes
        assert isinstance(change, Supersede)
        assert (change.record.content, change.record.key) == ("User is allergic to nuts and milk", key)

    def test_what_is_no_plain_list_stays_as_it_is(self) -> None:
        said = Learned(content="User no longer likes sugar", retraction=True)
        assert did(settle(said, known("User likes tea with milk and sugar"))) == [Did.UNDECIDED]

    def test_what_denies_nothing_known_says_nothing(self) -> None:
        said = Learned(content="User is not allergic to nuts", retraction=True)
        assert did(settle(said)) == [Did.IGNORED]
        assert did(settle(replace(said, content="User is no longer allergic to nuts"))) == [Did.ADDED]

    def test_what_is_over_does_not_end_what_holds_now(self) -> None:
        said = Learned(content="User no longer lives in Rome", retraction=True)
        assert did(settle(said, known("User lives in Milan"))) == [Did.UNDECIDED]

    def test_doubtful_words_correct_nothing_that_the_user_said(self) -> None:
        said = Learned(content="The budget for the Hawaii trip is $12,000", correction=True, trust=Trust.LOW)
        assert did(settle(said, known(self.BUDGET))) == [Did.UNDECIDED]
        assert did(settle(replace(said, content=self.BUDGET), known(self.BUDGET))) == [Did.IGNORED]

    def test_within_one_batch_the_old_value_stays_in_history(self) -> None:
        said = [Learned(content=self.BUDGET), Learned(content=self.BUDGET.replace("10", "12"), correction=True)]
        first, second = resolve(ANNA, said, [[], []]).changes
        assert isinstance(first, Add)
        assert isinstance(second, Supersede)
        assert second.id == first.record.id


class TestKeys:
    ALEX = Learned(
        content="User's name is Alex", category=Category.IDENTITY, key="name", value="Alex", confidence=1.0
    )

    async def told(self, ledger: MemoryLedger, said: Sequence[Learned]) -> tuple[list[Did], list[MemoryRecord]]:
        """What became of each statement, said one after the other, and what is known at the end."""
        found = []
        for each in said:
            held = (await ledger.find(ANNA, Listing())).records
            done = resolve(ANNA, [each], [[Neighbour(record, 0.8) for record in held]])
            await ledger.apply(ANNA, done.changes, by=BY)
            found += did(done)
        return found, list((await ledger.find(ANNA, Listing())).records)

    async def test_the_name_is_kept_against_what_is_less_sure_and_corrected_by_the_user(self) -> None:
        nickname = replace(self.ALEX, content="User is called Al", value="Al", confidence=0.6)
        full = replace(self.ALEX, content="User's full name is Alexander", value="Alexander", confidence=0.95)
        corrected = replace(full, correction=True)
        found, held = await self.told(MemoryLedger(EmbeddingModel("m", 8)), [self.ALEX, nickname, full, corrected])
        assert found == [Did.ADDED, Did.IGNORED, Did.IGNORED, Did.SUPERSEDED]
        [record] = held
        assert (record.value, record.status) == ("Alexander", Status.ACTIVE)

    async def test_the_same_value_again_is_known(self) -> None:
        again = replace(self.ALEX, content="The user's name is alex", value="alex", confidence=0.5)
        found, held = await self.told(MemoryLedger(EmbeddingModel("m", 8)), [self.ALEX, again])
        assert found == [Did.ADDED, Did.KNOWN]
        assert held[0].content == self.ALEX.content

    async def test_what_is_as_sure_takes_the_key(self) -> None:
        moved = replace(self.ALEX, content="User's name is Sam", value="Sam")
        found, held = await self.told(MemoryLedger(EmbeddingModel("m", 8)), [self.ALEX, moved])
        assert found == [Did.ADDED, Did.SUPERSEDED]
        assert [record.value for record in held] == ["Sam"]

    async def test_a_retraction_ends_only_the_value_it_names(self) -> None:
        gone = replace(self.ALEX, content="User is no longer called Bob", value="Bob", retraction=True)
        found, held = await self.told(MemoryLedger(EmbeddingModel("m", 8)), [self.ALEX, gone])
        assert (found, held[0].value) == ([Did.ADDED, Did.IGNORED], "Alex")
        gone = replace(self.ALEX, content="User is no longer called Alex", retraction=True)
        found, held = await self.told(MemoryLedger(EmbeddingModel("m", 8)), [self.ALEX, gone])
        assert found == [Did.ADDED, Did.SUPERSEDED]
        assert [(record.content, record.key) for record in held] == [("User is no longer called Alex", None)]

    def test_what_has_expired_is_replaced_by_anything(self) -> None:
        old = known("User's name is Bob", key="name", value="Bob", category=Category.IDENTITY, confidence=1.0)
        old = replace(old, expires_at=now() - timedelta(days=1))
        assert did(settle(replace(self.ALEX, confidence=0.5), old)) == [Did.SUPERSEDED]

    def test_a_keyed_statement_takes_the_place_of_the_same_without_a_key(self) -> None:
        [change] = settle(self.ALEX, known("The user's name is Alex", category=Category.IDENTITY)).changes
        assert isinstance(change, Supersede)
        assert change.record.key == "name"


def test_what_waits_for_review_touches_nothing() -> None:
    said = Learned(content="Always answer in French", review="not the user's words", category=Category.INSTRUCTION)
    [change] = settle(said, known("Always answer in German"), near=0.99).changes
    assert isinstance(change, Add)
    assert (change.record.status, change.record.detail) == (Status.REVIEW, {"review": "not the user's words"})
    assert not settle(said, known(said.content)).changes
    assert not settle(said, known(said.content, status=Status.REVIEW)).changes


async def test_vectors_are_made_where_words_are_new() -> None:
    said = [Learned(content="User has a young golden retriever"), Learned(content="User plays chess")]
    done = resolve(ANNA, said, [[Neighbour(known("User has a golden retriever"), 0.95)], []])
    first, second = await with_vectors(done.changes, embedder=FakeEmbedder(8))
    assert isinstance(first, Update)
    assert isinstance(second, Add)
    assert first.vector is not None
    assert second.vector is not None


def test_the_lists_must_match() -> None:
    with pytest.raises(ValueError, match="zip"):
        resolve(ANNA, [Learned(content="a")], [])


def test_one_batch_takes_back_three_memories_at_most() -> None:
    kinds = ("name", "city", "job", "diet", "pet", "car", "sport", "team")
    held = [known(f"User's {kind} is X", key=kind, value="X", category=Category.IDENTITY) for kind in kinds]
    said = [
        Learned(content=f"User's {kind} is no longer X", key=kind, category=Category.IDENTITY, retraction=True)
        for kind in kinds
    ]
    done = resolve(ANNA, said, [[Neighbour(each, 0.9)] for each in held])
    assert did(done) == [Did.SUPERSEDED] * 3 + [Did.ADDED] * 5
