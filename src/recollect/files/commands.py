"""The commands by which a model gets at files; what it gives is checked, for it may leave out or mix up anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recollect.errors import ToolFailed
from recollect.files.files import MemoryFiles
from recollect.model.change import Author
from recollect.model.scope import Scope

COMMANDS = ("view", "create", "str_replace", "insert", "delete", "rename")


async def run_command(files: MemoryFiles, scope: Scope, arguments: Mapping[str, Any], *, by: Author) -> str:
    """Do what a model asks for with its `command` and the arguments of that; gives the answer for it."""
    match arguments.get("command"):
        case "view":
            return await files.view(
                scope, _text_argument(arguments, "path"), _view_range(arguments.get("view_range"))
            )
        case "create":
            return await files.create(
                scope, _text_argument(arguments, "path"), _text_argument(arguments, "file_text"), by=by
            )
        case "str_replace":
            old, new = _text_argument(arguments, "old_str"), _text_argument(arguments, "new_str")
            return await files.str_replace(scope, _text_argument(arguments, "path"), old, new, by=by)
        case "insert":
            line, text = _number_argument(arguments, "insert_line"), _text_argument(arguments, "insert_text")
            return await files.insert(scope, _text_argument(arguments, "path"), line, text, by=by)
        case "delete":
            return await files.delete(scope, _text_argument(arguments, "path"), by=by)
        case "rename":
            return await files.rename(
                scope, _text_argument(arguments, "old_path"), _text_argument(arguments, "new_path"), by=by
            )
        case other:
            raise ToolFailed(f"Unknown command: {other}; the commands are {', '.join(COMMANDS)}")


def _text_argument(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str):
        raise ToolFailed(f"The command {arguments['command']} needs `{name}`, a text")
    return value


def _number_argument(arguments: Mapping[str, Any], name: str) -> int:
    value = arguments.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ToolFailed(f"The command {arguments['command']} needs `{name}`, a whole number")
    return value


def _view_range(value: object) -> list[int] | None:
    if value is None:
        return None
    if not isinstance(value, list) or any(isinstance(each, bool) or not isinstance(each, int) for each in value):
        raise ToolFailed("`view_range` is a list of two line numbers, such as [1, 20]; -1 is the last line")
    return value
