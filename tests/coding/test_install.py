"""Installers on the configuration files of each client: applied twice, removed, with the entries of others intact."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from recollect import __version__
from recollect.coding import jsonc
from recollect.coding.clients import CLIENTS, InstallTarget, is_own_hook, plugin_folder
from recollect.coding.install import apply_plan, is_installed, plan_install, plan_uninstall
from recollect.errors import InvalidInput

KEY = "rk_" + "k" * 43
# Files as users have them, with comments where the client allows them.
FOREIGN = {
    "claude-code": {
        ".claude.json": '{\n  "numStartups": 41,\n  "mcpServers": {\n    "github": {"type": "http", "url": "https://x/"}\n'
        '  },\n  "projects": {"/work": {"allowedTools": []}}\n}\n',
        ".claude/settings.json": '{\n  "model": "opus",\n  "hooks": {\n    "Stop": [\n      {\n'
        '        "matcher": "",\n'
        '        "hooks": [{"type": "command", "command": "say done"}]\n      }\n    ]\n  }\n}\n',
        ".claude/commands/recall.md": "My own command\n",
    },
    "codex": {
        ".codex/config.toml": '# mine\nmodel = "gpt-5-codex"\n\n[mcp_servers.docs]\ncommand = "docs-server"\n\n'
        '[mcp_servers.docs.env]\nA = "1" # one\n\n[features]\nhooks = true\n',
        ".codex/hooks.json": '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "beep"}]}]}}',
    },
    "gemini": {
        ".gemini/settings.json": '{\n  // looks\n  "ui": {"theme": "GitHub"},\n  "mcpServers": {\n'
        '    "github": {"httpUrl": "https://x/"}, // work\n  },\n}\n',
    },
    "cursor": {
        ".cursor/mcp.json": '{"mcpServers": {"linear": {"url": "https://x/"}}}',
        ".cursor/hooks.json": '{\n  "version": 1,\n  "hooks": {\n    "stop": [{"command": "./done.sh"}],\n'
        '    "beforeSubmitPrompt": [{"command": "./audit.sh"}]\n  }\n}\n',
    },
    "vscode": {
        ".config/Code/User/mcp.json": '{\n\t// servers\n\t"servers": {\n\t\t"x": {"type": "http", "url": "https://x/"},\n'
        '\t},\n\t"inputs": [],\n}\n',
    },
    "claude-desktop": {
        ".config/Claude/claude_desktop_config.json": '{"globalShortcut": "", '
        '"mcpServers": {"files": {"command": "f"}}}',
    },
    "antigravity": {
        ".gemini/config/mcp_config.json": '{\r\n  "mcpServers": {\r\n    "x": {"serverUrl": "y"}\r\n  }\r\n}'
    },
}
EVERY_CLIENT = pytest.mark.parametrize("name", CLIENTS)


def make_target(home: Path, **options: Any) -> InstallTarget:
    return InstallTarget(home=home / "home", folder=home / "repository", program="/opt/bin/recollect", **options)


def write_foreign(home: Path, name: str) -> dict[Path, str]:
    files = {home / "home" / path: text for path, text in FOREIGN[name].items()}
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return files


def snapshot(home: Path) -> dict[str, bytes]:
    """Return all files below a folder, without backups."""
    paths = [path for path in home.rglob("*") if path.is_file() and not path.name.endswith(".recollect-backup")]
    return {str(path.relative_to(home)): path.read_bytes() for path in paths}


def install(name: str, target: InstallTarget) -> int:
    plan = plan_install(CLIENTS[name], target)
    apply_plan(plan)
    return len(plan.changes)


def uninstall(name: str, target: InstallTarget) -> int:
    plan = plan_uninstall(CLIENTS[name], target)
    apply_plan(plan)
    return len(plan.changes)


@pytest.mark.parametrize(
    ("name", "in_project"),
    [
        (name, scope)
        for name, each in CLIENTS.items()
        for scope in (False, True)
        if each.has_project_scope or not scope
    ],
)
def test_nothing_is_left_of_an_installation_in_an_empty_home(tmp_path: Path, name: str, in_project: bool) -> None:
    target = make_target(tmp_path, in_project=in_project)
    (tmp_path / "home").mkdir()
    (tmp_path / "repository").mkdir()
    assert install(name, target) > 0
    assert is_installed(CLIENTS[name], target)
    assert install(name, target) == 0
    assert uninstall(name, target) > 0
    assert not is_installed(CLIENTS[name], target)
    assert snapshot(tmp_path) == {}


@EVERY_CLIENT
def test_entries_of_others_stay_byte_for_byte(tmp_path: Path, name: str) -> None:
    files = write_foreign(tmp_path, name)
    before = snapshot(tmp_path)
    target = make_target(tmp_path)
    assert install(name, target) > 0
    for path, text in files.items():
        after = path.read_bytes().decode()
        # Something is added, but all lines are there and in their order.
        place = 0
        for line in text.splitlines():
            place = after.index(line.rstrip(",]}"), place)
        changed = after != text
        assert path.with_name(path.name + ".recollect-backup").exists() == changed
    first = snapshot(tmp_path)
    assert install(name, target) == 0
    assert snapshot(tmp_path) == first
    assert uninstall(name, target) > 0
    assert snapshot(tmp_path) == before


@EVERY_CLIENT
def test_changed_options_replace_our_entries_only(tmp_path: Path, name: str) -> None:
    write_foreign(tmp_path, name)
    before = snapshot(tmp_path)
    install(name, make_target(tmp_path))
    other = make_target(tmp_path, url="https://memory.example.org")
    assert install(name, other) > 0
    assert b"https://memory.example.org" in b"".join(snapshot(tmp_path).values())
    uninstall(name, make_target(tmp_path))
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("name", ["claude-code", "codex", "gemini", "cursor"])
def test_hooks_can_be_switched_off_and_on(tmp_path: Path, name: str) -> None:
    write_foreign(tmp_path, name)
    before = snapshot(tmp_path)
    target = make_target(tmp_path)
    install(name, target)
    with_hooks = snapshot(tmp_path)
    without = make_target(tmp_path, hooks="off")
    assert install(name, without) == 1
    assert b"hook recall" not in b"".join(snapshot(tmp_path).values())
    assert install(name, without) == 0
    assert install(name, target) == 1
    assert snapshot(tmp_path) == with_hooks
    uninstall(name, target)
    assert snapshot(tmp_path) == before


@EVERY_CLIENT
def test_the_key_is_never_written_where_a_variable_is_supported(tmp_path: Path, name: str) -> None:
    target = make_target(tmp_path, environ={"RECOLLECT_API_KEY": KEY})
    install(name, target)
    assert KEY.encode() not in b"".join(snapshot(tmp_path).values())
    if name in ("claude-desktop", "antigravity"):
        install(name, make_target(tmp_path, key=KEY))
        [written] = [path for path in (tmp_path / "home").rglob("*.json") if KEY in path.read_text()]
        assert written.stat().st_mode & 0o077 == 0


def test_claude_code_recalls_by_http_from_a_server_on_this_machine(tmp_path: Path) -> None:
    def hooks(**options: Any) -> dict[str, Any]:
        install("claude-code", make_target(tmp_path, **options))
        settings = json.loads((tmp_path / "home/.claude/settings.json").read_text())
        return {event: groups[0]["hooks"][0] for event, groups in settings["hooks"].items()}

    local = hooks()
    assert {event: hook["type"] for event, hook in local.items()} == {
        "UserPromptSubmit": "http",
        "SessionStart": "command",
        "Stop": "command",
        "PreCompact": "command",
    }
    assert local["UserPromptSubmit"]["url"] == "http://127.0.0.1:8100/recollect/v1/hooks/claude-code/recall"
    assert local["UserPromptSubmit"]["timeout"] == 0.3
    assert local["UserPromptSubmit"]["headers"]["Authorization"] == "Bearer $RECOLLECT_API_KEY"
    assert local["SessionStart"]["command"] == "/opt/bin/recollect hook brief --client claude-code"
    remote = hooks(url="https://memory.example.org")
    assert {hook["type"] for hook in remote.values()} == {"command"}
    # Claude Code ends such hooks when it exits.
    assert not any("async" in hook for hook in (*local.values(), *remote.values()))
    assert remote["Stop"]["command"].endswith("hook keep --client claude-code --url https://memory.example.org")
    with pytest.raises(InvalidInput, match="--hooks command"):
        plan_install(CLIENTS["claude-code"], make_target(tmp_path, url="https://memory.example.org", hooks="http"))


def test_the_entries_have_the_formats_of_the_clients(tmp_path: Path) -> None:
    target = make_target(tmp_path, environ={"RECOLLECT_API_KEY": KEY})
    for name in CLIENTS:
        install(name, target)
    home = tmp_path / "home"
    codex = tomllib.loads((home / ".codex/config.toml").read_text())["mcp_servers"]["recollect"]
    assert codex["args"] == ["mcp"]
    assert "RECOLLECT_API_KEY" in codex["env_vars"]
    assert set(json.loads((home / ".codex/hooks.json").read_text())["hooks"]) == {
        "UserPromptSubmit", "SessionStart", "Stop", "PreCompact",
    }  # fmt: skip
    gemini = json.loads((home / ".gemini/settings.json").read_text())
    assert gemini["hooks"]["BeforeAgent"][0]["hooks"][0]["timeout"] == 5000
    assert {event: groups[0].get("matcher") for event, groups in gemini["hooks"].items()} == {
        "BeforeAgent": None, "SessionStart": None, "AfterAgent": None, "PreCompress": "manual",
    }  # fmt: skip
    assert gemini["mcpServers"]["recollect"]["env"]["RECOLLECT_API_KEY"] == "${RECOLLECT_API_KEY:-}"
    assert "{{args}}" in tomllib.loads((home / ".gemini/commands/why.toml").read_text())["prompt"]
    cursor = json.loads((home / ".cursor/mcp.json").read_text())["mcpServers"]["recollect"]
    assert cursor["args"] == ["mcp", "--folder", "${workspaceFolder}"]
    cursor = json.loads((home / ".cursor/hooks.json").read_text())
    assert cursor["version"] == 1
    assert cursor["hooks"]["afterAgentResponse"][0]["command"].endswith("hook keep --client cursor")
    servers = json.loads((home / ".config/Code/User/mcp.json").read_text())["servers"]
    assert servers["recollect"]["env"] == {"RECOLLECT_API_KEY": "${env:RECOLLECT_API_KEY}"}


def test_in_a_project_the_program_is_found_by_name_and_the_project_is_fixed_for_editors(tmp_path: Path) -> None:
    target = InstallTarget(
        home=tmp_path / "home",
        folder=tmp_path / "repository",
        in_project=True,
        project_id="github.com/owner/name",
    )
    install("cursor", target)
    entry = json.loads((tmp_path / "repository/.cursor/mcp.json").read_text())["mcpServers"]["recollect"]
    assert entry == {"command": "recollect", "args": ["mcp", "--project", "github.com/owner/name"]}
    assert "alwaysApply: true" in (tmp_path / "repository/.cursor/rules/recollect.mdc").read_text()


def test_a_hook_of_ours_in_a_group_of_others_is_removed_alone(tmp_path: Path) -> None:
    path = tmp_path / "home/.claude/settings.json"
    path.parent.mkdir(parents=True)
    own = {"type": "command", "command": "recollect hook keep --client claude-code"}
    foreign = {"type": "command", "command": "say done"}
    path.write_text(json.dumps({"hooks": {"Stop": [{"hooks": [foreign, own]}]}}))
    uninstall("claude-code", make_target(tmp_path))
    assert json.loads(path.read_text()) == {"hooks": {"Stop": [{"hooks": [foreign]}]}}


def test_an_empty_object_of_the_user_stays(tmp_path: Path) -> None:
    path = tmp_path / "home/.cursor/mcp.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"mcpServers": {}}')
    target = make_target(tmp_path)
    install("cursor", target)
    uninstall("cursor", target)
    assert json.loads(path.read_text()) == {"mcpServers": {}}


@pytest.mark.parametrize(
    ("name", "file", "text", "problem"),
    [
        ("claude-code", ".claude/settings.json", '{"hooks": {', "settings.json is not valid JSON: line 1"),
        ("claude-code", ".claude/settings.json", '{"hooks": []}', "hooks is not an object"),
        ("gemini", ".gemini/settings.json", '{"mcpServers": "none"}', "mcpServers is not an object"),
        ("codex", ".codex/config.toml", "[mcp_servers\n", "config.toml is not valid TOML"),
        ("codex", ".codex/config.toml", 'mcp_servers = {docs = {command = "x"}}\n', "add it by hand"),
        ("codex", ".codex/hooks.json", '{"hooks": {"Stop": {}}}', "hooks.Stop is not an array"),
        ("vscode", ".config/Code/User/mcp.json", "\xff", "is not a text file"),
    ],
)
def test_a_broken_file_is_refused_and_nothing_is_changed(
    tmp_path: Path, name: str, file: str, text: str, problem: str
) -> None:
    path = tmp_path / "home" / file
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode("latin-1"))
    before = snapshot(tmp_path)
    with pytest.raises(InvalidInput, match=problem):
        plan_install(CLIENTS[name], make_target(tmp_path))
    assert snapshot(tmp_path) == before


def test_a_write_that_fails_undoes_those_before_it(tmp_path: Path) -> None:
    write_foreign(tmp_path, "claude-code")
    before = snapshot(tmp_path)
    plan = plan_install(CLIENTS["claude-code"], make_target(tmp_path, hooks="off"))
    assert len(plan.changes) > 2
    # A file where a folder has to be: nobody can write below it, not even root.
    (tmp_path / "home/.claude/skills").write_text("no folder")
    with pytest.raises(InvalidInput, match="nothing was changed"):
        apply_plan(plan)
    (tmp_path / "home/.claude/skills").unlink()
    assert snapshot(tmp_path) == before


@EVERY_CLIENT
def test_a_read_only_home_is_an_error_that_names_the_file(tmp_path: Path, name: str) -> None:
    if os.geteuid() == 0:
        # Root may write to every folder of a disk.
        home = Path("/proc")
    else:
        home = tmp_path / "home"
        home.mkdir(mode=0o500)
    target = InstallTarget(home=home, folder=tmp_path / "repository")
    with pytest.raises(InvalidInput, match=rf"{home}/.* cannot be written .*; nothing was changed"):
        install(name, target)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "home/.cursor").mkdir(parents=True)
    (tmp_path / "dotfiles.json").write_text("{}")
    (tmp_path / "home/.cursor/mcp.json").symlink_to(tmp_path / "dotfiles.json")
    install("cursor", make_target(tmp_path))
    assert (tmp_path / "home/.cursor/mcp.json").is_symlink()
    assert "recollect" in jsonc.parse((tmp_path / "dotfiles.json").read_text())["mcpServers"]


def test_the_plugin_has_the_same_hooks_as_an_installation(tmp_path: Path) -> None:
    hooks = json.loads((plugin_folder() / "hooks/hooks.json").read_text())["hooks"]
    target = InstallTarget(home=tmp_path, folder=tmp_path, hooks="command")
    install("claude-code", target)
    assert hooks == json.loads((tmp_path / ".claude/settings.json").read_text())["hooks"]
    assert all(is_own_hook(group["hooks"][0]) for groups in hooks.values() for group in groups)
    servers = json.loads((plugin_folder() / ".mcp.json").read_text())
    assert servers["mcpServers"] == json.loads((tmp_path / ".claude.json").read_text())["mcpServers"]
    assert json.loads((plugin_folder() / ".claude-plugin/plugin.json").read_text())["version"] == __version__
    names = {path.name for path in (plugin_folder() / "commands").iterdir()}
    assert names == {"recall.md", "remember.md", "forget.md", "why.md"}
