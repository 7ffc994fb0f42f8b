"""The story of a task as a model tells it and as a memory keeps it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from recollect.errors import BrokenAnswer, InvalidInput, InvalidSettings
from recollect.model.change import Add
from recollect.model.memory import Category, MemoryRecord, MemoryType, Status, Trust, text_hash
from recollect.model.scope import Scope
from recollect.model.text import normalise_invisible
from recollect.model.turn import Conversation, Role, Turn
from recollect.models.chat import Chat
from recollect.models.structured import InvalidAnswer, Partial, ask_json
from recollect.prompts import prompt
from recollect.prompts.rendering import json_line, new_delimiter, shorten
from recollect.sessions.agent_runs import RunRecord, may_be_task, note_digest, notes_as_turns
from recollect.sessions.ask_llm import check_summary, sample_turns, turns_as_json
from recollect.sessions.compress import SOURCE
from recollect.sessions.step_output import EPOCH, Cost, StepOutput, evidence_ids, run_ids, stable_id, turn_range
from recollect.write.instructions import find_instruction
from recollect.write.redact import redact
from recollect.write.screen import screen

_MAX_STEPS = 8
_MAX_LESSONS = 3
_MAX_CHARS = 600

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "task": {"type": "boolean"},
        "goal": {"type": "string"},
        "steps": {"type": "array", "items": {"type": "string"}},
        "outcome": {"type": "string"},
        "lessons": {"type": "array", "items": {"type": "string"}},
        "summary": {"type": "string"},
    },
    "required": ["task", "goal", "steps", "outcome", "lessons", "summary"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSummary:
    """What was wanted, done, achieved and learned; `made` from what was "given", or by a "model"."""

    goal: str
    steps: tuple[str, ...] = ()
    outcome: str = ""
    lessons: tuple[str, ...] = ()
    summary: str = ""
    task: bool = True
    made: str = "given"
    digest: str | None = None

    @property
    def text(self) -> str:
        """The story in words, a line for each part that there is."""
        lines = [f"Goal: {self.goal}"]
        if self.steps:
            lines.append("Steps: " + " ".join(f"{at}. {step}" for at, step in enumerate(self.steps, 1)))
        if self.outcome:
            lines.append(f"Outcome: {self.outcome}")
        if self.lessons:
            lines.append(f"Lessons: {' '.join(self.lessons)}")
        return "\n".join(lines)

    @property
    def detail(self) -> dict[str, Any]:
        """The parts by their names; lessons are one text, as episodes have them."""
        return {
            "goal": self.goal,
            "steps": list(self.steps),
            "outcome": self.outcome,
            "lessons": "\n".join(self.lessons),
        }


def parse_task_summary(value: object) -> TaskSummary | Partial[TaskSummary]:
    """The story that a model's answer tells, or an InvalidAnswer; one of several is as good as one alone."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, Mapping):
        raise InvalidAnswer("it must be one JSON object")
    task = value.get("task", True)
    summary = TaskSummary(
        goal=_text(value.get("goal")),
        steps=_texts(value.get("steps"), _MAX_STEPS),
        outcome=_text(value.get("outcome")),
        lessons=_texts(value.get("lessons"), _MAX_LESSONS),
        summary=_text(value.get("summary")),
        task=task is not False and str(task).casefold() != "false",
    )
    if not summary.task:
        return summary
    if not summary.goal:
        raise InvalidAnswer("goal must be a sentence")
    missing = [name for name in ("steps", "outcome") if not getattr(summary, name)]
    if missing:
        return Partial(summary, tuple(f"{name} must not be empty" for name in missing), score=2 - len(missing))
    return summary


def _texts(value: object, max_count: int) -> tuple[str, ...]:
    if isinstance(value, str):
        value = value.splitlines()
    if not isinstance(value, list):
        return ()
    texts = (_text(each) for each in value)
    return tuple(dict.fromkeys(text for text in texts if text))[:max_count]


