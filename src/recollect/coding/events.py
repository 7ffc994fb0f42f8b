"""The hook events of coding agents: the names, fields and answers of each client.

Four events are common to them: `recall` before a prompt, `brief` at the start of a session, `keep` after the answer,
and `save` before the conversation is compacted.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

EVENTS = ("recall", "brief", "keep", "save")
_CLAUDE_EVENTS = {"recall": "UserPromptSubmit", "brief": "SessionStart", "keep": "Stop", "save": "PreCompact"}
# The name of each event in each client.
EVENT_NAMES = {
    "claude-code": _CLAUDE_EVENTS,
    "codex": _CLAUDE_EVENTS,
    "gemini": {"recall": "BeforeAgent", "brief": "SessionStart", "keep": "AfterAgent", "save": "PreCompress"},
    "cursor": {
        "recall": "beforeSubmitPrompt",
        "brief": "sessionStart",
        "keep": "afterAgentResponse",
        "save": "preCompact",
    },
}
CLIENTS = tuple(EVENT_NAMES)
# The beginning and the end of a longer text are stored: what is pasted in between is output of tools.
MAX_TURN_CHARS = 12_000

_SESSION_FIELDS = ("conversation_id", "session_id")
_PROMPT_FIELDS = ("prompt", "user_prompt")
_ANSWER_FIELDS = ("last_assistant_message", "prompt_response", "text")
# What clients add to a message: state of the editor, reminders, instructions, output of local commands.
_ADDED = re.compile(
    r"<(system-reminder|environment_context|user_instructions|INSTRUCTIONS|user_info|attached_files|timestamp"
    r"|open_and_recently_viewed_files|ide_[a-z_]+|command-[a-z-]+|local-command-[a-z-]+|bash-[a-z-]+|hook_context"
    r"|task-notification)\b[^>]*>.*?</\1>",
    re.DOTALL,
)
_QUERY = re.compile(r"<user_query>\s*(.*?)\s*</user_query>", re.DOTALL)
_ADDED_HEADS = ("# AGENTS.md instructions", "Caveat: The messages below", "[Request interrupted")
_COMMAND = re.compile(r"/[a-z][\w:-]*(\s|$)")


def session_of(payload: Mapping[str, Any]) -> str:
    """Return the client's id of the session, or an empty text."""
    return _first_text(payload, _SESSION_FIELDS)


def folder_of(payload: Mapping[str, Any]) -> str:
    """Return the working directory, or an empty text."""
    roots = payload.get("workspace_roots")
    first = roots[0] if isinstance(roots, list) and roots and isinstance(roots[0], str) else ""
    return _first_text(payload, ("cwd",)) or first


def prompt_of(payload: Mapping[str, Any]) -> str:
    """Return the user's prompt without the additions of the client."""
    return clean_prompt(_first_text(payload, _PROMPT_FIELDS))


def answer_of(payload: Mapping[str, Any]) -> str:
    """Return the agent's last answer, or an empty text."""
    return _first_text(payload, _ANSWER_FIELDS).strip()


def _first_text(payload: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return next((value for name in names if isinstance(value := payload.get(name), str) and value), "")


def clean_prompt(text: str) -> str:
    """Return the words of the user: without the client's additions, empty for a command of the client."""
    query = _QUERY.search(text)
    text = (query[1] if query else _ADDED.sub("", text)).strip()
    return "" if text.startswith(_ADDED_HEADS) or _COMMAND.match(text) else text


def format_answer(client: str, event: str, context: str = "") -> dict[str, Any]:
    """Return the answer that the client expects: the context for the model, or nothing."""
    if client == "cursor":
        answer: dict[str, Any] = {"continue": True} if event in ("recall", "brief") else {}
        return answer | {"additional_context": context} if context else answer
    if not context:
        return {}
    return {"hookSpecificOutput": {"hookEventName": EVENT_NAMES[client][event], "additionalContext": context}}
