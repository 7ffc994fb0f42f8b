"""A watched folder: edits by any editor become writes, and writes become files."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import watchfiles

from recollect.model.memory import Status
from recollect.model.scope import Scope
from recollect.search import SearchRequest
from tests.support.mirror_samples import BY, HOME, MirroredService, body, mirrored_service, until, watched


def save_in_place(path: Path, text: str) -> None:
    path.write_text(text)


def save_by_rename(path: Path, text: str) -> None:
    """Write a temporary file and rename it, as most editors do."""
    new = path.with_name(f".{path.name}.tmp")
    new.write_text(text)
    os.replace(new, path)


def save_like_vim(path: Path, text: str) -> None:
    """Test the folder, move the old file away, write a new one, and remove the old, as Vim does."""
    (path.parent / "4913").touch()
    (path.parent / "4913").unlink()
    swap, backup = path.with_name(f".{path.name}.swp"), path.with_name(f"{path.name}~")
    swap.write_text("swap")
    path.rename(backup)
    path.write_text(text)
    backup.unlink()
    swap.unlink()


def save_like_emacs(path: Path, text: str) -> None:
    lock = path.with_name(f".#{path.name}")
    lock.symlink_to("someone@somewhere.1234")
    path.with_name(f"#{path.name}#").write_text(text)
    shutil.copy(path, path.with_name(f"{path.name}~"))
    path.write_text(text)
    path.with_name(f"#{path.name}#").unlink()
    lock.unlink()


def save_after_removing(path: Path, text: str) -> None:
    path.unlink()
    path.write_text(text)


def save_in_a_burst(path: Path, text: str) -> None:
    for n in range(50):
        path.write_text(text.replace("green", f"shade {n}"))
    path.write_text(text)


Save = Callable[[Path, str], None]
SAVES: tuple[Save, ...] = (
    save_in_place,
    save_by_rename,
    save_like_vim,
    save_like_emacs,
    save_after_removing,
    save_in_a_burst,
)


async def says(mirror: MirroredService, id: str, text: str) -> bool:
    return (await mirror.record(id)).content == text


async def test_an_edit_by_any_editor_is_ingested(tmp_path: Path) -> None:
    async with watched(tmp_path) as mirror:
        fact = await mirror.add("The bike is red")
        [path] = await until(lambda: mirror.files("entries/default/**/*.md"))
        for n, save in enumerate(SAVES):
            words = f"The bike is green {n}"
            text = f"---\nid: {fact.id}\nconversation_id: default\n---\n{words}\n"
            await asyncio.to_thread(save, path, text)
            await until(lambda words=words: says(mirror, fact.id, words))
            await until(lambda words=words: body(path) == words)
        statuses = {record.status for record in await mirror.all("default", *Status)}
        assert (statuses, len(await mirror.all("default", *Status))) == ({Status.ACTIVE}, 1)
        assert not mirror.rejected()


async def test_an_edited_memory_is_found_by_its_new_text(tmp_path: Path) -> None:
    async with watched(tmp_path) as mirror:
        fact = await mirror.add("The bike is red")
        [path] = await until(mirror.files)
        await asyncio.to_thread(save_by_rename, path, path.read_text().replace("bike is red", "tortoise is asleep"))
        await until(lambda: says(mirror, fact.id, "The tortoise is asleep"))
        hits = await mirror.service.search(HOME, SearchRequest(query="tortoise asleep", limit=3))
        assert [hit.id for hit in hits] == [fact.id]


async def test_deleting_renaming_and_moving_are_distinguished(tmp_path: Path) -> None:
    async with watched(tmp_path) as mirror:
        gone, renamed, moved = [await mirror.add(f"The {each} is red") for each in ("bike", "car", "boat")]
        await until(lambda: len(mirror.files()) == 3)
        (tmp_path / "entries/holiday/facts").mkdir(parents=True)
        paths = {each: mirror.file(each) for each in ("bike", "car", "boat")}
        paths["car"].rename(paths["car"].with_name("car.md"))
        shutil.move(paths["boat"], tmp_path / "entries/holiday/facts/boat.md")
        paths["bike"].unlink()

        async def is_forgotten() -> bool:
            return (await mirror.record(gone.id)).status is Status.FORGOTTEN

        await until(is_forgotten)
        await until(lambda: len(mirror.tombstones()) == 1)
        for each in (renamed, moved):
            lines = await mirror.service.history(Scope("default"), memory_id=each.id)
            assert [str(line.verb) for line in lines] == ["add"]


async def test_a_folder_moved_into_the_mirror_is_ingested(tmp_path: Path) -> None:
    dropped = tmp_path / "dropped"
    (dropped / "facts").mkdir(parents=True)
    for n in range(20):
        (dropped / f"facts/{n}.md").write_text(f"fact number {n}")
    async with watched(tmp_path / "home") as mirror:
        (tmp_path / "home/entries").mkdir(exist_ok=True)
        await asyncio.to_thread(shutil.move, dropped, tmp_path / "home/entries/new")

        async def all_there() -> bool:
            return len(await mirror.words()) == 20

        await until(all_there)


async def test_a_removed_entries_folder_is_rewritten_by_the_watcher(tmp_path: Path) -> None:
    async with watched(tmp_path) as mirror:
        for n in range(5):
            await mirror.add(f"fact number {n}")
        await until(lambda: len(mirror.files()) == 5)
        await asyncio.to_thread(shutil.rmtree, tmp_path / "entries")
        await until(lambda: len(mirror.files()) == 5)
        assert len(await mirror.words()) == 5


async def test_a_memory_added_by_another_process_becomes_a_file(tmp_path: Path) -> None:
    async with watched(tmp_path) as mirror, mirrored_service(tmp_path) as other:
        await other.add("The bike is red")
        [path] = await until(mirror.files)
        assert body(path) == "The bike is red"


async def test_another_process_takes_over_when_the_mirroring_one_ends(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as second:
        async with watched(tmp_path) as first:
            second.mirror.start()
            await first.add("The bike is red")
            await until(first.files)
        note = tmp_path / "entries/default/facts/note.md"
        note.write_text("I like tea")

        async def knows() -> bool:
            return "I like tea" in await second.words()

        await until(knows)


async def test_files_are_polled_if_they_cannot_be_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = watchfiles.watch

    def refuse(*paths: Path, **options: Any) -> Any:
        if not options["force_polling"]:
            raise OSError("OS file watch limit reached")
        return real(*paths, **{**options, "poll_delay_ms": 50})

    monkeypatch.setattr(watchfiles, "watch", refuse)
    async with watched(tmp_path) as mirror:
        fact = await mirror.add("The bike is red")
        [path] = await until(mirror.files)
        path.write_text(path.read_text().replace("red", "green"))
        await until(lambda: says(mirror, fact.id, "The bike is green"))


async def test_closing_writes_pending_changes(tmp_path: Path) -> None:
    async with watched(tmp_path) as mirror:
        await mirror.add("The bike is red")
    assert [body(path) for path in mirror.files()] == ["The bike is red"]
    assert "The bike is red" in (tmp_path / "memory_index.json").read_text()


async def test_undo_restores_all_files_that_were_deleted_together(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        for n in range(3):
            await mirror.add(f"fact number {n}")
        await mirror.sync()
        for path in mirror.files():
            path.unlink()
        await mirror.sync()
        assert not await mirror.words()
        await mirror.service.undo(Scope("default"), by=BY)
        await mirror.sync()
        assert len(await mirror.words()) == len(mirror.files()) == 3
