"""The git history of the files: a commit for each change, and erasure from all commits."""

from __future__ import annotations

import subprocess
import zlib
from pathlib import Path

import pytest

from recollect.mirror import git as module
from recollect.model.erasure import ErasureRequest, Receipt, StoreErasure, Target
from recollect.model.scope import Scope
from tests.support.mirror_samples import BY, HOME, MirroredService, body, mirrored_service, until, watched

CANARY = "qvzkanaribu"


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=True)
    return done.stdout.decode(errors="replace").strip()


def holders(root: Path, needle: str = CANARY) -> set[str]:
    """Return the files that contain a word, also in objects that git has packed."""
    results = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and _holds(path, needle)}
    objects = git(root, "cat-file", "--batch-all-objects", "--batch")
    return results | ({"a version"} if needle in objects else set())


def _holds(path: Path, needle: str) -> bool:
    data = path.read_bytes()
    try:
        data += zlib.decompress(data)
    except zlib.error:
        pass
    return needle.encode() in data


def mirrored(receipt: Receipt) -> StoreErasure:
    [cleared] = [store for store in receipt.stores if store.store == "mirror"]
    return cleared


@pytest.fixture
async def mirror(tmp_path: Path) -> MirroredService:  # type: ignore[misc]
    async with mirrored_service(tmp_path / "home", mirror_git=True) as opened:
        yield opened


async def test_each_change_is_a_commit_with_a_message(mirror: MirroredService) -> None:
    fact = await mirror.add("The bike is red")
    await mirror.sync()
    await mirror.service.update(HOME, fact.id, {"content": "The bike is blue"}, by=BY)
    await mirror.sync()
    path = mirror.file("blue")
    path.write_text(path.read_text().replace("blue", "green"))
    await mirror.sync()
    path.unlink()
    await mirror.sync()
    assert git(mirror.root, "log", "--format=%s").splitlines() == [
        "Write 1 tombstone; remove 1 fact (1 deleted by hand)",
        "Write 1 fact (1 edited by hand)",
        "Write 1 fact",
        "Write 1 fact",
    ]
    assert "bike" not in git(mirror.root, "log", "--format=%B")
    assert "The bike is blue" in git(mirror.root, "show", f"HEAD~2:{path.relative_to(mirror.root)}")
    assert git(mirror.root, "status", "--porcelain") == ""


async def test_only_memory_files_are_versioned(mirror: MirroredService) -> None:
    (mirror.root / "config.toml").write_text("llm_api_key = 'x'")
    await mirror.add("The bike is red")
    await mirror.add("The car is blue", Scope("ann"))
    await mirror.sync()
    assert {path.split("/")[0] for path in git(mirror.root, "ls-files").splitlines()} == {"entries", "users"}
    git(mirror.root, "add", ".")
    assert git(mirror.root, "status", "--porcelain") == ""


async def test_a_batch_is_one_commit_in_a_watched_folder(tmp_path: Path) -> None:
    async with watched(tmp_path, mirror_git=True) as mirror:
        await mirror.add("The bike is red")
        await until(mirror.files)
        for n in range(10):
            (tmp_path / f"entries/default/facts/{n}.md").write_text(f"fact number {n}")

        async def all_there() -> bool:
            return len(await mirror.words()) == 11

        await until(all_there)
    assert git(tmp_path, "status", "--porcelain") == ""
    assert 2 <= len(git(tmp_path, "log", "--format=%h").split()) <= 6


async def test_edits_made_while_no_process_mirrors_are_committed_at_the_next_start(tmp_path: Path) -> None:
    async with mirrored_service(tmp_path, mirror_git=True) as mirror:
        await mirror.add("The bike is red")
        await mirror.sync()
        path = mirror.file("red")
    path.write_text(path.read_text().replace("red", "green"))
    async with mirrored_service(tmp_path, mirror_git=True) as mirror:
        await mirror.sync()
        assert (await mirror.words(), git(tmp_path, "status", "--porcelain")) == ({"The bike is green"}, "")


async def test_git_settings_and_hooks_of_the_user_are_ignored(
    mirror: MirroredService, monkeypatch: pytest.MonkeyPatch
) -> None:
    await mirror.sync()
    hook = mirror.root / ".git/hooks/post-commit"
    hook.write_text("#!/bin/sh\ntouch owned\n")
    hook.chmod(0o755)
    (mirror.root / ".gitconfig").write_text("[user]\n\tname = Somebody Else\n[commit]\n\tgpgSign = true\n")
    monkeypatch.setenv("GIT_DIR", str(mirror.root / "elsewhere"))
    await mirror.add("The bike is red")
    await mirror.sync()
    monkeypatch.delenv("GIT_DIR")
    assert git(mirror.root, "log", "--format=%an") == "Recollect"
    assert not (mirror.root / "owned").exists()


