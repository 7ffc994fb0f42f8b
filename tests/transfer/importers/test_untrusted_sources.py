"""Malicious sources: no access outside them, limited sizes, valid records are imported."""

from __future__ import annotations

import json
import os
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import tests.support.importer_samples as samples
from recollect import Memory
from recollect.errors import InvalidInput, UpstreamUnavailable
from recollect.testing.fake_embedder import FakeEmbedder
from recollect.transfer.importers import source as sources
from recollect.transfer.importers.source import ImportSource


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(home=tmp_path / "home", embedder=FakeEmbedder(16)) as memory:
        yield memory


def test_entries_outside_an_archive_are_skipped(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("- The key is under the mat\n")
    link = zipfile.ZipInfo("link.md")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "notes.zip", "w") as archive:
        archive.writestr("good.md", "- Likes tea")
        archive.writestr("../secret.md", "- Likes rain")
        archive.writestr("/etc/notes.md", "- Likes rain")
        archive.writestr("C:\\notes.md", "- Likes rain")
        archive.writestr(link, str(tmp_path / "secret.md"))
    before = sorted(os.listdir(tmp_path))
    moved = memory.admin.import_from(tmp_path / "notes.zip", user_id="alex")
    assert moved.left == {"its name points outside the archive": 3, "a link is not followed": 1}
    assert moved.refused == 4
    assert [line["memory"] for line in memory.export()] == ["Likes tea"]
    assert sorted(os.listdir(tmp_path)) == before


def test_links_in_a_folder_are_skipped(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("- The key is under the mat\n")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "secret.md").write_text("- The key is under the mat\n")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "good.md").write_text("- Likes tea\n")
    (tmp_path / "notes" / "file.md").symlink_to(tmp_path / "secret.md")
    (tmp_path / "notes" / "folder").symlink_to(tmp_path / "deep", target_is_directory=True)
    moved = memory.admin.import_from(tmp_path / "notes", user_id="alex")
    assert moved.left == {"a link is not followed": 2}
    assert [line["memory"] for line in memory.export()] == ["Likes tea"]


def test_a_file_replaced_by_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("- The key is under the mat\n")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "good.md").write_text("- Likes tea\n")
    source = ImportSource(str(tmp_path / "notes"))
    assert source.names == ["good.md"]
    (tmp_path / "notes" / "good.md").unlink()
    (tmp_path / "notes" / "good.md").symlink_to(tmp_path / "secret.md")
    with pytest.raises(InvalidInput):
        source.text("good.md")


def test_a_zip_bomb_is_skipped(memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.md", b"a" * (32 << 20))
        archive.writestr("good.md", "- Likes tea")
    moved = memory.admin.import_from(tmp_path / "bomb.zip", user_id="alex")
    assert moved.left == {"its compression ratio is that of a zip bomb": 1}
    assert moved.added == 1
    monkeypatch.setattr(sources, "MAX_BYTES", 1000)
    with pytest.raises(InvalidInput, match="larger than"):
        memory.admin.import_from(tmp_path / "bomb.zip", user_id="alex")


def test_an_entry_larger_than_declared_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "lie.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("notes.md", b"- Likes tea\n" * 1000)
    data = path.read_bytes()
    size = (12_000).to_bytes(4, "little")
    assert data.count(size) == 2
    path.write_bytes(data.replace(size, (12).to_bytes(4, "little")))
    with pytest.raises(InvalidInput, match="cannot be read"):
        ImportSource(str(path)).text("notes.md")


def test_invalid_json_is_reported(memory: Memory, tmp_path: Path) -> None:
    deep = '{"namespace": ["memories", "alex"], "key": "k", "value": ' + "[" * 100_000 + "]" * 100_000 + "}\n"
    good = {"namespace": ["memories", "alex"], "key": "g", "value": {"text": "Likes tea"}}
    (tmp_path / "items.jsonl").write_text(json.dumps(good) + "\n" + deep + '{"half\n' + "\n")
    moved = memory.admin.import_from(tmp_path / "items.jsonl", of=["alex"])
    assert moved.left == {"nested too deep": 1, "not JSON": 1}
    assert moved.added == 1
    (tmp_path / "deep.af").write_text("[" * 100_000)
    assert "nested too deep" in next(iter(memory.admin.import_from(tmp_path / "deep.af", user_id="alex").left))


def test_a_cyclic_tree_is_reported(memory: Memory, tmp_path: Path) -> None:
    talk = samples.chatgpt_talk("one")
    talk["mapping"]["root"]["parent"] = "answer"
    source = samples.chatgpt_zip(tmp_path / "export.zip", [talk, samples.chatgpt_talk("two")])
    moved = memory.admin.import_from(source, user_id="alex")
    assert moved.turns == 2
    assert any("circle" in why for why in moved.left)


def test_yaml_runs_no_code_and_expands_no_aliases(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    for name, head in {
        "runs.md": f"x: !!python/object/apply:pathlib.Path.touch [{tmp_path / 'ran'}]",
        "laughs.md": "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]",
        "list.md": "- 1",
        "deep.md": "x: " + "[" * 30_000 + "]" * 30_000,
    }.items():
        (tmp_path / "notes" / name).write_text(f"---\n{head}\n---\n- Likes tea\n")
    (tmp_path / "notes" / "open.md").write_text("---\nx: 1\n")
    moved = memory.admin.import_from(tmp_path / "notes", user_id="alex")
    assert moved.added == 0
    assert sum(moved.left.values()) == 5
    assert not (tmp_path / "ran").exists()


def test_an_invalid_record_is_skipped_and_named(memory: Memory, tmp_path: Path) -> None:
    def item(key: str, text: object, at: object = "2026-01-01T00:00:00Z") -> str:
        report = {"namespace": ["memories", "alex"], "key": key, "value": {"text": text}, "created_at": at}
        return json.dumps(report) + "\n"

    lines = (
        item("a", "Likes tea") + item("b", "x" * (2 << 20)) + item("c", "half \ud800") + item("d", "When", "never")
    )
    (tmp_path / "items.jsonl").write_text(lines + item("e", "Likes rye"))
    moved = memory.admin.import_from(tmp_path / "items.jsonl", of=["alex"])
    assert (moved.added, moved.refused) == (2, 3)
    assert [each.where for each in moved.named] == [f"items.jsonl, line {n}" for n in (2, 3, 4)]


def test_a_source_is_not_modified(memory: Memory, tmp_path: Path) -> None:
    folder = tmp_path / "mem0"
    folder.mkdir()
    samples.mem0_folder(folder, "chroma")
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    memory.admin.import_from(folder, everyone=True)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == files


def test_an_unreachable_address_is_reported(memory: Memory) -> None:
    with pytest.raises(UpstreamUnavailable, match="does not answer"):
        memory.admin.import_from("http://127.0.0.1:9", of=["alex"])
