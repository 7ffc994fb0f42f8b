"""A policy that stands in for a model: scripted, but honest. It sees one request, as a model does, and nothing else.

It knows no task. Without help it tries what the tools' schemas allow, in order, and first what an error asks for.
Where its prompt tells of a past episode whose goal has the words of the question, it goes the way that worked: the
last call that did not fail, and if that does not do it, all that did not fail, in order.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.testing.llm_replies import ScriptedReply, ToolCall
from recollect.testing.scripted_llm import RecordedRequest

_CALL = re.compile(r"\b(\w{1,64})\(([^()]{0,300})\)( \(failed\))?")
_ARGUMENT = re.compile(r'(\w{1,64})="([^"]{0,200})"')
_EPISODE = re.compile(r"^- Episode \d+: Goal: (.*?) Steps: (.*?)(?: Outcome: |$)", re.MULTILINE)
_QUESTION = re.compile(r"^Question: (.*)$", re.MULTILINE)
_NEEDS = re.compile(r"needs (\w{1,64}) first")
_ANSWER = re.compile(r"answer: (.*)")
_LINE = re.compile(r"^- (\w{1,64}\([^()]{0,300}\)) -> (.*)$", re.MULTILINE)
_WORD = re.compile(r"\w+")
_SMALL = frozenset(
    "the a an of to in for is are be i it me my our that this must has have please again once more".split()
)
_ALIKE = 0.5


@dataclass(frozen=True, slots=True)
class Try:
    """A call that was made, and what came of it; `call` is how it is written."""

    call: str
    result: str

    @property
    def tool(self) -> str:
        return self.call.partition("(")[0]

    @property
    def failed(self) -> bool:
        return not (self.result.startswith("answer:") or self.result == "accepted")


def policy(request: RecordedRequest) -> ScriptedReply:
    """What is said to one request; the same request is always answered alike."""
    return decide(request.json)


def decide(request: Mapping[str, Any]) -> ScriptedReply:
    """The next call, or the answer, from the messages and the tools of a request."""
    messages = request["messages"]
    tries = list(_tries(messages))
    for each in tries:
        if match := _ANSWER.match(each.result):
            return ScriptedReply(f"The answer is {match[1]}")
    calls = list(_possible(request.get("tools", ())))
    expected = next(iter(_open(_remembered(messages, calls), tries)), None) or next(
        iter(_explored(calls, tries)), None
    )
    if expected is None:
        return ScriptedReply("I do not know.")
    name, _, _ = expected.partition("(")
    return ScriptedReply(None, [ToolCall(name, dict(_ARGUMENT.findall(expected)))])


def _possible(tools: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Every call that the schemas allow, where they list all values; memory is not for trying out."""
    for tool in tools:
        function = tool["function"]
        takes = function["parameters"].get("properties", {})
        if all("enum" in each for each in takes.values()):
            for values in itertools.product(*(each["enum"] for each in takes.values())):
                inputs = ", ".join(f"{name}={json.dumps(value)}" for name, value in zip(takes, values, strict=True))
                yield f"{function['name']}({inputs})"


def _tries(messages: Sequence[Mapping[str, Any]]) -> Iterator[Try]:
    """What was tried: first what working memory sums up, then the steps that stand word for word."""
    for message in messages:
        if message["role"] == "user" and "Working Memory:" in message["content"]:
            summed = message["content"].partition("Working Memory:")[2]
            yield from (Try(match[1], match[2].removeprefix("failed: ")) for match in _LINE.finditer(summed))
    results = {each["tool_call_id"]: each["content"] for each in messages if each["role"] == "tool"}
    for message in messages:
        for call in message.get("tool_calls") or ():
            inputs = json.loads(call["function"]["arguments"])
            plain = ", ".join(f"{name}={json.dumps(value)}" for name, value in inputs.items())
            yield Try(f"{call['function']['name']}({plain})", results.get(call["id"], ""))


def _remembered(messages: Sequence[Mapping[str, Any]], calls: Sequence[str]) -> list[str]:
    """The way that worked in the episode whose goal is most like the question; nothing if none is."""
    text = "\n".join(str(each["content"]) for each in messages if each["role"] == "user")
    question = _QUESTION.search(text)
    report = [(_alike(goal, question[1]), steps) for goal, steps in _EPISODE.findall(text)] if question else []
    likeness, steps = max(report, default=(0.0, ""))
    if likeness < _ALIKE:
        return []
    worked = [f"{name}({inputs})" for name, inputs, failed in _CALL.findall(steps) if not failed]
    worked = [each for each in worked if each in calls]
    return [*worked[-1:], *worked]


def _open(way: Sequence[str], tries: Sequence[Try]) -> Iterator[str]:
    """What of a way is still to be done."""
    for each in way:
        if not any(tried.call == each and not _can_be_retried(tried, tries) for tried in tries):
            yield each


def _explored(calls: Sequence[str], tries: Sequence[Try]) -> Iterator[str]:
    """What was not tried yet, beginning with what the last error asks for."""
    done = {each.call for each in tries if not _can_be_retried(each, tries)}
    needs = {match[1] for each in tries if _can_wait(each, tries) and (match := _NEEDS.search(each.result))}
    left = [each for each in calls if each not in done]
    first = [each for each in left if each.partition("(")[0] in needs]
    waiting = {each.call for each in tries if _can_wait(each, tries)}
    yield from first
    yield from (each for each in left if each not in waiting)


def _can_wait(tried: Try, tries: Sequence[Try]) -> bool:
    """Whether it waits for something that has not been done."""
    needed = _NEEDS.search(tried.result)
    return needed is not None and not any(each.tool == needed[1] and not each.failed for each in tries)


def _can_be_retried(tried: Try, tries: Sequence[Try]) -> bool:
    """Whether what it needed was done since."""
    needed = _NEEDS.search(tried.result)
    if needed is None:
        return False
    at = max(at for at, each in enumerate(tries) if each.call == tried.call)
    return any(each.tool == needed[1] and not each.failed for each in tries[at:])


def _alike(one: str, other: str) -> float:
    words, rest = _words(one), _words(other)
    return len(words & rest) / max(1, min(len(words), len(rest)))


def _words(text: str) -> frozenset[str]:
    return frozenset(word.rstrip("s") for word in _WORD.findall(text.casefold())) - _SMALL
