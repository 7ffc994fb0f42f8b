"""Steps that were taken before a run, as a caller hands them over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recollect.agent.step import Call, Observed, Step
from recollect.errors import InvalidInput

_FIELDS = frozenset({"thought", "action", "arguments", "observation"})


def read_history(history: Sequence[Step | Mapping[str, Any]]) -> tuple[Step, ...]:
    """The steps, or an InvalidInput that says what is wrong with them."""
    return tuple(each if isinstance(each, Step) else _read(at, each) for at, each in enumerate(history))


def _read(at: int, given: Mapping[str, Any]) -> Step:
    if not isinstance(given, Mapping) or not given.keys() <= _FIELDS:
        raise InvalidInput(f"a step of the history has {', '.join(sorted(_FIELDS))}, and nothing else")
    texts = {name: given.get(name) or "" for name in ("thought", "action", "observation")}
    arguments = given.get("arguments") or {}
    if not all(isinstance(text, str) for text in texts.values()) or not isinstance(arguments, Mapping):
        raise InvalidInput("thought, action and observation of a step are texts, and its arguments an object")
    id = f"before_{at}"
    calls = (Call(id=id, tool=texts["action"], arguments=dict(arguments)),) if texts["action"] else ()
    seen = Observed(call_id=id, tool=texts["action"], text=texts["observation"])
    return Step(thought=texts["thought"], calls=calls, observed=(seen,) if calls or texts["observation"] else ())
