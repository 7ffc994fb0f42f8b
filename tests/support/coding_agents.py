"""Events of coding agents as each of them writes them, and the hook command as each of them runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CLIENTS = ("claude-code", "codex", "gemini", "cursor")
# Longer than anything takes on a machine that is busy with much else.
PATIENT = {"RECOLLECT_HOOK_TIMEOUT_S": "60"}


def event(
    client: str, name: str, folder: Path, session: str, *, prompt: str = "", answer: str = ""
) -> dict[str, Any]:
    """Return the payload of an event: recall, brief, keep or save."""
    if client == "cursor":
        return _cursor_event(name, folder, session, prompt, answer)
    if client == "gemini":
        return _gemini_event(name, folder, session, prompt, answer)
    payload: dict[str, Any] = {
        "session_id": session,
        "transcript_path": str(folder / "missing.jsonl"),
        "cwd": str(folder),
    }
    if client == "codex":
        payload |= {"model": "gpt-5-codex", "permission_mode": "default", "turn_id": f"turn-{session}"}
    match name:
        case "recall":
            return payload | {"hook_event_name": "UserPromptSubmit", "prompt": prompt, "permission_mode": "default"}
        case "brief":
            return payload | {"hook_event_name": "SessionStart", "source": "startup"}
        case "keep":
            return payload | {"hook_event_name": "Stop", "stop_hook_active": False, "last_assistant_message": answer}
    return payload | {"hook_event_name": "PreCompact", "trigger": "auto", "custom_instructions": ""}


def _gemini_event(name: str, folder: Path, session: str, prompt: str, answer: str) -> dict[str, Any]:
    payload: dict[str, Any] = {
        "session_id": session,
        "transcript_path": str(folder / "missing.jsonl"),
        "cwd": str(folder),
        "timestamp": "2026-11-17T09:30:00.000Z",
    }
    match name:
        case "recall":
            return payload | {"hook_event_name": "BeforeAgent", "prompt": prompt}
        case "brief":
            return payload | {"hook_event_name": "SessionStart", "source": "startup"}
        case "keep":
            response = {"prompt": prompt, "prompt_response": answer, "stop_hook_active": False}
            return payload | {"hook_event_name": "AfterAgent", **response}
    return payload | {"hook_event_name": "PreCompress", "trigger": "auto"}


def _cursor_event(name: str, folder: Path, session: str, prompt: str, answer: str) -> dict[str, Any]:
    payload: dict[str, Any] = {
        "conversation_id": session,
        "generation_id": f"gen-{session}",
        "model": "auto",
        "cursor_version": "3.6.31",
        "workspace_roots": [str(folder)],
        "user_email": "alex@example.com",
        "transcript_path": None,
    }
    match name:
        case "recall":
            return payload | {"hook_event_name": "beforeSubmitPrompt", "prompt": prompt, "attachments": []}
        case "brief":
            return payload | {"hook_event_name": "sessionStart", "is_background_agent": False}
        case "keep":
            return payload | {"hook_event_name": "afterAgentResponse", "text": answer}
    return payload | {"hook_event_name": "preCompact", "trigger": "auto", "context_usage_percent": 85}


def context_of(client: str, answer: Mapping[str, Any]) -> str:
    """Return the context that the client takes from an answer; fail if the answer is not in its format."""
    if client == "cursor":
        assert set(answer) <= {"continue", "additional_context"}
        assert answer.get("continue", True) is True
        return str(answer.get("additional_context", ""))
    assert set(answer) <= {"hookSpecificOutput"}
    output = answer.get("hookSpecificOutput", {})
    if output:
        names = {"BeforeAgent", "SessionStart"} if client == "gemini" else {"UserPromptSubmit", "SessionStart"}
        assert output["hookEventName"] in names
        assert set(output) == {"hookEventName", "additionalContext"}
    return str(output.get("additionalContext", ""))


@dataclass(frozen=True)
class HookRun:
    """The output of a hook command."""

    stdout: str
    stderr: str

    @property
    def answer(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.stdout)
        return value


@dataclass(frozen=True)
class HookRunner:
    """Runs `recollect hook` in its own process, with a server's address in the environment."""

    url: str
    home: Path
    variables: Mapping[str, str] = field(default_factory=lambda: PATIENT)

    def __call__(self, client: str, name: str, payload: Mapping[str, Any] | str, *options: str) -> HookRun:
        """Run the hook; it must exit with 0, and print one line at most on standard error."""
        hidden = ("RECOLLECT_API_KEY", "RECOLLECT_PROJECT")
        environ = {name: value for name, value in os.environ.items() if name not in hidden}
        environ |= {"HOME": str(self.home), "RECOLLECT_URL": self.url, **self.variables}
        done = subprocess.run(
            [sys.executable, "-m", "recollect", "hook", name, "--client", client, *options],
            input=payload if isinstance(payload, str) else json.dumps(payload),
            capture_output=True,
            text=True,
            env=environ,
            timeout=300,
        )
        assert done.returncode == 0
        assert len(done.stderr.splitlines()) <= 1, done.stderr
        assert "Traceback" not in done.stderr
        return HookRun(done.stdout, done.stderr)
