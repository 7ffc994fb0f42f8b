"""What a model said, as a thought with calls or as an answer: as its endpoint has it, or read from its words."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recollect.agent.step import Call
from recollect.agent.tools.tool import Tool
from recollect.models.chat import Said, Wish
from recollect.models.loose_json import json_values

_LABEL = re.compile(
    r"^[ \t*#]{0,6}(thought|action input|action|observation|final answer)[ \t*]{0,4}:[ \t*]{0,4}",
    re.MULTILINE | re.IGNORECASE,
)
_MOST_REPEATED = 200


@dataclass(frozen=True, slots=True)
class Spoken:
    """A thought and the calls it leads to, or the answer; without either, the model lost its way."""

    thought: str = ""
    calls: tuple[Call, ...] = ()
    answer: str | None = None


def by_endpoint(said: Said, tools: Mapping[str, Tool]) -> Spoken:
    """What an endpoint that knows tools gave: what it says without a call is its answer."""
    if not said.wishes:
        return Spoken(answer=said.text)
    return Spoken(said.text, tuple(call_of(wish, tools) for wish in said.wishes))


def in_words(text: str, tools: Mapping[str, Tool], *, number: int) -> Spoken:
    """What a model wrote that calls tools in words; `number` makes the id of its call. Words alone are an answer."""
    parts = _labelled(text)
    said = dict(reversed(parts))
    thought = " ".join(part for name, part in parts if name in ("thought", "")).strip()
    names = [name for name, _ in parts]
    if "final answer" in names and ("action" not in names or names.index("final answer") < names.index("action")):
        return Spoken(thought, answer=said["final answer"])
    if "action" in names:
        name = said["action"].strip("`\"'[]() ").partition("\n")[0].partition("(")[0].strip()
        wish = Wish(id=f"call_{number}", name=name, arguments=said.get("action input", ""))
        return Spoken(thought, (call_of(wish, tools, in_words=True),))
    return Spoken(thought) if "thought" in names else Spoken(answer=text.strip())


def _labelled(text: str) -> list[tuple[str, str]]:
    """The parts after each label, up to the first observation: what follows that is made up."""
    found = list(_LABEL.finditer(text))
    parts = [("", text[: found[0].start()].strip())] if found and text[: found[0].start()].strip() else []
    for at, label in enumerate(found):
        name = label[1].lower()
        if name == "observation":
            break
        end = found[at + 1].start() if at + 1 < len(found) else len(text)
        parts.append((name, text[label.end() : end].strip()))
    return parts


def call_of(wish: Wish, tools: Mapping[str, Tool], *, in_words: bool = False) -> Call:
    """The call that a model wishes for, or what is wrong with it."""
    tool = tools.get(wish.name)
    if tool is None:
        known = f"there are {', '.join(tools)}" if tools else "there are none"
        wrong = f"there is no tool {wish.name[:_MOST_REPEATED]!r}; {known}"
        return Call(id=wish.id, tool=_name(wish.name), arguments=_object(wish.arguments) or {}, wrong=wrong)
    arguments = _object(wish.arguments) if wish.arguments.strip() else {}
    if arguments is None and in_words:
        arguments = _only(tool, wish.arguments)
    if arguments is None:
        wrong = f"the arguments must be one JSON object, not {wish.arguments[:_MOST_REPEATED]!r}"
        return Call(id=wish.id, tool=tool.name, wrong=wrong)
    return Call(id=wish.id, tool=tool.name, arguments=arguments)


def _object(text: str) -> dict[str, Any] | None:
    """The JSON object in a text, however loosely it is written; None if there is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        # What was cut off could mean something else, and must not be done.
        whole = (read.value for read in json_values(text) if not read.lost)
        value = next((each for each in whole if isinstance(each, dict)), None)
    return value if isinstance(value, dict) else None


def _only(tool: Tool, text: str) -> dict[str, Any] | None:
    """Words that are no JSON, as the one text that the tool needs; None if it needs another or more."""
    needed = tool.parameters.get("required", ())
    kinds = tool.parameters.get("properties", {})
    if len(needed) != 1 or kinds.get(needed[0], {}).get("type") != "string" or text.lstrip().startswith("{"):
        return None
    return {needed[0]: text.strip().strip("\"'`")}


def _name(text: str) -> str:
    """A name as an endpoint takes it back."""
    return re.sub("[^A-Za-z0-9_-]", "_", text)[:64] or "unknown"
