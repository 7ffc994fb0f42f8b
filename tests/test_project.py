"""Projects by folder: remotes, worktrees, submodules, plain folders, and places that are no project."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from recollect.model.scope import Scope
from recollect.project import find_project


def git(folder: Path, *arguments: str) -> None:
    config = "-c user.name=a -c user.email=a@b.c -c protocol.file.allow=always".split()
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *config, *arguments], cwd=folder, check=True, capture_output=True, env=environ)


def make_repository(folder: Path, remote: str = "") -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    git(folder, "symbolic-ref", "HEAD", "refs/heads/main")
    git(folder, "commit", "-q", "--allow-empty", "-m", "start")
    if remote:
        git(folder, "remote", "add", "origin", remote)
    return folder


def project_id(folder: Path, **environ: str) -> str:
    return find_project(folder, {"HOME": "/nowhere", **environ}).id


@pytest.mark.parametrize(
    ("remote", "expected"),
    [
        ("https://github.com/Owner/Name.git", "github.com/owner/name"),
        ("https://github.com/owner/name/", "github.com/owner/name"),
        ("https://alex:secret@github.com:8443/owner/name.git", "github.com/owner/name"),
        ("https://token@github.com/owner/name", "github.com/owner/name"),
        ("git@github.com:owner/name.git", "github.com/owner/name"),
        ("github.com:owner/name", "github.com/owner/name"),
        ("ssh://git@github.com:22/owner/name.git", "github.com/owner/name"),
        ("ssh://git@github.com/~owner/name.git", "github.com/~owner/name"),
        ("git://host/group/sub/name.git/", "host/group/sub/name"),
        ("git@[2001:db8::1]:owner/name.git", "[2001:db8::1]/owner/name"),
        ("git@host:/absolute/name.git", "host/absolute/name"),
    ],
)
def test_a_remote_is_its_host_and_path(tmp_path: Path, remote: str, expected: str) -> None:
    assert project_id(make_repository(tmp_path / "clone", remote)) == expected


def test_folders_below_the_top_and_all_worktrees_are_the_same_project(tmp_path: Path) -> None:
    main = make_repository(tmp_path / "main", "git@github.com:owner/name.git")
    git(main, "worktree", "add", "-q", "-b", "topic/a", str(tmp_path / "linked"))
    (tmp_path / "linked" / "src").mkdir()
    inside = find_project(tmp_path / "linked" / "src", {"HOME": "/nowhere"})
    assert (inside.id, inside.branch) == ("github.com/owner/name", "topic/a")
    assert find_project(main, {}).branch == "main"


def test_without_a_remote_worktrees_share_the_main_folder(tmp_path: Path) -> None:
    main = make_repository(tmp_path / "main")
    git(main, "worktree", "add", "-q", str(tmp_path / "linked"))
    assert project_id(main) == project_id(tmp_path / "linked") == str(main)


def test_worktrees_of_a_bare_repository_share_it(tmp_path: Path) -> None:
    source = make_repository(tmp_path / "source")
    git(tmp_path, "clone", "-q", "--bare", str(source), "name.git")
    git(tmp_path / "name.git", "remote", "remove", "origin")
    for name in ("one", "two"):
        git(tmp_path / "name.git", "worktree", "add", "-q", "-b", name, str(tmp_path / name))
    assert project_id(tmp_path / "one") == project_id(tmp_path / "two") == str(tmp_path / "name.git")


def test_a_submodule_is_a_project_of_its_own(tmp_path: Path) -> None:
    library = make_repository(tmp_path / "library")
    main = make_repository(tmp_path / "main", "git@github.com:owner/name.git")
    git(main, "submodule", "--quiet", "add", str(library), "vendor/library")
    inside = main / "vendor" / "library"
    # A clone of a local repository is the same project as that repository.
    assert project_id(inside) == str(library)
    git(inside, "remote", "set-url", "origin", "https://github.com/owner/library")
    assert project_id(inside) == "github.com/owner/library"
    git(inside, "remote", "remove", "origin")
    assert project_id(inside) == str(inside)


def test_a_separate_git_directory_belongs_to_its_folder(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    git(tmp_path / "work", "init", "-q", "--separate-git-dir", str(tmp_path / "data"))
    assert project_id(tmp_path / "work") == str(tmp_path / "work")


def test_comments_quotes_and_other_remotes_of_the_configuration_are_read_as_git_does(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "clone")
    (repository / ".git" / "config").write_text(
        '[remote "upstream"]\n\turl = https://github.com/other/name\n'
        '[Remote "origin"] # mine\n\tURL = "https://github.com/owner/name" ; a comment\n'
    )
    assert project_id(repository) == "github.com/owner/name"


def test_a_detached_head_has_no_branch(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "clone")
    git(repository, "checkout", "-q", "--detach")
    assert find_project(repository, {}).branch == ""


def test_the_environment_names_the_project_and_git_the_branch(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "clone", "https://github.com/owner/name")
    project = find_project(repository, {"RECOLLECT_PROJECT": " shop "})
    assert (project.id, project.branch) == ("shop", "main")
    assert project_id(repository, RECOLLECT_PROJECT=" ") == "github.com/owner/name"


def test_a_folder_without_a_repository_is_a_project(tmp_path: Path) -> None:
    assert project_id(tmp_path) == str(tmp_path)
    assert project_id(tmp_path / "missing") == str(tmp_path / "missing")


def test_the_home_folder_and_the_root_are_no_projects(tmp_path: Path) -> None:
    make_repository(tmp_path / "home", "https://github.com/owner/dotfiles")
    below = tmp_path / "home" / "notes"
    below.mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "home")
    assert project_id(tmp_path / "home", HOME=str(tmp_path / "home")) == ""
    assert project_id(tmp_path / "link", HOME=str(tmp_path / "home")) == ""
    assert project_id(Path("/")) == ""
    assert project_id(below, HOME=str(tmp_path / "home")) == str(below)


def test_a_broken_repository_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: ../missing\n")
    assert project_id(tmp_path) == str(tmp_path)
    (tmp_path / ".git").write_bytes(b"\xff\x00")
    assert project_id(tmp_path) == str(tmp_path)


def test_every_id_is_valid(tmp_path: Path) -> None:
    long = [tmp_path / "/".join(["x" * 100] * 4) / name for name in ("a", "b")]
    ids = [project_id(folder) for folder in long]
    assert ids[0] != ids[1]
    assert ids[0] == project_id(long[0])
    odd = project_id(Path(os.fsdecode(bytes(tmp_path) + b"/tab\there\xff")))
    for each in (*ids, odd, project_id(tmp_path, RECOLLECT_PROJECT="a\nb")):
        Scope("alex", each)


def test_the_import_is_light() -> None:
    code = "import sys; before = set(sys.modules); import recollect.project; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"pathlib", "dataclasses", "subprocess", "json", "urllib.parse"} & set(done.stdout.split())
