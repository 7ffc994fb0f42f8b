"""Files of a model's memory tool are mirrored under their own paths, in both directions."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from recollect.errors import ToolFailed
from recollect.model.erasure import ErasureRequest, Target
from recollect.model.memory import MemoryRecord, Status
from recollect.model.scope import Scope
from tests.support.mirror_samples import (
    BY,
    MirroredService,
    body,
    front_matter,
    lose_ledger,
    mirrored_service,
    until,
    watched,
)

ME = Scope("default")
NOTES = "/memories/trips/hawaii.md"
BUDGET = "The budget is $10,000"


async def create(mirror: MirroredService, path: str, text: str, scope: Scope = ME) -> None:
    await mirror.service.files.create(scope, path, text, by=BY)


async def text(mirror: MirroredService, path: str, scope: Scope = ME) -> str:
    visible = await mirror.service.files.view(scope, path)
    return "\n".join(line.partition("\t")[2] for line in visible.splitlines()[1:])


async def files(mirror: MirroredService, *statuses: Status) -> list[MemoryRecord]:
    return [record for record in await mirror.all("default", *statuses) if record.category == "file"]


async def test_a_file_is_mirrored_under_its_path_and_read_back_unchanged(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        await create(mirror, NOTES, f"# Trips\n\n{BUDGET}\n")
        await create(mirror, "/memories/todo", "---\ntitle: mine\n---\nbuy milk")
        await create(mirror, "/memories/empty.md", "")
        await create(mirror, NOTES, "Bob's", Scope("bob"))
        await mirror.sync()
        path = tmp_path / "memories/trips/hawaii.md"
        assert (front_matter(path)["key"], front_matter(path)["category"], front_matter(path)["trust"]) == (
            NOTES,
            "file",
            "low",
        )
        assert body(path) == f"# Trips\n\n{BUDGET}"
        assert body(tmp_path / "users/bob/memories/trips/hawaii.md") == "Bob's"
        versions = {record.id: record.version for record in await files(mirror)}
        assert not (await mirror.sync()).written
        assert {record.id: record.version for record in await files(mirror)} == versions
    async with mirrored_service(tmp_path) as mirror:
        assert not (await mirror.sync()).written
        assert await text(mirror, "/memories/todo") == "---\ntitle: mine\n---\nbuy milk"
        assert await text(mirror, "/memories/empty.md") == ""
        count, differences = await mirror.mirror.verify()
        assert (count, differences) == (4, [])


async def test_the_memory_tool_sees_edits_of_a_person_which_history_records(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        await create(mirror, NOTES, BUDGET)
        await create(mirror, "/memories/empty.md", "")
        await mirror.sync()
        path = tmp_path / "memories/trips/hawaii.md"
        path.write_text(path.read_text().replace("$10,000", "$12,000"))
        empty = tmp_path / "memories/empty.md"
        empty.write_text(empty.read_text().replace("(empty file)", "not any more"))
        assert (await mirror.sync()).edited == 2
        assert await text(mirror, NOTES) == "The budget is $12,000"
        assert await text(mirror, "/memories/empty.md") == "not any more"
        [record] = [each for each in await files(mirror) if each.key == NOTES]
        assert record.trust == "low"
        await mirror.service.files.str_replace(ME, NOTES, "$12,000", "$9,000", by=BY)
        await mirror.sync()
        assert body(path) == "The budget is $9,000"
        history = await mirror.service.history(ME, memory_id=record.id)
        assert [line.by.who for line in history] == ["test", "mirror", "test"]


async def test_a_plain_file_added_by_a_person_becomes_a_file_of_the_model(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        await mirror.sync()
        for name, words in (("notes/mine.txt", "I like window seats\n"), ("my list.md", "bread\n")):
            path = tmp_path / "memories" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(words)
        (tmp_path / "memories/.hidden").write_text("x")
        (tmp_path / "memories/notes/mine.txt~").write_text("a copy of an editor's")
        assert (await mirror.sync()).added == 2
        assert await text(mirror, "/memories/notes/mine.txt") == "I like window seats"
        assert "/memories/my list.md" in await mirror.service.files.view(ME, "/memories")
        assert {record.trust for record in await files(mirror)} == {"high"}
        assert not (await mirror.sync()).written


async def test_renames_and_deletions_go_both_ways(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        await create(mirror, NOTES, BUDGET)
        await create(mirror, "/memories/old.md", "old")
        await mirror.sync()
        await mirror.service.files.rename(ME, "/memories/trips", "/memories/travel", by=BY)
        await mirror.service.files.delete(ME, "/memories/old.md", by=BY)
        await create(mirror, "/memories/old.md", "new under the old path")
        await mirror.sync()
        assert mirror.files("memories/**/*.md") == [
            tmp_path / "memories/old.md",
            tmp_path / "memories/travel/hawaii.md",
        ]
        assert body(tmp_path / "memories/old.md") == "new under the old path"
        assert [body(path) for path in mirror.tombstones()] == ["old"]
        [record] = [each for each in await files(mirror) if each.key == "/memories/travel/hawaii.md"]
        (tmp_path / "memories/travel/hawaii.md").rename(tmp_path / "memories/maui.md")
        (tmp_path / "memories/old.md").unlink()
        done = await mirror.sync()
        assert (done.edited, done.forgotten, done.added) == (1, 1, 0)
        assert [(each.id, each.key) for each in await files(mirror)] == [(record.id, "/memories/maui.md")]
        assert await text(mirror, "/memories/maui.md") == BUDGET
        with pytest.raises(ToolFailed, match="does not exist"):
            await text(mirror, "/memories/old.md")
        await mirror.service.undo(ME, by=BY)
        await mirror.sync()
        assert mirror.files("memories/**/*.md") == [
            tmp_path / "memories/maui.md",
            tmp_path / "memories/old.md",
        ]
        assert not (await mirror.sync()).written


async def test_a_lost_ledger_gets_the_files_back_with_their_ids(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        await create(mirror, NOTES, BUDGET)
        await mirror.sync()
        [before] = await files(mirror)
    lose_ledger(tmp_path)
    async with mirrored_service(tmp_path) as mirror:
        await mirror.sync()
        [after] = await files(mirror)
        assert (after.id, after.key, after.content, after.trust) == (before.id, NOTES, BUDGET, "low")
        assert await text(mirror, NOTES) == BUDGET


async def test_a_file_with_an_unportable_path_is_stored_among_the_entries(tmp_path: Path) -> None:
    paths = ["/memories/.hidden/x.md", "/memories/CON.md", "/memories/a:b", "/memories/x.swp"]
    async with mirrored_service(tmp_path) as mirror:
        for path in paths:
            await create(mirror, path, BUDGET)
        await create(mirror, NOTES, BUDGET, Scope("default", "trips"))
        await mirror.sync()
        assert not (tmp_path / "memories").exists()
        assert [body(each) for each in mirror.files()] == [BUDGET] * 5
        assert not (await mirror.sync()).written
        for path in paths:
            assert await text(mirror, path) == BUDGET


async def test_an_erased_file_is_removed_from_the_folder_and_git_history(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path, mirror_git=True) as mirror:
        await create(mirror, NOTES, "canary-7731")
        await mirror.sync()
        await mirror.service.files.rename(ME, NOTES, "/memories/other.md", by=BY)
        await mirror.service.files.insert(ME, "/memories/other.md", 0, "more", by=BY)
        await mirror.sync()
        [record] = await files(mirror)
        await mirror.service.erasure.erase(ME, ErasureRequest(Target.MEMORY, record.id), by=BY)
        await mirror.sync()
        log = subprocess.run(  # noqa: ASYNC221
            ["git", "-C", str(tmp_path), "log", "--all", "-p"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert "canary-7731" not in log.stdout
        assert not mirror.files("memories/**/*.md")


async def test_a_watched_file_is_ingested_automatically(tmp_path: Path) -> None:
    async with watched(tmp_path) as mirror:
        await create(mirror, "/memories/todo.txt", "milk")
        path = tmp_path / "memories/todo.txt"
        await until(path.exists)
        path.write_text(path.read_text().replace("milk", "bread"))

        async def seen() -> bool:
            return await text(mirror, "/memories/todo.txt") == "bread"

        await until(seen)
