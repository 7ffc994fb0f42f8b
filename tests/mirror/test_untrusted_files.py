"""Untrusted files: odd names, hostile front matter, secrets, symbolic links."""

from __future__ import annotations

import os
import shutil
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from recollect.errors import InvalidInput
from recollect.mirror.folder import FileChanged, MirrorFolder
from recollect.mirror.layout import parse_location, safe_name, tombstone_path
from recollect.model.scope import Scope
from recollect.text.front_matter import join_front_matter, split_front_matter
from tests.support.mirror_samples import BY, HOME, body, front_matter, lose_ledger, mirrored_service, until, watched

ODD_IDS = [
    *". .. deleted DELETED team/a team_a team\\a CON con.txt nul com1 a. ~ / // ../../etc/passwd .hidden -rf".split(),
    *"a:b a*b a\u200bb é e\u0301 😀 users entries team_a~b2b53934941f522e %2e%2e".split(),
    *(" ", "a b", "a  b", "x" * 300, "x" * 299, "日" * 300),
]
BOMB = "\n".join([f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" if n else "a0: &a0 [x]" for n in range(9)])
HOSTILE = {
    "python": ("made: !!python/object/apply:os.system ['touch /tmp/owned']", "tag"),
    "bomb": (BOMB, "alias"),
    "deep": ("deep: " + "[" * 5000 + "]" * 5000, "levels deep"),
    "deep names": ("deep: " + "{a: " * 5000 + "1" + "}" * 5000, "levels deep"),
    "twice": ("id: one\nid: two", "twice"),
    "norway": ("name: no", "quotes"),
    "number": ("id: 12", "quotes"),
    "stranger": ("user_id: bob", "another user"),
    "merge": ("<<: {id: x}", "<<"),
    "list": ("- a\n- b", "not names"),
    "broken": ("id: [", "not YAML"),
    "role": ("role: system", "role"),
    "time": ("created_at: yesterday", "time"),
    "unknown level": ("level: galaxy", "level"),
    "control": ('id: "a\\u0007b"', "control character"),
    "nul": ('tags: ["a\\0b"]', "control character"),
    "wide": ("\n".join(f"a{n}: 1" for n in range(20_001)), "parts"),
    "long": (f"a: {'x' * 600_000}", "characters long"),
    "share": ("importance: 7", "importance"),
    "date": ("a: 2026-99-99", "cannot be read"),
}


def test_different_ids_have_different_safe_names() -> None:
    names = {id: safe_name(id) for id in ODD_IDS}
    assert len(set(names.values())) == len(ODD_IDS)
    for name in names.values():
        assert not {"/", "\\", "\0", ":"} & set(name)
        assert not name.startswith(".")
        assert 0 < len(name.encode()) <= 200
        assert name.partition(".")[0].lower() not in ("con", "nul", "com1", "deleted")


async def test_odd_users_and_conversations_have_separate_folders(tmp_path: Path) -> None:
    root = tmp_path / "home"
    users = [id for id in ODD_IDS if id.strip()]
    async with mirrored_service(root) as mirror:
        for id in users:
            await mirror.add(f"of user {id}", Scope(id))
            await mirror.add(f"of project {id}", Scope("default", id))
        await mirror.sync()
        assert len(list(root.glob("users/*"))) == len(users)
        assert len(list(root.glob("entries/*"))) == len(users)
        assert os.listdir(tmp_path) == ["home"]
    lose_ledger(root)
    async with mirrored_service(root) as mirror:
        await mirror.sync()
        for id in users:
            assert len(await mirror.words(id)) == 1
        assert {record.scope.project for record in await mirror.all()} == set(users)


async def test_invalid_files_are_left_in_place_and_reported(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        facts = tmp_path / "entries/default/facts"
        facts.mkdir(parents=True)
        texts = {
            facts / f"{kind}.md": f"---\n{block}\n---\nwords of {kind}\n" for kind, (block, _) in HOSTILE.items()
        }
        for path, text in texts.items():
            path.write_text(text)
        (facts / "good.md").write_text("The bike is red")
        done = await mirror.sync()
        assert (done.bad, await mirror.words()) == (len(HOSTILE), {"The bike is red"})
        rejected = mirror.rejected()
        assert [kind for kind, (_, reason) in HOSTILE.items() if reason not in rejected[f"{kind}.md"]] == []
        assert {path: path.read_text() for path in texts} == texts
        # They are read again only after they change.
        assert (await mirror.sync()).bad == 0
        for path in texts:
            path.write_text(f"words of {path.stem}")
        await mirror.sync()
        assert not mirror.rejected()
        assert await mirror.words() == {"The bike is red", *(f"words of {kind}" for kind in HOSTILE)}


async def test_a_memory_is_unchanged_while_its_file_is_invalid(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        fact = await mirror.add("The bike is red")
        await mirror.sync()
        path = mirror.file("red")
        path.write_text("---\nid: x\nid: y\n---\nThe bike is green")
        await mirror.sync()
        assert (await mirror.record(fact.id)).content == "The bike is red"
        # A later change of the ledger does not overwrite the edit.
        await mirror.service.update(HOME, fact.id, {"content": "The bike is blue"}, by=BY)
        await mirror.sync()
        assert "green" in path.read_text()


async def test_the_watcher_continues_after_an_invalid_file(tmp_path: Path) -> None:
    async with watched(tmp_path) as mirror:
        facts = tmp_path / "entries/default/facts"
        facts.mkdir(parents=True)
        (facts / "bad.md").write_text(f"---\n{BOMB}\n---\nx")
        (facts / "binary.md").write_bytes(b"\xff\xfe\x00")
        (facts / "huge.md").write_bytes(b"x" * (3 << 20))
        await until(lambda: len(mirror.rejected()) == 3)
        (facts / "good.md").write_text("The bike is red")
        await until(mirror.words)
        assert "UTF-8" in mirror.rejected()["binary.md"]
        assert "limit" in mirror.rejected()["huge.md"]


async def test_the_folder_determines_the_user(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        theirs = await mirror.add("The bike is red")
        facts = tmp_path / "users/bob/entries/default/facts"
        facts.mkdir(parents=True)
        # The id of another user's memory gives no access to it.
        (facts / "a.md").write_text(f"---\nid: {theirs.id}\n---\nThe bike is stolen")
        (facts / "b.md").write_text("---\nuser_id: default\n---\nclaimed")
        await mirror.sync()
        assert (await mirror.record(theirs.id)).content == "The bike is red"
        assert await mirror.words("bob") == {"The bike is stolen"}
        assert "another user" in mirror.rejected()["b.md"]


async def test_files_in_a_folder_without_a_valid_user_are_rejected(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        for name in ("team a", "deleted", "default"):
            facts = tmp_path / f"users/{name}/entries/default/facts"
            facts.mkdir(parents=True)
            (facts / f"{name}.md").write_text("claimed")
        forged = tmp_path / "users/bob~0000000000000000"
        (forged / "entries/x/facts").mkdir(parents=True)
        (forged / ".user").write_text("default")
        (forged / "entries/x/facts/forged.md").write_text("claimed")
        await mirror.sync()
        assert set(mirror.rejected()) == {"team a.md", "deleted.md", "default.md", "forged.md"}
        assert await mirror.service.users() == []


async def test_symbolic_links_are_never_followed(tmp_path: Path) -> None:
    root, outside = tmp_path / "home", tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("the secret of the house")
    async with mirrored_service(root) as mirror:
        fact = await mirror.add("The bike is red")
        await mirror.sync()
        facts = root / "entries/default/facts"
        (facts / "link.md").symlink_to(outside / "secret.md")
        (root / "entries/trip").symlink_to(outside)
        (facts / "pipe.md").parent.mkdir(exist_ok=True)
        os.mkfifo(facts / "pipe.md")
        await mirror.sync()
        assert await mirror.words() == {"The bike is red"}
        assert "symbolic link" in mirror.rejected()["link.md"]
        assert "plain file" in mirror.rejected()["pipe.md"]
        # Nothing is written through a link either.
        await mirror.add("I sail", Scope("default", "trip"))
        path = mirror.file("red")
        path.unlink()
        path.symlink_to(outside / "secret.md")
        await mirror.service.update(HOME, fact.id, {"content": "The bike is blue"}, by=BY)
        await mirror.sync()
        assert any("cannot be written" in reason for reason in mirror.rejected().values())
        assert [each.name for each in outside.iterdir()] == ["secret.md"]
        assert (outside / "secret.md").read_text() == "the secret of the house"


async def test_secrets_are_removed_from_the_memory_and_the_file(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        fact = await mirror.add("The bike is red")
        await mirror.sync()
        path = mirror.file("red")
        path.write_text(path.read_text().replace("red", "red, my password is hunter2hunter2"))
        note = path.with_name("note.md")
        note.write_text("The key is sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD")
        await mirror.sync()
        assert "hunter2" not in (await mirror.record(fact.id)).content
        for each in (path, note):
            assert "hunter2" not in each.read_text()
            assert "sk-proj" not in each.read_text()


async def test_invisible_characters_are_removed(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        facts = tmp_path / "entries/default/facts"
        facts.mkdir(parents=True)
        (facts / "a.md").write_text("The bike\U000e0041\U000e0042\u200b is red")
        (facts / "empty.md").write_text("\u200b\u200b")
        await mirror.sync()
        assert await mirror.words() == {"The bike is red"}
        assert body(facts / "a.md") == "The bike is red"
        assert "empty" in mirror.rejected()["empty.md"]


async def test_a_text_above_the_limit_is_rejected(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        facts = tmp_path / "entries/default/facts"
        facts.mkdir(parents=True)
        (facts / "long.md").write_text("word " * 300_000)
        await mirror.sync()
        assert "limit" in mirror.rejected()["long.md"]


@pytest.mark.parametrize("text", ["---\nid: x\n", "no front matter", "---\n---\n", "---\nid: x\n---\nwords"])
def test_front_matter_is_parsed_or_rejected(text: str) -> None:
    if text == "---\nid: x\n":
        with pytest.raises(InvalidInput, match="no end"):
            split_front_matter(text)
    else:
        fields, _ = split_front_matter(text)
        assert fields in ({}, {"id": "x"})


def test_line_endings_and_byte_order_marks_of_windows_editors_are_accepted() -> None:
    text = join_front_matter({"id": "x", "name": "no"}, "two\nlines")
    assert (
        split_front_matter("\ufeff" + text.replace("\n", "\r\n"))
        == split_front_matter(text)
        == ({"id": "x", "name": "no"}, "two\nlines")
    )


def test_paths_determine_tombstones_and_memory_files() -> None:
    assert tombstone_path("entries/a/facts/x.md") == "entries/deleted/a/facts/x.md"
    assert tombstone_path("users/entries/entries/a/facts/x.md") == "users/entries/entries/deleted/a/facts/x.md"
    for path in ("x.md", "entries/a/facts/.x.md", "entries/a/facts/4913", "entries/a/x.md~", "entries/.git/x.md", ""):
        assert parse_location(path) is None


def test_a_changed_file_is_not_overwritten(tmp_path: Path) -> None:
    folder = MirrorFolder(tmp_path)
    seen = folder.write("a/b.md", b"one", expected="")
    (tmp_path / "a/b.md").write_bytes(b"two")
    for stamp in (seen, ""):
        with pytest.raises(FileChanged):
            folder.write("a/b.md", b"three", expected=stamp)
    assert (tmp_path / "a/b.md").read_bytes() == b"two"
    assert os.listdir(tmp_path / "a") == ["b.md"]


def test_an_edit_at_the_moment_of_writing_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = MirrorFolder(tmp_path)
    seen = folder.write("a.md", b"one", expected="")
    stat = os.stat

    def edited_just_after(path: Any, **options: Any) -> os.stat_result:
        result = stat(path, **options)
        if path == "a.md":
            monkeypatch.undo()
            (tmp_path / "new").write_bytes(b"a person's")
            os.rename(tmp_path / "new", tmp_path / "a.md")
        return result

    monkeypatch.setattr(os, "stat", edited_just_after)
    with pytest.raises(FileChanged):
        folder.write("a.md", b"ours", expected=seen)
    assert (tmp_path / "a.md").read_bytes() == b"a person's"


@pytest.mark.parametrize("path", ["../x.md", "a/../../x.md", "/x.md", "a//x.md", "..", ""])
def test_paths_outside_the_folder_are_rejected(tmp_path: Path, path: str) -> None:
    folder = MirrorFolder(tmp_path / "home")
    with pytest.raises(InvalidInput):
        folder.write(path, b"x", expected="")
    assert list(tmp_path.rglob("*.md")) == []


async def test_an_edited_turn_keeps_its_position(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        await mirror.service.remember(HOME, [{"role": "user", "content": "I live in Oslo"}], by=BY)
        await mirror.sync()
        path = mirror.file("Oslo")
        path.write_text(path.read_text().replace("Oslo", "Rome"))
        await mirror.sync()
        [turn] = await mirror.service.turns(HOME)
        assert (turn.content, turn.position, front_matter(path)["position"]) == ("I live in Rome", 1, 1)


def test_an_edit_at_the_moment_of_the_rename_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = MirrorFolder(tmp_path)
    unlink = os.unlink

    def unlink_then_edit(name: str, **place: Any) -> None:
        unlink(name, **place)
        (tmp_path / "note.md").write_text("what a person wrote")

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", unlink_then_edit)
        stamp = folder.write("note.md", b"what we wrote", expected="")
    assert (tmp_path / "note.md").read_text() == "what a person wrote"
    assert stamp != folder.stamp("note.md")
    (tmp_path / "note.md").unlink()
    assert folder.write("note.md", b"what we wrote", expected="") == folder.stamp("note.md")


# Pairs that a file system may take for one name: by case, and by the form of a letter with an accent.
ALIKE_USERS = ["Ann", "ann", "ANN", "Jos\u00e9", "Jose\u0301", "jos\u00e9", "straße", "STRASSE", "strasse"]


def fold(name: str) -> str:
    """Return what a file system that ignores case and Unicode forms compares."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


async def test_users_whose_names_differ_in_case_or_unicode_form_have_separate_folders(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        for id in ALIKE_USERS:
            await mirror.add(f"of user {id}", Scope(id))
            await mirror.add(f"of project {id}", Scope("default", id))
        await mirror.sync()
        for folder in ("users", "entries"):
            names = os.listdir(tmp_path / folder)
            assert len({fold(name) for name in names}) == len(names) == len(ALIKE_USERS)
    lose_ledger(tmp_path)
    async with mirrored_service(tmp_path) as mirror:
        await mirror.sync()
        for id in ALIKE_USERS:
            assert await mirror.words(id) == {f"of user {id}"}


async def test_a_folder_of_an_earlier_version_stays_in_use(tmp_path: Path) -> None:
    """Earlier versions named the folder of Ann "Ann", without a file that names her."""
    async with mirrored_service(tmp_path) as mirror:
        await mirror.add("likes tea", Scope("Ann"))
        await mirror.sync()
        [folder] = (tmp_path / "users").iterdir()
        (folder / ".user").unlink()
        folder.rename(tmp_path / "users/Ann")
    shutil.rmtree(tmp_path / ".recollect")
    async with mirrored_service(tmp_path) as mirror:
        await mirror.sync()
        await mirror.add("likes coffee", Scope("Ann"))
        await mirror.add("likes milk", Scope("ann"))
        await mirror.sync()
        assert await mirror.words("Ann") == {"likes coffee", "likes tea"}
        assert len(list((tmp_path / "users/Ann").glob("entries/*/facts/*.md"))) == 2
        assert fold("Ann") not in {fold(name) for name in os.listdir(tmp_path / "users") if name != "Ann"}
        assert not (await mirror.sync()).written


async def test_a_user_cannot_take_the_folder_of_another(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        await mirror.add("likes tea", Scope("Ann"))
        await mirror.sync()
        [name] = os.listdir(tmp_path / "users")
        await mirror.add("likes milk", Scope(name))
        await mirror.sync()
        assert len(os.listdir(tmp_path / "users")) == 2


async def test_hard_links_to_files_elsewhere_are_rejected(tmp_path: Path) -> None:
    root, secret = tmp_path / "home", tmp_path / "secret.md"
    secret.write_text("The safe opens with 4711\n")
    async with mirrored_service(root) as mirror:
        await mirror.add("likes tea")
        await mirror.sync()
        [own] = mirror.files()
        os.link(secret, own.parent / "linked.md")
        # A backup may link to a file of the mirror.
        os.link(own, tmp_path / "backup.md")
        own.write_text(own.read_text().replace("tea", "green tea"))
        done = await mirror.sync()
        assert (done.bad, done.edited, await mirror.words()) == (1, 1, {"likes green tea"})
        assert secret.read_text() == "The safe opens with 4711\n"


async def test_front_matter_lowers_trust_and_never_raises_it(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path) as mirror:
        [low, high] = [
            (await mirror.add(text, trust=trust)).record.id
            for text, trust in (("likes tea", "low"), ("likes milk", "high"))
        ]
        await mirror.sync()
        for path in mirror.files():
            text = path.read_text()
            assert ("trust: low" in text) == ("tea" in text)
            claim = "trust: high" if "tea" in text else "trust: low"
            path.write_text(text.replace("trust: low\n", "").replace("---\n", f"---\n{claim}\n", 1))
        await mirror.sync()
        trust = {record.id: str(record.trust) for record in await mirror.all()}
        assert trust == {low: "low", high: "low"}