def _text(value: object) -> str:
    if not isinstance(value, str):
        return ""
    return redact(" ".join(normalise_invisible(value).split())).text[:_MAX_CHARS]


MAX_STEPS = 20
MAX_LESSONS = 5
_MAX_TOKENS = 2_048
_MAX_STEP_CHARS = 300
_MAX_TEXT_CHARS = 600
# Of what tools answer little is shown: it is long, and nobody's word.
_MAX_OBSERVATION_CHARS = 200
_MAX_PROMPT_STEPS = 60
_IMPORTANCE = 0.6
_LESSON_IMPORTANCE = 0.6
_LESSON_CONFIDENCE = 0.6
_NO_TASK = "the model says that it was no task"
_REVIEW = "it tells what to do ('{phrase}'), and the user did not say it"


@dataclass(frozen=True, slots=True)
class _TaskSource:
    """Something that was worked on, and where it is told; ids sort by the time `id_at`."""

    scope: Scope
    id: str
    at: datetime
    evidence: tuple[str, ...]
    detail: Mapping[str, Any]
    id_at: datetime


async def episode_of_run(
    conversation: Conversation, run: RunRecord, *, chat: Chat | None, now: datetime, timeout_s: float | None = None
) -> StepOutput:
    """The episode and the lessons of a run that was a task, and an invocation of the conversation in any case.

    A run that the conversation already has an invocation of is done with.
    """
    scope, stated = conversation.scope, _summary_from_run(run)
    if run.id in run_ids(conversation.invocations):
        return StepOutput(reasons=("the run was told before",))
    summary, cost, why = stated, Cost(), ""
    if chat is not None and run.is_task:
        answer, cost, why = await _ask_summary(chat, _run_lines(run), _run_as_turns(scope, run), timeout_s)
        # What was given is known; a model may only say the rest.
        if answer is not None:
            lessons = stated.lessons or answer.lessons
            summary = replace(answer, goal=stated.goal, outcome=answer.outcome or stated.outcome, lessons=lessons)
    invocations = (_invocation(run, summary),)
    if not run.is_task:
        return StepOutput(invocations=invocations, reasons=("no episode: it took fewer than two steps",))
    if why == _NO_TASK and not stated.lessons:
        return StepOutput(invocations=invocations, cost=cost, reasons=(f"no episode: {why}",))
    detail = {"run_id": run.id, "success": run.success, "kind": "run"}
    # Whoever tells of the run again does it later: its id is what it is known by.
    source = _TaskSource(scope, run.id, run.ended_at, run.turns, detail, id_at=EPOCH)
    return StepOutput(
        changes=_changes(source, summary, now=now),
        invocations=invocations,
        cost=cost,
        reasons=(f"told as it was given: {why}",) if why else (),
    )


async def episode_of_turns_as_task(
    conversation: Conversation,
    turns: Sequence[Turn],
    *,
    chat: Chat | None,
    now: datetime,
    timeout_s: float | None = None,
) -> StepOutput:
    """The episode and the lessons of a talk that was work on a task, as a model tells it; else nothing."""
    if chat is None or not may_be_task(turns):
        why = "there is no model to tell it" if chat is None else "it does not look like a task"
        return StepOutput(reasons=(f"no episode: {why}",))
    clean = screen(turns).turns
    summary, cost, why = await _ask_summary(chat, turns_as_json(sample_turns(clean)), clean, timeout_s)
    if summary is None:
        return StepOutput(cost=cost, reasons=(f"no episode: {why}",))
    ids = [turn.id for turn in turns]
    at = max(turn.said_at for turn in turns)
    detail = {**turn_range(turns), "kind": "task"}
    source = _TaskSource(conversation.scope, "\x1f".join(ids), at, evidence_ids(turns), detail, id_at=at)
    return StepOutput(changes=_changes(source, summary, now=now), cost=cost)


