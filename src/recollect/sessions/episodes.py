"""Episodes of tasks: goal, steps, outcome and lessons of an agent's run or of a conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.change import Add
from recollect.model.memory import MODEL, Category, MemoryRecord, MemoryType, Status, Trust, text_hash
from recollect.model.scope import Scope
from recollect.model.text import normalise_invisible
from recollect.model.turn import Conversation, Role, Turn
from recollect.models.chat import Chat
from recollect.models.structured import InvalidAnswer, Partial
from recollect.prompts import prompt
from recollect.prompts.rendering import json_line, new_delimiter, shorten
from recollect.sessions.agent_runs import RunRecord, may_be_task, note_digest, notes_as_turns
from recollect.sessions.compress import SOURCE
from recollect.sessions.step_output import EPOCH, StepOutput, evidence_ids, run_ids, stable_id, turn_range
from recollect.sessions.summary_text import check_summary, turns_as_json
from recollect.text.instruction_rule import instruction_reason
from recollect.write.ask_llm import LlmAnswer, LlmCost, ask_for_json
from recollect.write.redact import redact
from recollect.write.screen import screen

MAX_STEPS = 20
MAX_LESSONS = 5
# The limits of what a model writes.
_MAX_WRITTEN_STEPS = 8
_MAX_WRITTEN_LESSONS = 3
_MAX_STEP_CHARS = 300
_MAX_TEXT_CHARS = 600
# Tool output is long, and nobody's word, so that a prompt shows little of it.
_MAX_OBSERVATION_CHARS = 200
_MAX_PROMPT_STEPS = 60
_MAX_TOKENS = 2_048
_IMPORTANCE = 0.6
_LESSON_CONFIDENCE = 0.6
_NO_TASK = "the model says that it was no task"

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


@frozen_dataclass(kw_only=True)
class TaskSummary:
    """The goal, steps, outcome and lessons of a task; `made` is "given" or "model"."""

    goal: str
    steps: tuple[str, ...] = ()
    outcome: str = ""
    lessons: tuple[str, ...] = ()
    summary: str = ""
    task: bool = True
    made: str = "given"
    digest: str | None = None
    model: str = ""

    @property
    def text(self) -> str:
        """Return the parts as text, a line each."""
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
        """Return the parts by name; lessons are one text."""
        return {
            "goal": self.goal,
            "steps": list(self.steps),
            "outcome": self.outcome,
            "lessons": "\n".join(self.lessons),
            **self.made_by,
        }

    @property
    def made_by(self) -> dict[str, str]:
        """Return how it was made, and by which LLM."""
        return {"made": self.made, **({MODEL: self.model} if self.model else {})}


def parse_task_summary(value: object) -> TaskSummary | Partial[TaskSummary]:
    """Parse a model's answer, or raise InvalidAnswer; a list of one object is accepted too."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, Mapping):
        raise InvalidAnswer("it must be one JSON object")
    task = value.get("task", True)
    summary = TaskSummary(
        goal=_text(value.get("goal")),
        steps=_texts(value.get("steps"), _MAX_WRITTEN_STEPS),
        outcome=_text(value.get("outcome")),
        lessons=_texts(value.get("lessons"), _MAX_WRITTEN_LESSONS),
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
    return redact(" ".join(normalise_invisible(value).split())).text[:_MAX_TEXT_CHARS]


@frozen_dataclass
class _TaskSource:
    """The origin of an episode; ids sort by the time `id_at`."""

    scope: Scope
    id: str
    at: datetime
    evidence: tuple[str, ...]
    detail: Mapping[str, Any]
    id_at: datetime


async def episode_of_run(
    conversation: Conversation, run: RunRecord, *, chat: Chat | None, now: datetime
) -> StepOutput:
    """Return the episode and lessons of a run that was a task, and in any case an invocation.

    A run that the conversation has an invocation of is skipped.
    """
    scope, stated = conversation.scope, _summary_from_run(run)
    if run.id in run_ids(conversation.invocations):
        return StepOutput(reasons=("the run was reported before",))
    summary, cost, reason = stated, LlmCost(), ""
    if chat is not None and run.is_task:
        answer, cost, reason = await _ask_summary(chat, _run_lines(run), _run_as_turns(scope, run))
        if answer is not None:
            # What the agent stated is certain; the model only adds the rest.
            lessons = stated.lessons or answer.lessons
            summary = replace(answer, goal=stated.goal, outcome=answer.outcome or stated.outcome, lessons=lessons)
    invocations = (_invocation(run, summary),)
    if not run.is_task:
        return StepOutput(invocations=invocations, reasons=("no episode: it took fewer than two steps",))
    if reason == _NO_TASK and not stated.lessons:
        return StepOutput(invocations=invocations, cost=cost, reasons=(f"no episode: {reason}",))
    detail = {"run_id": run.id, "success": run.success, "kind": "run"}
    # The run may be reported again later, so its episode's id depends on the run's id only.
    source = _TaskSource(scope, run.id, run.ended_at, run.turns, detail, id_at=EPOCH)
    return replace(_output(source, summary, cost, reason, now=now), invocations=invocations)


async def episode_of_turns_as_task(
    conversation: Conversation,
    turns: Sequence[Turn],
    *,
    chat: Chat | None,
    now: datetime,
) -> StepOutput:
    """Return the episode and lessons of turns that a model recognises as a task; else nothing."""
    if chat is None or not may_be_task(turns):
        reason = "there is no model to tell it" if chat is None else "it does not look like a task"
        return StepOutput(reasons=(f"no episode: {reason}",))
    clean = screen(turns).turns
    summary, cost, reason = await _ask_summary(chat, turns_as_json(clean), clean)
    if summary is None:
        return StepOutput(cost=cost, reasons=(f"no episode: {reason}",))
    at = max(turn.said_at for turn in turns)
    id = "\x1f".join(turn.id for turn in turns)
    detail = {**turn_range(turns), "kind": "task"}
    source = _TaskSource(conversation.scope, id, at, evidence_ids(turns), detail, id_at=at)
    return _output(source, summary, cost, "", now=now)


async def episode_of_notes(
    conversation: Conversation,
    invocations: Sequence[Mapping[str, Any]],
    *,
    chat: Chat | None,
    now: datetime,
    tasks_only: bool = False,
) -> StepOutput:
    """Return the episode and lessons of invocations that agents reported, by a model or else as reported.

    With `tasks_only`, what the model does not recognise as a task makes none. Small talk makes none in any case.
    """
    turns = notes_as_turns(conversation.scope, invocations, now=now)
    screened = screen(turns)
    if not screened.has_content:
        return StepOutput(reasons=(f"no episode: {screened.reason}",))
    summary, cost, reason = None, LlmCost(), ""
    if chat is not None:
        summary, cost, reason = await _ask_summary(chat, turns_as_json(screened.turns), screened.turns)
    if reason == _NO_TASK and tasks_only:
        return StepOutput(cost=cost, reasons=(f"no episode: {reason}",))
    at = max(turn.said_at for turn in turns)
    id = "\x1f".join(str(note_digest(each)) for each in invocations)
    source = _TaskSource(conversation.scope, id, at, (), {"kind": "task"}, id_at=at)
    return _output(source, summary or _summary_from_notes(invocations), cost, reason, now=now)


def _output(source: _TaskSource, summary: TaskSummary, cost: LlmCost, reason: str, *, now: datetime) -> StepOutput:
    reasons = (f"stored as reported: {reason}",) if reason else ()
    return StepOutput(changes=_changes(source, summary, now=now), cost=cost, reasons=reasons)


def _summary_from_notes(invocations: Sequence[Mapping[str, Any]]) -> TaskSummary:
    """Return the queries as the goal, the summaries as steps, and the last result as the outcome."""

    def texts(name: str, chars: int) -> list[str]:
        values = (_shorten(str(each.get(name) or ""), chars) for each in invocations)
        return list(dict.fromkeys(filter(None, values)))

    return TaskSummary(
        goal=_shorten("; ".join(texts("query", _MAX_STEP_CHARS)), _MAX_TEXT_CHARS),
        steps=tuple(texts("summary", _MAX_STEP_CHARS)[-MAX_STEPS:]),
        outcome=next(reversed(texts("result", _MAX_TEXT_CHARS)), ""),
    )


async def _ask_summary(chat: Chat, record: str, turns: Sequence[Turn]) -> tuple[TaskSummary | None, LlmCost, str]:
    """Return the model's summary if the turns support it, its cost, and otherwise the reason."""
    template = prompt("episode")
    answer: LlmAnswer[TaskSummary] = await ask_for_json(
        chat,
        template.fill(fence=new_delimiter(), record=record),
        schema=SCHEMA,
        check=parse_task_summary,
        max_tokens=_MAX_TOKENS,
    )
    if answer.value is None:
        return None, answer.cost, answer.reason
    summary = replace(answer.value, made="model", digest=template.digest, model=answer.cost.model)
    # Lessons are judged one by one: an instruction waits for a person, the others need not.
    reason = check_summary(replace(summary, lessons=()).text, "", turns) if summary.task else _NO_TASK
    return (None if reason else summary), answer.cost, reason


def _summary_from_run(run: RunRecord) -> TaskSummary:
    """Return the summary that the record itself states."""
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
    """Return the run as turns, to check a summary against."""
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
        f"The user asked “{summary.goal}”; the agent did: {steps}; the result was: {summary.outcome or 'unknown'}"
    )
    invocation = {
        "query": summary.goal,
        "summary": summary.summary if summary.summary and not instruction_reason(summary.summary) else description,
        "result": summary.outcome,
        "timestamp": run.ended_at.isoformat(),
        "run_id": run.id,
    }
    return {**invocation, "turn_end": run.last_turn} if run.last_turn else invocation


