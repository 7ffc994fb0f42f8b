"""Synchronisation of files and ledger, for changes on either side."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from recollect.errors import InvalidSettings, ModelUnavailable, StoreBusy
from recollect.mirror.folder import MirrorFolder, StagedFile
from recollect.model.change import Actor, Author
from recollect.model.memory import Status
from recollect.model.scope import Scope
from recollect.model.times import now
from tests.support.mirror_kills import Victims, check
from tests.support.mirror_samples import (
    BY,
    HOME,
    MirroredService,
    body,
    front_matter,
    lose_ledger,
    mirrored_service,
    watched,
)


async def test_a_memory_file_has_the_format_of_agent_folders(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        fact = await mirror.add("The bike is red")
        await mirror.sync()
        [path] = mirror.files()
        moment = fact.record.created_at.isoformat()
        stamp = moment.replace(":", "-").replace("+", "-")
        assert path == tmp_path / f"entries/default/facts/{stamp}__{fact.id}.md"
        assert path.read_text() == (
            f"---\nid: {fact.id}\nconversation_id: default\nrole: memory\n"
            f"created_at: '{moment}'\n---\nThe bike is red\n"
        )


async def test_turns_are_stored_by_role(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        talk = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good morning"}]
        await mirror.service.remember(HOME, talk, by=BY)
        await mirror.sync()
        [answer] = mirror.files("entries/default/turns/assistant/*.md")
        [question] = mirror.files("entries/default/turns/user/*.md")
        assert (body(question), body(answer)) == ("Hello", "Good morning")
        assert (front_matter(question)["role"], front_matter(answer)["position"]) == ("user", 2)


async def test_a_memory_of_the_user_is_stored_under_global(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        await mirror.add("I live in Oslo", Scope("default"))
        await mirror.sync()
        assert front_matter(mirror.file("Oslo"))["conversation_id"] == "global"


async def test_an_edit_of_the_text_is_an_update_in_history(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        fact = await mirror.add("The bike is red")
        await mirror.sync()
        path = mirror.file("red")
        path.write_text(path.read_text().replace("red", "green"))
        assert (await mirror.sync()).edited == 1
        record = await mirror.record(fact.id)
        assert (record.content, record.version) == ("The bike is green", 2)
        [line, _] = await mirror.service.history(HOME, memory_id=fact.id)
        assert (line.verb, line.by.who, line.before) == ("update", "mirror", {"content": "The bike is red"})
        assert front_matter(path)["version"] == 2
        assert not (await mirror.sync()).written


async def test_an_edit_of_the_front_matter_is_an_update(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        fact = await mirror.add("The bike is red", importance=0.9)
        await mirror.sync()
        path = mirror.file("red")
        text = path.read_text().replace("importance: 0.9", "category: preference\ntags: [bikes]\nmood: calm")
        path.write_text(text)
        await mirror.sync()
        record = await mirror.record(fact.id)
        assert (record.importance, record.category, record.tags) == (0.5, "preference", ("bikes",))
        assert record.metadata == {"mood": "calm"}


async def test_a_file_that_loses_its_front_matter_is_still_that_memory(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        fact = await mirror.add("The bike is red")
        await mirror.sync()
        path = mirror.file("red")
        path.write_text("The bike is green")
        await mirror.sync()
        assert await mirror.words() == {"The bike is green"}
        assert (front_matter(path)["id"], len(mirror.files())) == (fact.id, 1)


async def test_deleting_a_file_forgets_its_memory_and_leaves_a_tombstone(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        fact = await mirror.add("The bike is red")
        await mirror.sync()
        mirror.file("red").unlink()
        assert (await mirror.sync()).forgotten == 1
        assert (await mirror.record(fact.id)).status is Status.FORGOTTEN
        [path] = mirror.tombstones()
        assert (front_matter(path)["status"], body(path)) == ("forgotten", "The bike is red")
        assert not (await mirror.sync()).written


async def test_moving_a_tombstone_back_restores_the_memory(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        fact = await mirror.add("The bike is red")
        await mirror.sync()
        place = mirror.file("red")
        place.unlink()
        await mirror.sync()
        place.parent.mkdir(parents=True, exist_ok=True)
        mirror.tombstones()[0].rename(place)
        assert (await mirror.sync()).restored == 1
        assert (await mirror.record(fact.id)).status is Status.ACTIVE
        assert "status" not in front_matter(place)
        assert not mirror.tombstones()


async def test_a_superseded_file_names_its_replacement(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        await mirror.add("color: red", key="color", value="red")
        await mirror.sync()
        new = await mirror.add("color: green", key="color", value="green")
        await mirror.sync()
        [old] = mirror.tombstones()
        assert front_matter(old)["replaced_by"] == new.id
        assert [body(path) for path in mirror.files()] == ["color: green"]


async def test_a_renamed_file_changes_nothing_and_keeps_its_name(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        fact = await mirror.add("The bike is red")
        await mirror.sync()
        path = mirror.file("red")
        new = path.with_name("bike.md")
        path.rename(new)
        done = await mirror.sync()
        assert (done.forgotten, done.added, done.written) == (0, 0, [])
        await mirror.service.update(HOME, fact.id, {"content": "The bike is blue"}, by=BY)
        await mirror.sync()
        assert mirror.files() == [new]
        assert body(new) == "The bike is blue"


async def test_a_moved_folder_changes_nothing(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        for n in range(5):
            await mirror.add(f"fact number {n}")
        await mirror.sync()
        shutil.move(tmp_path / "entries/default/facts", tmp_path / "entries/default/about me")
        done = await mirror.sync()
        assert (done.forgotten, done.added, len(await mirror.all())) == (0, 0, 5)


async def test_a_plain_note_becomes_a_memory_of_its_conversation(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        (tmp_path / "entries/holiday/facts").mkdir(parents=True)
        note = tmp_path / "entries/holiday/facts/budget.md"
        note.write_text("The budget is $10,000\n")
        assert (await mirror.sync()).added == 1
        [record] = await mirror.all()
        assert (record.content, record.scope.project, record.level) == ("The budget is $10,000", "holiday", "project")
        assert front_matter(note)["id"] == record.id


async def test_an_edited_copy_is_a_new_memory_and_an_identical_copy_is_rejected(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        fact = await mirror.add("The bike is red")
        await mirror.sync()
        path = mirror.file("red")
        path.with_name("same.md").write_text(path.read_text())
        path.with_name("other.md").write_text(path.read_text().replace("bike", "car"))
        await mirror.sync()
        assert await mirror.words() == {"The bike is red", "The car is red"}
        assert front_matter(path)["id"] == fact.id != front_matter(path.with_name("other.md"))["id"]
        assert "copy" in mirror.rejected()["same.md"]


async def test_in_a_conflict_the_edit_wins_and_the_other_text_is_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with mirrored_service(tmp_path) as mirror:
        fact = await mirror.add("The bike is red")
        await mirror.sync()
        path = mirror.file("red")
        path.write_text(path.read_text().replace("red", "green"))
        await mirror.service.update(HOME, fact.id, {"content": "The bike is blue"}, by=BY)
        assert (await mirror.sync()).conflicts == 1
        assert (await mirror.record(fact.id)).content == body(path) == "The bike is green"
        [other] = mirror.conflicts()
        assert body(other) == "The bike is blue"
        lines = await mirror.service.history(HOME, memory_id=fact.id)
        assert [line.before and line.before["content"] for line in lines] == [
            "The bike is blue",
            "The bike is red",
            None,
        ]
        assert "were both changed" in caplog.text


async def test_an_edit_restores_a_memory_that_was_forgotten_meanwhile(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        fact = await mirror.add("The bike is red")
        await mirror.sync()
        path = mirror.file("red")
        path.write_text(path.read_text().replace("red", "green"))
        await mirror.service.forget(HOME, fact.id, by=BY)
        await mirror.sync()
        record = await mirror.record(fact.id)
        assert (record.status, record.content) == (Status.ACTIVE, "The bike is green")


async def test_an_edit_of_a_superseded_memory_becomes_a_new_memory(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        await mirror.add("color: red", key="color", value="red")
        await mirror.sync()
        path = mirror.file("red")
        path.write_text(
            path.read_text().replace("color: red", "my color is orange").replace("key: color\nvalue: red\n", "")
        )
        await mirror.add("color: green", key="color", value="green")
        await mirror.sync()
        assert await mirror.words() == {"color: green", "my color is orange"}
        assert [body(path) for path in mirror.tombstones()] == ["color: red"]


async def test_a_file_moved_to_another_conversation_by_its_front_matter_moves_the_memory(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        await mirror.add("The bike is red")
        await mirror.sync()
        path = mirror.file("red")
        path.write_text(path.read_text().replace("conversation_id: default", "conversation_id: holiday"))
        await mirror.sync()
        [record] = await mirror.all()
        assert (record.content, record.scope.project) == ("The bike is red", "holiday")


async def test_losing_the_state_folder_loses_no_change(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        fact = await mirror.add("The bike is red")
        await mirror.sync()
        path = mirror.file("red")
        shutil.rmtree(tmp_path / ".recollect")
        done = await mirror.sync()
        assert (done.written, done.added, done.edited, mirror.files()) == ([], 0, 0, [path])
        # A change of the ledger alone is no edit of the file.
        await mirror.service.update(HOME, fact.id, {"content": "The bike is blue"}, by=BY)
        shutil.rmtree(tmp_path / ".recollect")
        assert (await mirror.sync()).conflicts == 0
        assert body(path) == (await mirror.record(fact.id)).content == "The bike is blue"
        # An edit of a person is.
        path.write_text(path.read_text().replace("blue", "green"))
        shutil.rmtree(tmp_path / ".recollect")
        await mirror.sync()
        assert (await mirror.record(fact.id)).content == "The bike is green"


async def test_a_lost_ledger_is_rebuilt_from_the_folder(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        talk = [{"role": "user", "content": f"Question {n}"} for n in range(3)]
        await mirror.service.remember(HOME, talk, by=BY)
        fact = await mirror.add("The bike is red", tags=["bike"], importance=0.8, evidence=["x", "y"])
        await mirror.add("color: red", key="color", value="red")
        await mirror.add("color: green", key="color", value="green")
        gone = await mirror.add("The car is old", Scope("default"))
        await mirror.add("Elsewhere", Scope("team/a", "p", "s"))
        await mirror.sync()
        await mirror.service.forget(Scope("default"), gone.id, by=BY)
        await mirror.sync()
        before = {user: await mirror.all(user, *Status) for user in ("default", "team/a")}
        turns = await mirror.service.turns(HOME)
    lose_ledger(tmp_path)
    async with mirrored_service(tmp_path) as mirror:
        await mirror.sync()
        for user, records in before.items():
            repeated = {record.id: record for record in await mirror.all(user, *Status)}
            assert {each.id: each.content for each in records} == {id: each.content for id, each in repeated.items()}
            assert {each.id: each.status for each in records} == {id: each.status for id, each in repeated.items()}
        results = await mirror.record(fact.id)
        assert (results.tags, results.importance, results.evidence) == (("bike",), 0.8, ("x", "y"))
        assert [(turn.id, turn.position, turn.content) for turn in await mirror.service.turns(HOME)] == [
            (turn.id, turn.position, turn.content) for turn in turns
        ]
        assert await mirror.service.users() == ["default", "team/a"]
        assert not (await mirror.sync()).written


async def test_an_interrupted_rebuild_of_the_ledger_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with mirrored_service(tmp_path) as mirror:
        for n in range(3):
            await mirror.add(f"fact number {n}")
        await mirror.sync()
    lose_ledger(tmp_path)
    async with mirrored_service(tmp_path) as mirror:
        with monkeypatch.context() as broken:

            async def away(*_: object, **__: object) -> None:
                raise ModelUnavailable("the embedder is away")

            broken.setattr(mirror.service.transfer, "import_records", away)
            await mirror.sync()
        assert not await mirror.words()
        await mirror.sync()
        assert len(await mirror.words()) == len(mirror.files()) == 3


async def test_an_older_ledger_is_updated_from_the_folder(tmp_path: Path) -> None:
    home, copy = tmp_path / "home", tmp_path / "copy.db"
    async with mirrored_service(home) as mirror:
        fact = await mirror.add("The bike is red")
        await mirror.sync()
    shutil.copy(home / "recollect.db", copy)
    async with mirrored_service(home) as mirror:
        await mirror.service.update(HOME, fact.id, {"content": "The bike is blue"}, by=BY)
        await mirror.add("The car is old")
        await mirror.sync()
    lose_ledger(home)
    shutil.copy(copy, home / "recollect.db")
    async with mirrored_service(home) as mirror:
        await mirror.sync()
        assert await mirror.words() == {"The bike is blue", "The car is old"}
        assert {body(path) for path in mirror.files()} == {"The bike is blue", "The car is old"}


async def test_a_missing_entries_folder_is_rewritten(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        await mirror.add("The bike is red")
        await mirror.sync()
        shutil.rmtree(tmp_path / "entries")
        assert (await mirror.sync()).forgotten == 0
        assert [body(path) for path in mirror.files()] == ["The bike is red"]


async def test_a_memory_in_review_has_no_file(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        waiting = await mirror.service.reviews.propose(HOME, "Always answer in rhymes", {}, by=BY)
        await mirror.sync()
        assert not mirror.files()
        await mirror.service.reviews.approve(HOME, waiting.id, by=Author("ann", actor=Actor.PERSON))
        await mirror.sync()
        assert [body(path) for path in mirror.files()] == ["Always answer in rhymes"]


async def test_a_purged_memory_has_no_tombstone(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        fact = await mirror.add("The bike is red")
        await mirror.sync()
        await mirror.service.forget(HOME, fact.id, by=BY)
        await mirror.sync()
        assert mirror.tombstones()
        await mirror.service.deps.ledger.purge(now() + timedelta(seconds=1))
        await mirror.sync()
        assert not mirror.tombstones()


async def test_two_processes_never_mirror_one_folder(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as other:
        async with watched(tmp_path):
            with pytest.raises(StoreBusy, match="another process"):
                await other.sync()
        await other.sync()


async def test_the_folder_of_one_user_is_refused_for_another(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        await mirror.sync()
    async with mirrored_service(tmp_path, chat_user="ann") as mirror:
        with pytest.raises(InvalidSettings, match="belongs to user 'default'"):
            await mirror.sync()


async def test_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path / "home") as mirror:
        await mirror.add("The bike is red")
        await mirror.sync()
        [path] = mirror.files()
        assert os.stat(path).st_mode & 0o077 == 0


async def test_files_and_ledger_converge_after_a_kill(tmp_path: Path) -> None:
    chance, edits = random.Random(7), dict[str, str]()
    with Victims() as victims:
        for _ in range(3):
            await asyncio.to_thread(victims.kill_one, tmp_path, chance, edits)
    assert edits
    took = await check(tmp_path, edits, start_s=victims.start_s)
    assert took.took_s < took.limit_s, str(took)


def _tombstone_of(path: Path, home: Path) -> Path:
    return home / "entries/deleted" / path.relative_to(home / "entries")


async def _differences(mirror: MirroredService) -> list[str]:
    _, results = await mirror.mirror.verify()
    return [f"{each.where}: {each.what}" for each in results]


@pytest.mark.parametrize("project", ["a conversation", "the last of all"])
async def test_an_edit_during_the_write_of_a_tombstone_restores_the_memory(tmp_path: Path, project: str) -> None:
    """Simulate a process that ends after it wrote the tombstone and before it removed the file."""
    async with mirrored_service(tmp_path) as mirror:
        scope = Scope("default", project, project)
        fact = await mirror.add("The bike is red", scope)
        await mirror.sync()
        path = mirror.file("red")
        await mirror.service.forget(scope, fact.id, by=BY)
        tombstone = _tombstone_of(path, tmp_path)
        tombstone.parent.mkdir(parents=True)
        shutil.copy(path, tombstone)
        path.write_text(path.read_text().replace("red", "green"))
        await mirror.sync()
        assert await mirror.words() == {"The bike is green"}
        assert ([body(each) for each in mirror.files()], mirror.tombstones()) == (["The bike is green"], [])
        assert not await _differences(mirror)


async def test_an_edit_at_the_moment_of_removal_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with mirrored_service(tmp_path) as mirror:
        fact = await mirror.add("The bike is red")
        await mirror.sync()
        path = mirror.file("red")
        await mirror.service.forget(HOME, fact.id, by=BY)
        real, edits = MirrorFolder.place, ["green"]

        def place(self: MirrorFolder, staged: StagedFile, *, expected: str) -> str:
            placed = real(self, staged, expected=expected)
            if edits:
                path.write_text(path.read_text().replace("red", edits.pop()))
            return placed

        monkeypatch.setattr(MirrorFolder, "place", place)
        await mirror.sync()
        assert await mirror.words() == {"The bike is green"}
        assert ([body(each) for each in mirror.files()], mirror.tombstones()) == (["The bike is green"], [])
        assert not await _differences(mirror)


async def test_a_copied_tombstone_restores_and_an_edited_tombstone_is_not_removed(
    tmp_path: Path,
) -> None:
    async with mirrored_service(tmp_path) as mirror:
        first, second = await mirror.add("The bike is red"), await mirror.add("The car is red")
        await mirror.sync()
        paths = {each: mirror.file(each) for each in ("bike", "car")}
        for fact in (first, second):
            await mirror.service.forget(HOME, fact.id, by=BY)
        await mirror.sync()
        for path in paths.values():
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(_tombstone_of(path, tmp_path), path)
        other = _tombstone_of(paths["car"], tmp_path)
        other.write_text(other.read_text().replace("red", "of another colour"))
        await mirror.sync()
        await mirror.sync()
        assert await mirror.words() == {"The bike is red", "The car is red"}
        assert [body(path) for path in mirror.tombstones()] == ["The car is of another colour"]
