"""Run a real coding agent without a network, with a scripted model, and print what reached the model.

`with_coding_agent.py CLIENT FOLDER COMMAND...` must run in a network namespace of its own; the client then has no way
to anything but the model and the server that are started here.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from fcntl import ioctl
from pathlib import Path
from struct import pack
from typing import Any

import httpx

from tests.support.agent_llm import ANSWER, CALL_RECALL, AgentLLM, agent_llm
from tests.support.git_repositories import make_repository
from tests.support.recollect_server import RecollectServer
from tests.support.remember_samples import wait_until

FACT = "The staging database of this service is called quokka-stage and runs on port 6543."
QUESTION = "Which port does the staging database run on?"
LATER = "The release of this service is planned for the fifth of May."
URL = "http://127.0.0.1:8100"
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
# On a loaded machine nothing here may run out of time.
_PATIENT = {"RECOLLECT_HOOK_TIMEOUT_S": "60"}
_SERVER = {"RECOLLECT_MEMORY_TIMEOUT_S": "60", "RECOLLECT_RECALL_TIMEOUT_S": "60"}
_OPTIONS = {
    "claude-code": ("--output-format", "json", "--allowedTools", "mcp__recollect__recall", "-p"),
    "codex": ("exec", "--dangerously-bypass-hook-trust"),
    "gemini": ("--model", "gemini-2.5-flash", "--yolo", "--skip-trust", "-p"),
}


class Workplace:
    """A person's home, two repositories and a coding agent."""

    def __init__(self, client: str, folder: Path, command: list[str], llm: AgentLLM) -> None:
        self.client, self.command, self.llm = client, command, llm
        self.home = folder / "home"
        self.first = make_repository(folder / "first", "git@github.com:owner/first.git")
        self.second = make_repository(folder / "second", "git@github.com:owner/second.git")
        self.server_home = self.home / ".recollect"
        self.server_home.mkdir(parents=True)
        self.environ = {"PATH": os.environ["PATH"], "HOME": str(self.home), "TERM": "dumb", **_PATIENT}
        self._configure()

    def _configure(self) -> None:
        """Let the agent use the scripted model, and report to nobody."""
        url = self.llm.url
        match self.client:
            case "claude-code":
                self.environ |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "-", "ENABLE_TOOL_SEARCH": "false"}
                self.environ |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
            case "codex":
                provider = f'name = "scripted"\nbase_url = "{url}/v1"\nwire_api = "responses"\n'
                text = f'model = "scripted"\nmodel_provider = "scripted"\n[model_providers.scripted]\n{provider}'
                text += "[analytics]\nenabled = false\n"
                self._write(".codex/config.toml", text)
            case "gemini":
                self.environ |= {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "-"}
                auth = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
                settings = {**auth, "privacy": {"usageStatisticsEnabled": False}}
                self._write(".gemini/settings.json", json.dumps(settings))

    def _write(self, path: str, text: str) -> None:
        (self.home / path).parent.mkdir(parents=True, exist_ok=True)
        (self.home / path).write_text(text)

    def recollect(self, *arguments: str) -> str:
        """Run a command of Recollect in the first repository; return its output."""
        command = [str(Path(sys.executable).with_name("recollect")), *arguments]
        environ = {**self.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        done = subprocess.run(command, cwd=self.first, env=environ, check=True, capture_output=True, text=True)
        return done.stdout

    def install(self) -> None:
        self.recollect("install", self.client, "--yes")
        settings = self.home / ".claude" / "settings.json"
        if settings.exists():
            # The hook by HTTP, which has no variable for its time.
            settings.write_text(settings.read_text().replace('"timeout": 0.3', '"timeout": 60'))

    def session(self, folder: Path, prompt: str) -> dict[str, Any]:
        """Run a session with one prompt; return what reached the model, and whether the agent noticed anything."""
        done = subprocess.run(
            [*self.command, *_OPTIONS[self.client], prompt],
            cwd=folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        assert ANSWER in done.stdout, f"{done.stdout}\n{done.stderr}"
        requests = self.llm.take_texts()
        blocks = re.findall(r"recalled-memories ([0-9a-f]{32})(?:>|&gt;)(.*?)(?:<|&lt;)/recalled", requests[0])
        return {
            "contexts": sum("6543" in text for _, text in blocks),
            "other_contexts": sum("6543" not in text for _, text in blocks),
            "tools": sorted(set(re.findall(r"\b(recall|show|remember|forget|undo)\b", _listed(requests[0])))),
            "tool_result": "6543" in _last_message(requests[-1]) if len(requests) > 1 else None,
        }

    def session_with_tools(self, folder: Path, prompt: str) -> dict[str, Any]:
        """Run sessions until one has the tools: agents do not wait for a server of MCP that starts slowly."""
        return next(each for _ in range(5) if (each := self.session(folder, prompt))["tools"])


def _listed(request: str) -> str:
    """Return the names of the tools of the server, as the client lists them."""
    found = re.findall(r'"name": "mcp_+recollect_+(\w+)"', request)
    if "mcp__recollect" in request and not found:
        space = next(each for each in json.loads(request)["tools"] if each.get("name") == "mcp__recollect")
        found = [each["name"] for each in space["tools"]]
    return " ".join(found)


def _last_message(request: str) -> str:
    values = json.loads(request)
    return json.dumps(next(values[name] for name in ("messages", "input", "contents") if name in values)[-1])


def stored(project: str) -> list[str]:
    """Return the turns that the server has of a repository, oldest first."""
    answer = httpx.get(
        f"{URL}/recollect/v1/memories",
        params={"turns": True, "project_id": f"github.com/owner/{project}", "order": "oldest"},
        headers={"X-Memory-User": "default"},
        timeout=60,
    )
    return [each["memory"] for each in answer.json()["results"] if each["category"] == "turn"]


def use_loopback_only() -> None:
    """Bring up loopback; fail if there is another interface."""
    assert [name for _, name in socket.if_nameindex()] == ["lo"], "this needs a network namespace of its own"
    with socket.socket() as any_socket:
        ioctl(any_socket, _SIOCSIFFLAGS, pack("16sh14x", b"lo", _IFF_UP))


def report(client: str, folder: Path, command: list[str]) -> Mapping[str, Any]:
    """Run the sessions."""
    with agent_llm() as llm:
        place = Workplace(client, folder, command, llm)
        place.install()
        with RecollectServer(place.server_home, "--port", "8100", **_SERVER):
            first = place.session(place.first, FACT)
            wait_until(lambda: len(stored("first")) == 2)
            next_session = place.session_with_tools(place.first, f"{QUESTION} {CALL_RECALL}.")
            other_repository = place.session(place.second, QUESTION)
        without_server = place.session(place.first, LATER)
        unsent = len(list(place.server_home.glob("unsent/*.json")))
        with RecollectServer(place.server_home, "--port", "8100", **_SERVER):
            place.session(place.second, QUESTION)
            wait_until(lambda: not list(place.server_home.glob("unsent/*.json")))
            # The last two have the same time.
            turns = stored("first")
            imported = place.recollect("import", "--from", client, "--json")
        return {
            "first": first,
            "next_session": next_session,
            "other_repository": other_repository,
            "without_server": without_server,
            "unsent": unsent > 0,
            "stored": turns,
            "imported": {"added": json.loads(imported)["added"]},
        }


if __name__ == "__main__":
    use_loopback_only()
    print(json.dumps(report(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])))