async def episode_of_notes(
    conversation: Conversation,
    invocations: Sequence[Mapping[str, Any]],
    *,
    chat: Chat | None,
    now: datetime,
    tasks_only: bool = False,
    timeout_s: float | None = None,
) -> StepOutput:
    """The episode and the lessons of what agents told of a conversation: as a model tells it, else as it was told.

    What a model takes for no task makes none if only tasks are wanted; small talk makes none in any case.
    """
    turns = notes_as_turns(conversation.scope, invocations, now=now)
    screened = screen(turns)
    if not screened.has_content:
        return StepOutput(reasons=(f"no episode: {screened.reason}",))
    summary, cost, why = None, Cost(), ""
    if chat is not None:
        summary, cost, why = await _ask_summary(
            chat, turns_as_json(sample_turns(screened.turns)), screened.turns, timeout_s
        )
    if why == _NO_TASK and tasks_only:
        return StepOutput(cost=cost, reasons=(f"no episode: {why}",))
    at = max(turn.said_at for turn in turns)
    id = "\x1f".join(str(note_digest(each)) for each in invocations)
    source = _TaskSource(conversation.scope, id, at, (), {"kind": "task"}, id_at=at)
    return StepOutput(
        changes=_changes(source, summary or _summary_from_notes(invocations), now=now),
        cost=cost,
        reasons=(f"told as it was given: {why}",) if why else (),
    )


def _summary_from_notes(invocations: Sequence[Mapping[str, Any]]) -> TaskSummary:
    """What was asked, what was done for it one after the other, and what it came to in the end."""

    def texts(name: str, chars: int) -> list[str]:
        values = (_shorten(str(each.get(name) or ""), chars) for each in invocations)
        return list(dict.fromkeys(filter(None, values)))

    return TaskSummary(
        goal=_shorten("; ".join(texts("query", _MAX_STEP_CHARS)), _MAX_TEXT_CHARS),
        steps=tuple(texts("summary", _MAX_STEP_CHARS)[-MAX_STEPS:]),
        outcome=next(reversed(texts("result", _MAX_TEXT_CHARS)), ""),
    )


async def _ask_summary(
    chat: Chat, record: str, turns: Sequence[Turn], timeout_s: float | None
) -> tuple[TaskSummary | None, Cost, str]:
    """The story as the model tells it if it can be believed, what it cost, and else why not."""
    template = prompt("episode")
    question = template.fill(fence=new_delimiter(), record=record)
    try:
        answer = await ask_json(
            chat,
            [{"role": "user", "content": question}],
            schema=SCHEMA,
            max_tokens=_MAX_TOKENS,
            timeout_s=timeout_s,
            check=parse_task_summary,
        )
    except BrokenAnswer as error:
        return None, Cost(error.calls, error.tokens_in, error.tokens_out, chat.model), str(error)
    except InvalidSettings:
        raise
    except InvalidInput as error:
        return None, Cost(model=chat.model), f"the model refuses what it is asked: {error}"
    cost = Cost(answer.calls, answer.tokens_in, answer.tokens_out, answer.model)
    summary = replace(answer.value, made="model", digest=template.digest)
    # Lessons are judged one by one: what instructs waits for a person, and the rest need not.
    why = check_summary(replace(summary, lessons=()).text, "", turns).reason if summary.task else _NO_TASK
    return (None if why else summary), cost, why


def _summary_from_run(run: RunRecord) -> TaskSummary:
    """What the record says by itself."""
    outcome = run.answer or ("" if run.success is None else "It succeeded." if run.success else "It failed.")
    return TaskSummary(
        goal=_shorten(run.goal, _MAX_TEXT_CHARS),
        steps=tuple(_shorten(action, _MAX_STEP_CHARS) for action in run.actions[:MAX_STEPS]),
        outcome=_shorten(outcome, _MAX_TEXT_CHARS),
        lessons=tuple(_shorten(lesson, _MAX_STEP_CHARS) for lesson in run.lessons[:MAX_LESSONS] if lesson.strip()),
    )