def _changes(source: _TaskSource, summary: TaskSummary, *, now: datetime) -> tuple[Add, ...]:
    """Return the episode and its lessons; a lesson that instructs waits for review and is not in the episode."""
    reasons = {lesson: instruction_reason(lesson) for lesson in summary.lessons}
    approved = tuple(lesson for lesson, reason in reasons.items() if not reason)
    summary = replace(summary, lessons=approved)
    episode = _episode(source, summary, now=now)
    lessons = [_lesson(source, lesson, reason, episode, summary, now=now) for lesson, reason in reasons.items()]
    return (Add(episode), *map(Add, lessons))


def _episode(source: _TaskSource, summary: TaskSummary, *, now: datetime) -> MemoryRecord:
    detail = {**source.detail, **summary.detail}
    if review := instruction_reason("\n".join([summary.outcome, *summary.steps])):
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
    detail = {"episode_id": episode.id, **summary.made_by, **({"review": review} if review else {})}
    return replace(
        episode,
        id=stable_id(source.scope, "lesson", at=source.id_at, source_ids=[source.id, text_hash(lesson)]),
        type=MemoryType.REFLECTIVE,
        category=Category.LESSON,
        content=lesson,
        confidence=_LESSON_CONFIDENCE,
        detail=detail,
        status=Status.REVIEW if review else Status.ACTIVE,
    )


def _shorten(text: str, chars: int) -> str:
    return shorten(" ".join(redact(text).text.split()), chars)
