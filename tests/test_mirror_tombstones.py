"""A memory that is back lies in one place: nothing of it is left among the tombstones."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from mirror_samples import BY, HOME, MirroredService, body, mirrored_service

from recollect.mirror.folder import FileStamp, MirrorFolder, StagedFile
from recollect.mirror.verify import verify_files
from recollect.model.scope import Scope


def _tombstone_of(path: Path, home: Path) -> Path:
    return home / "entries/deleted" / path.relative_to(home / "entries")


async def _differences(mirror: MirroredService) -> list[str]:
    _, results = await verify_files(mirror.root, ledger=mirror.service._ledger, root_user="default")
    return [f"{each.where}: {each.what}" for each in results]


@pytest.mark.parametrize("project", ["a conversation", "the last of all"])
async def test_what_is_edited_while_its_tombstone_is_written_leaves_none_behind(tmp_path: Path, project: str) -> None:
    """As if the process had ended after it wrote the tombstone and before it removed the file."""
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


async def test_a_file_that_is_edited_in_the_moment_it_is_to_be_removed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with mirrored_service(tmp_path) as mirror:
        fact = await mirror.add("The bike is red")
        await mirror.sync()
        path = mirror.file("red")
        await mirror.service.forget(HOME, fact.id, by=BY)
        real, edits = MirrorFolder.place, ["green"]

        def place(self: MirrorFolder, staged: StagedFile, *, expected: FileStamp | None) -> FileStamp:
            placed = real(self, staged, expected=expected)
            if edits:
                path.write_text(path.read_text().replace("red", edits.pop()))
            return placed

        monkeypatch.setattr(MirrorFolder, "place", place)
        await mirror.sync()
        assert await mirror.words() == {"The bike is green"}
        assert ([body(each) for each in mirror.files()], mirror.tombstones()) == (["The bike is green"], [])
        assert not await _differences(mirror)


async def test_a_copy_of_a_tombstone_that_is_put_back_restores_and_words_nobody_knows_are_kept(
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
