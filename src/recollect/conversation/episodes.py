"""What was worked on, as an episode: its goal, the steps taken, the outcome, and lessons that stand alone.

Of a run, everything that was given explicitly is kept as it is, with or without a model. Of a talk, only a model can
say whether it was work, and at what.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from recollect.conversation.asking import spread, talk_lines
from recollect.conversation.compress import SOURCE
from recollect.conversation.run import Run, looks_like_task
from recollect.conversation.story import SCHEMA, Story, story_of
from recollect.conversation.told import as_turns, mark_for
from recollect.conversation.worth import good_enough
from recollect.conversation.written import NO_TIME, Cost, Written, evidence_of, range_of, runs_of, stable_id
from recollect.errors import BrokenAnswer, InvalidInput, InvalidSettings
from recollect.model.change import Add
from recollect.model.memory import Category, MemoryRecord, MemoryType, Status, Trust, text_hash
from recollect.model.scope import Scope
from recollect.model.turn import Conversation, Role, Turn
from recollect.models.chat import Chat
from recollect.models.structured import ask_json
from recollect.prompts import prompt
from recollect.prompts.data import json_line, new_fence, shortened
from recollect.write.screening.imperatives import imperative_in
from recollect.write.screening.redact import redact
from recollect.write.screening.screen import screen

MAX_STEPS = 20
MAX_LESSONS = 5
_MAX_TOKENS = 2_048
_MOST_STEP_CHARS = 300
_MOST_CHARS = 600
# Of what tools answer little is shown: it is long, and nobody's word.
_MOST_OBSERVED_CHARS = 200
_MOST_SHOWN_STEPS = 60
_IMPORTANCE = 0.6
_LESSON_IMPORTANCE = 0.6
_LESSON_CONFIDENCE = 0.6
_NO_TASK = "the model says that it was no task"
_REVIEW = "it tells what to do ('{phrase}'), and the user did not say it"


@dataclass(frozen=True, slots=True)
class _Work:
    """Something that was worked on, and where it is told; ids sort by the time `id_at`."""

    scope: Scope
    id: str
    at: datetime
    evidence: tuple[str, ...]
    detail: Mapping[str, Any]
    id_at: datetime


async def episode_of_run(
    conversation: Conversation, run: Run, *, chat: Chat | None, now: datetime, timeout_s: float | None = None
) -> Written:
    """The episode and the lessons of a run that was a task, and an invocation of the conversation in any case.

    A run that the conversation already has an invocation of is done with.
    """
    scope, given = conversation.scope, _given(run)
    if run.id in runs_of(conversation.invocations):
        return Written(reasons=("the run was told before",))
    story, cost, why = given, Cost(), ""
    if chat is not None and run.is_task:
        told, cost, why = await _told(chat, _record(run), _as_turns(scope, run), timeout_s)
        # What was given is known; a model may only say the rest.
        if told is not None:
            lessons = given.lessons or told.lessons
            story = replace(told, goal=given.goal, outcome=told.outcome or given.outcome, lessons=lessons)
    told_of = (_invocation(run, story),)
    if not run.is_task:
        return Written(invocations=told_of, reasons=("no episode: it took fewer than two steps",))
    if why == _NO_TASK and not given.lessons:
        return Written(invocations=told_of, cost=cost, reasons=(f"no episode: {why}",))
    detail = {"run_id": run.id, "success": run.success, "kind": "run"}
    # Whoever tells of the run again does it later: its id is what it is known by.
    work = _Work(scope, run.id, run.ended_at, run.turns, detail, id_at=NO_TIME)
    return Written(
        changes=_changes(work, story, now=now),
        invocations=told_of,
        cost=cost,
        reasons=(f"told as it was given: {why}",) if why else (),
    )


async def episode_of_talk(
    conversation: Conversation,
    turns: Sequence[Turn],
    *,
    chat: Chat | None,
    now: datetime,
    timeout_s: float | None = None,
) -> Written:
    """The episode and the lessons of a talk that was work on a task, as a model tells it; else nothing."""
    if chat is None or not looks_like_task(turns):
        why = "there is no model to tell it" if chat is None else "it does not look like a task"
        return Written(reasons=(f"no episode: {why}",))
    clean = screen(turns).turns
    story, cost, why = await _told(chat, talk_lines(spread(clean)), clean, timeout_s)
    if story is None:
        return Written(cost=cost, reasons=(f"no episode: {why}",))
    ids = [turn.id for turn in turns]
    at = max(turn.said_at for turn in turns)
    detail = {**range_of(turns), "kind": "task"}
    work = _Work(conversation.scope, "\x1f".join(ids), at, evidence_of(turns), detail, id_at=at)
    return Written(changes=_changes(work, story, now=now), cost=cost)


async def episode_of_told(
    conversation: Conversation,
    invocations: Sequence[Mapping[str, Any]],
    *,
    chat: Chat | None,
    now: datetime,
    tasks_only: bool = False,
    timeout_s: float | None = None,
) -> Written:
    """The episode and the lessons of what agents told of a conversation: as a model tells it, else as it was told.

    What a model takes for no task makes none if only tasks are wanted; small talk makes none in any case.
    """
    turns = as_turns(conversation.scope, invocations, now=now)
    screened = screen(turns)
    if not screened.worth:
        return Written(reasons=(f"no episode: {screened.reason}",))
    story, cost, why = None, Cost(), ""
    if chat is not None:
        story, cost, why = await _told(chat, talk_lines(spread(screened.turns)), screened.turns, timeout_s)
    if why == _NO_TASK and tasks_only:
        return Written(cost=cost, reasons=(f"no episode: {why}",))
    at = max(turn.said_at for turn in turns)
    id = "\x1f".join(str(mark_for(each)) for each in invocations)
    work = _Work(conversation.scope, id, at, (), {"kind": "task"}, id_at=at)
    return Written(
        changes=_changes(work, story or _as_told(invocations), now=now),
        cost=cost,
        reasons=(f"told as it was given: {why}",) if why else (),
    )


def _as_told(invocations: Sequence[Mapping[str, Any]]) -> Story:
    """What was asked, what was done for it one after the other, and what it came to in the end."""

    def texts(name: str, chars: int) -> list[str]:
        found = (_short(str(each.get(name) or ""), chars) for each in invocations)
        return list(dict.fromkeys(filter(None, found)))

    return Story(
        goal=_short("; ".join(texts("query", _MOST_STEP_CHARS)), _MOST_CHARS),
        steps=tuple(texts("summary", _MOST_STEP_CHARS)[-MAX_STEPS:]),
        outcome=next(reversed(texts("result", _MOST_CHARS)), ""),
    )


async def _told(
    chat: Chat, record: str, said: Sequence[Turn], timeout_s: float | None
) -> tuple[Story | None, Cost, str]:
    """The story as the model tells it if it can be believed, what it cost, and else why not."""
    asked = prompt("episode")
    question = asked.fill(fence=new_fence(), record=record)
    try:
        answer = await ask_json(
            chat,
            [{"role": "user", "content": question}],
            schema=SCHEMA,
            max_tokens=_MAX_TOKENS,
            timeout_s=timeout_s,
            check=story_of,
        )
    except BrokenAnswer as error:
        return None, Cost(error.calls, error.tokens_in, error.tokens_out, chat.model), str(error)
    except InvalidSettings:
        raise
    except InvalidInput as error:
        return None, Cost(model=chat.model), f"the model refuses what it is asked: {error}"
    cost = Cost(answer.calls, answer.tokens_in, answer.tokens_out, answer.model)
    story = replace(answer.value, made="model", digest=asked.digest)
    # Lessons are judged one by one: what instructs waits for a person, and the rest need not.
    why = good_enough(replace(story, lessons=()).plain, "", said).reason if story.task else _NO_TASK
    return (None if why else story), cost, why


def _given(run: Run) -> Story:
    """What the record says by itself."""
    outcome = run.answer or ("" if run.success is None else "It succeeded." if run.success else "It failed.")
    return Story(
        goal=_short(run.goal, _MOST_CHARS),
        steps=tuple(_short(action, _MOST_STEP_CHARS) for action in run.actions[:MAX_STEPS]),
        outcome=_short(outcome, _MOST_CHARS),
        lessons=tuple(_short(lesson, _MOST_STEP_CHARS) for lesson in run.lessons[:MAX_LESSONS] if lesson.strip()),
    )


def _record(run: Run) -> str:
    lines = [json_line({"asked": _short(run.goal, _MOST_CHARS)})]
    for step in run.steps[-_MOST_SHOWN_STEPS:]:
        chars = _MOST_OBSERVED_CHARS if step.kind == "observation" else _MOST_STEP_CHARS
        lines.append(json_line({str(step.kind): _short(step.content, chars)}))
    lines.append(json_line({"said at the end": _short(run.answer, _MOST_CHARS), "success": run.success}))
    return "\n".join(lines)


def _as_turns(scope: Scope, run: Run) -> list[Turn]:
    """The run as if it had been a talk, to hold a story against it."""
    texts = [(Role.USER, run.goal), *((Role.ASSISTANT, step.content) for step in run.steps)]
    texts.append((Role.ASSISTANT, run.answer))
    return [
        Turn(id=str(at), scope=scope, role=role, content=text, said_at=run.ended_at)
        for at, (role, text) in enumerate(texts)
        if text
    ]


def _invocation(run: Run, story: Story) -> dict[str, Any]:
    steps = "; ".join(story.steps) or "nothing but answer"
    told = f"The user asked “{story.goal}”; the agent did: {steps}; the result was: {story.outcome or 'not told'}"
    invocation = {
        "query": story.goal,
        "summary": story.summary if story.summary and not _review(story.summary) else told,
        "result": story.outcome,
        "timestamp": run.ended_at.isoformat(),
        "run_id": run.id,
    }
    return {**invocation, "turn_end": run.last_turn} if run.last_turn else invocation


def _changes(work: _Work, story: Story, *, now: datetime) -> tuple[Add, ...]:
    """The episode, then its lessons; what instructs waits for a person and is not told in the episode."""
    reasons = {lesson: _review(lesson) for lesson in story.lessons}
    seen = tuple(lesson for lesson, reason in reasons.items() if not reason)
    story = replace(story, lessons=seen)
    episode = _episode(work, story, now=now)
    lessons = [_lesson(work, lesson, reason, episode, story, now=now) for lesson, reason in reasons.items()]
    return (Add(episode), *map(Add, lessons))


def _episode(work: _Work, story: Story, *, now: datetime) -> MemoryRecord:
    detail = {**work.detail, **story.detail, "made": story.made}
    if review := _review("\n".join([story.outcome, *story.steps])):
        detail["review"] = review
    return MemoryRecord(
        id=stable_id(work.scope, "task", at=work.id_at, of=[work.id]),
        scope=work.scope,
        level=work.scope.natural_level,
        type=MemoryType.EPISODIC,
        category=Category.EPISODE,
        content=story.plain,
        created_at=now,
        updated_at=now,
        occurred_at=work.at,
        importance=_IMPORTANCE,
        source=SOURCE,
        trust=Trust.LOW,
        evidence=work.evidence,
        detail=detail,
        status=Status.REVIEW if review else Status.ACTIVE,
        prompt_digest=story.digest,
    )


def _lesson(
    work: _Work, lesson: str, review: str, episode: MemoryRecord, story: Story, *, now: datetime
) -> MemoryRecord:
    detail = {"episode_id": episode.id, "made": story.made, **({"review": review} if review else {})}
    return replace(
        episode,
        id=stable_id(work.scope, "lesson", at=work.id_at, of=[work.id, text_hash(lesson)]),
        type=MemoryType.REFLECTIVE,
        category=Category.LESSON,
        content=lesson,
        importance=_LESSON_IMPORTANCE,
        confidence=_LESSON_CONFIDENCE,
        detail=detail,
        status=Status.REVIEW if review else Status.ACTIVE,
    )


def _review(text: str) -> str:
    phrase = imperative_in(text)
    return _REVIEW.format(phrase=phrase) if phrase else ""


def _short(text: str, chars: int) -> str:
    return shortened(" ".join(redact(text).text.split()), chars)
