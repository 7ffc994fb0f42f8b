"""Changes of many files are processed in batches, and the index reuses its lines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from recollect.mirror import mirror as running
from recollect.mirror.folder import MirrorFolder
from recollect.mirror.state import MirrorState
from recollect.model.change import Outcome
from recollect.service.service import Service
from tests.support.mirror_samples import MirroredService, body, mirrored_service, watched

MANY = 32


async def _facts(mirror: MirroredService, count: int) -> None:
    for number in range(count):
        await mirror.add(f"fact number {number} is red")
    await mirror.sync()


def _index(home: Path) -> dict[str, str]:
    lines = json.loads((home / "memory_index.json").read_text())
    return {str(Path(line["path"]).relative_to(home)): line["content"] for line in lines}


def _bodies(mirror: MirroredService) -> dict[str, str]:
    return {str(path.relative_to(mirror.root)): body(path) for path in mirror.files()}


def _record_calls(monkeypatch: pytest.MonkeyPatch, of: type, name: str) -> list[Any]:
    """Return a list that grows by the first argument of each call of a method."""
    real, calls = getattr(of, name), list[Any]()

    def called(self: Any, *inputs: Any, **named: Any) -> Any:
        calls.append(inputs[0])
        return real(self, *inputs, **named)

    monkeypatch.setattr(of, name, called)
    return calls


async def test_many_edits_are_written_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with mirrored_service(tmp_path) as mirror:
        await _facts(mirror, MANY)
        for path in mirror.files():
            path.write_text(path.read_text().replace("red", "green"))
        states = _record_calls(monkeypatch, MirrorState, "put")
        assert (await mirror.sync()).edited == MANY
        assert len(states) <= 10
        assert {each.content for each in await mirror.all()} == {body(path) for path in mirror.files()}
        assert all(each.content.endswith("green") and each.version == 2 for each in await mirror.all())


async def test_an_invalid_edit_does_not_block_other_edits(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        await _facts(mirror, 5)
        wrong, *rest = mirror.files()
        wrong.write_text(wrong.read_text().replace("role:", "importance: 7\nrole:").replace("red", "green"))
        for path in rest:
            path.write_text(path.read_text().replace("red", "green"))
        done = await mirror.sync()
        assert (done.edited, done.bad, list(mirror.rejected())) == (4, 1, [wrong.name])
        assert sum(words.endswith("green") for words in await mirror.words()) == 4


async def test_two_edited_files_of_one_memory_become_two_memories_when_the_state_is_lost(
    tmp_path: Path,
) -> None:
    async with mirrored_service(tmp_path) as mirror:
        await _facts(mirror, 2)
    text = mirror.file("number 1").read_text()
    mirror.file("number 1").write_text(text.replace("red", "green"))
    (mirror.file("number 0").parent / "zoe.md").write_text(text.replace("red", "blue"))
    for path in (tmp_path / ".recollect").glob("mirror.db*"):
        path.unlink()
    async with mirrored_service(tmp_path) as mirror:
        await mirror.sync()
        assert await mirror.words() == {"fact number 0 is red", "fact number 1 is green", "fact number 1 is blue"}
        assert sorted(body(path) for path in mirror.files()) == sorted(await mirror.words())


async def test_a_second_edit_during_ingestion_is_no_conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with mirrored_service(tmp_path) as mirror:
        await _facts(mirror, 3)
        path = mirror.file("number 1")
        path.write_text(path.read_text().replace("red", "green"))
        real = Service.update

        async def slow(self: Service, scope: Any, id: str, fields: Mapping[str, Any], **rest: Any) -> Outcome:
            outcome = await real(self, scope, id, fields, **rest)
            path.write_text(path.read_text().replace("green", "blue"))
            return outcome

        with monkeypatch.context() as patched:
            patched.setattr(Service, "update", slow)
            await mirror.sync()
        await mirror.sync()
        assert body(path) == "fact number 1 is blue"
        assert "fact number 1 is blue" in await mirror.words()
        assert not mirror.conflicts()


async def test_the_index_is_written_without_reading_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with mirrored_service(tmp_path) as mirror:
        await _facts(mirror, 20)
        path = mirror.file("number 7 ")
        path.write_text(path.read_text().replace("red", "green"))
        mirror.file("number 8 ").unlink()
        unchanged = {str(each.relative_to(tmp_path)) for each in mirror.files() if each != path}
        read = _record_calls(monkeypatch, MirrorFolder, "read")
        await mirror.sync()
        assert str(path.relative_to(tmp_path)) in read
        assert not unchanged & set(read)
        assert _index(tmp_path) == _bodies(mirror)


@pytest.mark.parametrize("text", ["", '[\n{"path": 1},\n{"id": "a"},\n7\n]\n', "\udcff"])
async def test_an_unreadable_index_is_rebuilt(tmp_path: Path, text: str) -> None:
    async with mirrored_service(tmp_path) as mirror:
        await _facts(mirror, 3)
        (tmp_path / "memory_index.json").write_bytes(text.encode(errors="surrogateescape"))
        await mirror.add("The bike is red")
        await mirror.sync()
        assert _index(tmp_path) == _bodies(mirror)


async def test_the_index_of_a_large_folder_is_updated_by_a_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "MAX_EAGER_MEMORIES", 1)
    monkeypatch.setattr(running, "MAX_MEMORIES_AT_STOP", 1)
    async with mirrored_service(tmp_path) as mirror:
        await _facts(mirror, 3)
    async with watched(tmp_path) as mirror:
        await mirror.add("The bike is red")
        mirror.file("number 2").unlink()
    assert not any("bike" in words for words in _index(tmp_path).values())
    async with mirrored_service(tmp_path) as mirror:
        await mirror.sync()
        assert sorted(_index(tmp_path).values()) == sorted(await mirror.words())
        before = (tmp_path / "memory_index.json").stat()
        await mirror.sync()
        assert (tmp_path / "memory_index.json").stat() == before
        (tmp_path / "memory_index.json").unlink()
        await mirror.sync()
        assert sorted(_index(tmp_path).values()) == sorted(await mirror.words())
