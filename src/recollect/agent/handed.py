"""Steps that were taken before a run, as a caller hands them over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recollect.agent.step import Call, Observation, Step
from recollect.errors import InvalidInput

_FIELDS = frozenset({"thought", "action", "arguments", "observation"})


def parse_history(history: Sequence[Step | Mapping[str, Any]]) -> tuple[Step, ...]:
    """The steps, or an InvalidInput that says what is wrong with them."""
    return tuple(each if isinstance(each, Step) else _parse_step(at, each) for at, each in enumerate(history))


def _parse_step(at: int, raw: Mapping[str, Any]) -> Step:
    if not isinstance(raw, Mapping) or not raw.keys() <= _FIELDS:
        raise InvalidInput(f"a step of the history has {', '.join(sorted(_FIELDS))}, and nothing else")
    texts = {name: raw.get(name) or "" for name in ("thought", "action", "observation")}
    arguments = raw.get("arguments") or {}
    if not all(isinstance(text, str) for text in texts.values()) or not isinstance(arguments, Mapping):
        raise InvalidInput("thought, action and observation of a step are texts, and its arguments an object")
    id = f"before_{at}"
    calls = (Call(id=id, tool=texts["action"], arguments=dict(arguments)),) if texts["action"] else ()
    observation = Observation(call_id=id, tool=texts["action"], text=texts["observation"])
    return Step(
        thought=texts["thought"], calls=calls, observations=(observation,) if calls or texts["observation"] else ()
    )