async def fill(mirror: MirroredService) -> tuple[str, str]:
    """Write a canary into several files and versions; return the ids of its fact and its turn."""
    messages = [{"role": "user", "content": f"The {CANARY} is mine"}, {"role": "assistant", "content": "Fine"}]
    turns = (await mirror.service.remember(HOME, messages, by=BY)).turns
    fact = await mirror.add(f"The {CANARY} is red", evidence=[turns[0].id])
    await mirror.add("The bike is red")
    await mirror.add("Of someone else", Scope("ann"))
    await mirror.sync()
    for colour in ("green", "blue"):
        path = mirror.file(fact.id) if colour == "green" else mirror.root / "entries/default/facts/renamed.md"
        path.write_text(path.read_text().replace("red", colour).replace("green", colour))
        if colour == "green":
            path.rename(path.with_name("renamed.md"))
        await mirror.service.update(HOME, fact.id, {"importance": 0.7 if colour == "green" else 0.8}, by=BY)
        await mirror.sync()
    summary = mirror.root / "entries/default/summaries/summary.md"
    summary.parent.mkdir(parents=True)
    for n in range(2):
        text = f"---\ndetail: {{turn_start: 1, turn_end: 2}}\n---\nThey talked of the {CANARY} {n}"
        summary.write_text(text)
        await mirror.sync()
    return fact.id, turns[0].id


async def test_erasing_a_user_removes_the_name_from_disk(mirror: MirroredService) -> None:
    name = f"someone/{CANARY}"
    await mirror.add("The bike is red", Scope(name))
    await mirror.sync()
    assert holders(mirror.root)
    await mirror.service.erasure.erase(Scope(name), ErasureRequest(Target.USER), by=BY)
    await mirror.sync()
    assert holders(mirror.root) == set()
    assert not list((mirror.root / "users").iterdir())


@pytest.mark.parametrize("what", ["turn", "session", "project", "user"])
async def test_an_erasure_removes_text_from_files_snapshot_and_git_history(
    mirror: MirroredService, what: str
) -> None:
    _, turn = await fill(mirror)
    assert holders(mirror.root)
    before = git(mirror.root, "log", "--format=%s").splitlines()
    target = Target(what)
    scope = {
        "turn": Scope("default"),
        "session": HOME,
        "project": Scope("default", "default"),
        "user": Scope("default"),
    }[what]
    receipt = await mirror.service.erasure.erase(scope, ErasureRequest(target, turn if what == "turn" else ""), by=BY)
    cleared = mirrored(receipt)
    assert cleared.reached
    assert cleared.counts["files"] >= 2
    assert cleared.counts["commits"] >= 3
    assert holders(mirror.root) == set()
    await mirror.sync()
    assert holders(mirror.root) == set()
    assert await mirror.words("ann") == {"Of someone else"}
    assert [body(path) for path in mirror.files("users/ann/entries/**/*.md")] == ["Of someone else"]
    if what == "turn":
        assert await mirror.words() == {"The bike is red", "Fine"}
    # The history of everything else is unchanged.
    assert len(git(mirror.root, "log", "--format=%s").splitlines()) >= len(before)
    assert git(mirror.root, "fsck", "--full") == ""
    assert git(mirror.root, "status", "--porcelain") == ""


async def test_an_erased_file_that_is_copied_back_is_rejected(mirror: MirroredService) -> None:
    fact = await mirror.add(f"The {CANARY} is red")
    await mirror.sync()
    path = mirror.file(CANARY)
    text = path.read_text()
    await mirror.service.erasure.erase(HOME, ErasureRequest(Target.MEMORY, fact.id), by=BY)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    await mirror.sync()
    assert not await mirror.words()
    assert "erased" in mirror.rejected()[path.name]


async def test_the_mirroring_server_removes_files_that_another_process_erases(tmp_path: Path) -> None:
    async with watched(tmp_path, mirror_git=True) as server, mirrored_service(tmp_path, mirror_git=True) as other:
        fact = await server.add(f"The {CANARY} is red")
        await until(server.files)
        receipt = await other.service.erasure.erase(HOME, ErasureRequest(Target.MEMORY, fact.id), by=BY)
        assert mirrored(receipt).reached
        assert "by the process" in mirrored(receipt).note
        assert not server.files()


async def test_erasing_a_memory_removes_its_conflict_file(mirror: MirroredService) -> None:
    fact = await mirror.add("The bike is red")
    await mirror.sync()
    path = mirror.file("red")
    path.write_text(path.read_text().replace("red", "green"))
    await mirror.service.update(HOME, fact.id, {"content": f"The bike is {CANARY}"}, by=BY)
    await mirror.sync()
    assert mirror.conflicts()
    await mirror.service.erasure.erase(HOME, ErasureRequest(Target.MEMORY, fact.id), by=BY)
    assert not mirror.conflicts()
    assert holders(mirror.root) == set()


def test_an_interrupted_rewrite_of_history_is_finished_or_rolled_back(tmp_path: Path) -> None:
    repository = module.GitRepository(tmp_path)
    (tmp_path / "entries").mkdir()
    (tmp_path / "entries/a.md").write_text("one")
    repository.initialize()
    head = repository.head()
    # Interrupted between the two renames.
    (tmp_path / ".git").rename(tmp_path / ".git.old")
    repository.initialize()
    assert repository.head() == head
    (tmp_path / ".git").rename(tmp_path / ".git.new")
    (tmp_path / ".git.new/complete").touch()
    (tmp_path / ".git.old").mkdir()
    repository.initialize()
    assert repository.head() == head
    assert not list(tmp_path.glob(".git.*"))


async def test_files_are_mirrored_without_git_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    async with mirrored_service(tmp_path, mirror_git=True) as mirror:
        await mirror.add("The bike is red")
        await mirror.sync()
        assert mirror.files()
        assert "mirror_git = false" in caplog.text
