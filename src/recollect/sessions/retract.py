"""Remove forgotten turns from what was derived from a conversation: its summary, invocations and episodes."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

from recollect.deps import Deps
from recollect.errors import Conflict
from recollect.ledger.ledger import Ledger, read_pages
from recollect.model.change import Author, Change, ConversationUpdate, Effect, EnqueueJob, Forget, Update
from recollect.model.erasure import Remade
from recollect.model.job import JobKind, NewJob
from recollect.model.memory import MODEL, Category, MemoryRecord, Status
from recollect.model.query import And, Listing, any_of
from recollect.model.scope import Scope
from recollect.model.turn import Conversation
from recollect.sessions.compress import episode_id
from recollect.sessions.lifecycle import MAX_TURNS, SESSION_AUTHOR, rebuild_job
from recollect.sessions.step_output import RETRACTIONS, merge_marks, retraction_count, step_position
from recollect.sessions.summarize import RETRACTED, extract_summary, summary_id
from recollect.write.embed import embed_changes
from recollect.write.triggers import job_key

_TurnRange: TypeAlias = tuple[int, int]
_MAX_TRIES = 20
_PAGE = 1000
_log = logging.getLogger("recollect")


async def retract_turns(records: Collection[MemoryRecord], deps: Deps) -> None:
    """Retract the forgotten turns among some records; jobs remake the summaries and episodes from the others.

    The changes are no part of the forgetting, so that its undo does not depend on what was remade since.
    """
    by_session: dict[Scope, set[int]] = {}
    for record in records:
        if record.category is Category.TURN and record.status is Status.FORGOTTEN:
            by_session.setdefault(record.scope, set()).add(int(record.detail["position"]))
    for scope, positions in by_session.items():
        for tries_left in range(_MAX_TRIES - 1, -1, -1):
            try:
                # The last try overwrites what others wrote: nothing forgotten may stay in a summary.
                await _retract(scope, positions, deps, is_forced=not tries_left)
                break
            except Conflict as error:
                # The turns are forgotten already, so this must not fail.
                if not tries_left:
                    _log.error("a summary may still repeat forgotten turns, summarise the session: %s", error)


async def _retract(scope: Scope, positions: Collection[int], deps: Deps, *, is_forced: bool) -> None:
    conversation = await deps.ledger.conversation(scope)
    if not conversation.turn_count:
        return
    fields, changes = await _retract_from_summary(conversation, positions, deps.ledger)
    jobs = [NewJob(kind=JobKind.SUMMARISE, key=job_key(scope))] if fields else []
    for episode in await _covering_episodes(scope, positions, deps.ledger):
        changes.append(Forget(episode.id, episode.version))
        at_end = episode.detail.get("kind") == "session"
        job = rebuild_job(Remade(str(episode.category), scope, (), _turn_range(episode.detail), at_end))
        jobs += [job] if job is not None else []
    metadata = {
        **conversation.metadata,
        **fields.get("metadata", {}),
        RETRACTIONS: retraction_count(conversation) + 1,
    }
    version = None if is_forced else conversation.version
    update = ConversationUpdate(scope, {**fields, "metadata": metadata}, version)
    effects: list[Effect] = [update, *(EnqueueJob(scope, job) for job in jobs)]
    embedded = await embed_changes(changes, embedder=deps.embedder)
    await deps.ledger.apply(scope, embedded, by=Author(SESSION_AUTHOR, "turns were forgotten"), effects=effects)


async def _retract_from_summary(
    conversation: Conversation, positions: Collection[int], ledger: Ledger
) -> tuple[dict[str, Any], list[Change]]:
    """Return the fields of the conversation, and the changes of its summary, without these turns."""
    scope, done = conversation.scope, step_position(conversation, "summary")
    fields: dict[str, Any] = {}
    left = [each for each in conversation.invocations if not _overlaps(_turn_range(each), positions)]
    if len(left) < len(conversation.invocations):
        fields["invocations"] = left
    summaries = await ledger.get(scope, [summary_id(scope)])
    stored = next((each for each in summaries if each.status is Status.ACTIVE), None)
    # A summary without a position was set by a client, and may be about any turn.
    if not (conversation.summary or stored) or (done and min(positions) > done):
        return fields, []
    turns = await ledger.turns(scope, after=0, limit=MAX_TURNS)
    extract = extract_summary([turn for turn in turns if not done or turn.position <= done])
    # From position 0 on, the next update summarises all turns.
    fields |= {"summary": extract.text, "metadata": merge_marks(conversation, {"summary": 0})}
    if stored is None:
        return fields, []
    detail = {name: value for name, value in stored.detail.items() if name != MODEL} | extract.detail
    new = {"content": extract.text, "trust": extract.trust, "prompt_digest": None, "detail": detail}
    if extract.text:
        return fields, [Update(stored.id, new, stored.version)]
    marked = {"detail": {**stored.detail, RETRACTED: True}}
    return fields, [Update(stored.id, marked, stored.version), Forget(stored.id)]


async def _covering_episodes(scope: Scope, positions: Collection[int], ledger: Ledger) -> list[MemoryRecord]:
    in_session = And((any_of("category", str(Category.EPISODE)), any_of("session_id", scope.session)))
    pages = read_pages(ledger, Scope(scope.user), Listing(filter=in_session, limit=_PAGE))
    episodes = [record async for page in pages for record in page if record.scope == scope]
    covering = [each for each in episodes if _overlaps(_turn_range(each.detail), positions)]
    return [each for each in covering if not await _is_remade(each, ledger)]


async def _is_remade(episode: MemoryRecord, ledger: Ledger) -> bool:
    """Return whether it was made from the turns that are left: made again, it would have the same id."""
    first, last = _turn_range(episode.detail) or (1, 0)
    turns = await ledger.turns(episode.scope, after=first - 1, limit=MAX_TURNS)
    left = [turn for turn in turns if turn.position <= last]
    return bool(left) and episode.id == episode_id(episode.scope, str(episode.detail.get("kind")), left)


def _turn_range(detail: Mapping[str, Any]) -> _TurnRange | None:
    first, last = detail.get("turn_start"), detail.get("turn_end")
    return (first, last) if isinstance(first, int) and isinstance(last, int) else None


def _overlaps(turns: _TurnRange | None, positions: Collection[int]) -> bool:
    return turns is not None and any(turns[0] <= position <= turns[1] for position in positions)