def _run_lines(run: RunRecord) -> str:
    lines = [json_line({"asked": _shorten(run.goal, _MAX_TEXT_CHARS)})]
    for step in run.steps[-_MAX_PROMPT_STEPS:]:
        chars = _MAX_OBSERVATION_CHARS if step.kind == "observation" else _MAX_STEP_CHARS
        lines.append(json_line({str(step.kind): _shorten(step.content, chars)}))
    lines.append(json_line({"said at the end": _shorten(run.answer, _MAX_TEXT_CHARS), "success": run.success}))
    return "\n".join(lines)


def _run_as_turns(scope: Scope, run: RunRecord) -> list[Turn]:
    """The run as if it had been a talk, to hold a story against it."""
    texts = [(Role.USER, run.goal), *((Role.ASSISTANT, step.content) for step in run.steps)]
    texts.append((Role.ASSISTANT, run.answer))
    return [
        Turn(id=str(at), scope=scope, role=role, content=text, said_at=run.ended_at)
        for at, (role, text) in enumerate(texts)
        if text
    ]


def _invocation(run: RunRecord, summary: TaskSummary) -> dict[str, Any]:
    steps = "; ".join(summary.steps) or "nothing but answer"
    description = (
        f"The user asked “{summary.goal}”; the agent did: {steps}; the result was: {summary.outcome or 'not told'}"
    )
    invocation = {
        "query": summary.goal,
        "summary": summary.summary if summary.summary and not _review_reason(summary.summary) else description,
        "result": summary.outcome,
        "timestamp": run.ended_at.isoformat(),
        "run_id": run.id,
    }
    return {**invocation, "turn_end": run.last_turn} if run.last_turn else invocation


def _changes(source: _TaskSource, summary: TaskSummary, *, now: datetime) -> tuple[Add, ...]:
    """The episode, then its lessons; what instructs waits for a person and is not told in the episode."""
    reasons = {lesson: _review_reason(lesson) for lesson in summary.lessons}
    approved = tuple(lesson for lesson, reason in reasons.items() if not reason)
    summary = replace(summary, lessons=approved)
    episode = _episode(source, summary, now=now)
    lessons = [_lesson(source, lesson, reason, episode, summary, now=now) for lesson, reason in reasons.items()]
    return (Add(episode), *map(Add, lessons))


def _episode(source: _TaskSource, summary: TaskSummary, *, now: datetime) -> MemoryRecord:
    detail = {**source.detail, **summary.detail, "made": summary.made}
    if review := _review_reason("\n".join([summary.outcome, *summary.steps])):
        detail["review"] = review
    return MemoryRecord(
        id=stable_id(source.scope, "task", at=source.id_at, source_ids=[source.id]),
        scope=source.scope,
        level=source.scope.default_level,
        type=MemoryType.EPISODIC,
        category=Category.EPISODE,
        content=summary.text,
        created_at=now,
        updated_at=now,
        occurred_at=source.at,
        importance=_IMPORTANCE,
        source=SOURCE,
        trust=Trust.LOW,
        evidence=source.evidence,
        detail=detail,
        status=Status.REVIEW if review else Status.ACTIVE,
        prompt_digest=summary.digest,
    )


def _lesson(
    source: _TaskSource, lesson: str, review: str, episode: MemoryRecord, summary: TaskSummary, *, now: datetime
) -> MemoryRecord:
    detail = {"episode_id": episode.id, "made": summary.made, **({"review": review} if review else {})}
    return replace(
        episode,
        id=stable_id(source.scope, "lesson", at=source.id_at, source_ids=[source.id, text_hash(lesson)]),
        type=MemoryType.REFLECTIVE,
        category=Category.LESSON,
        content=lesson,
        importance=_LESSON_IMPORTANCE,
        confidence=_LESSON_CONFIDENCE,
        detail=detail,
        status=Status.REVIEW if review else Status.ACTIVE,
    )


def _review_reason(text: str) -> str:
    phrase = find_instruction(text)
    return _REVIEW.format(phrase=phrase) if phrase else ""


def _shorten(text: str, chars: int) -> str:
    return shorten(" ".join(redact(text).text.split()), chars)
