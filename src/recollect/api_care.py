"""The part of the Python door that looks after a memory: jobs, sessions, review, erasure, cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from recollect.api_open import _ServiceAccess
from recollect.errors import InvalidInput
from recollect.model.asked import parse_author, parse_limit, parse_number, parse_scope, parse_time, parse_wait
from recollect.model.change import Actor, Outcome
from recollect.model.erase import Erasure, ErasureRequest, Receipt, Target, parse_erasure, user_digest
from recollect.model.given import RecordFields, TimeInput
from recollect.model.job import Job, JobState
from recollect.model.key import ApiKey, NewKey
from recollect.model.result import Page
from recollect.model.scope import Scope
from recollect.model.times import as_utc
from recollect.model.turn import Conversation
from recollect.model.usage import Part, SpentToday, Usage

if TYPE_CHECKING:
    from recollect.care import Operations
    from recollect.upkeep.report import MaintenanceReport, MaintenanceTask
    from recollect.upkeep.worker import Worker


class _OperationsMixin(_ServiceAccess):
    """What is done with a memory as a whole, and the work behind the answers."""

    async def _operations(self) -> Operations:
        return (await self._open()).operations

    async def end_session(
        self, *, user_id: str, session_id: str, project_id: str | None = None, wait: bool | float = False
    ) -> Job:
        """End a session: what is left of it is learned, its episode is kept, what matters goes to the long term."""
        operations = await self._operations()
        scope = parse_scope(user_id, project_id, session_id)
        if self.settings.worker:
            operations.start()
        job = await operations.end_session(scope)
        within_s = parse_wait(wait)
        return await operations.wait_for_job_chain(job, within_s=within_s) if within_s else job

    async def end_run(
        self,
        goal: str,
        *,
        user_id: str,
        session_id: str,
        project_id: str | None = None,
        steps: Sequence[Mapping[str, str]] = (),
        answer: str = "",
        success: bool | None = None,
        lessons: Sequence[str] = (),
        run_id: str | None = None,
    ) -> tuple[Outcome, ...]:
        """Keep what an agent's run came to: its goal, steps, outcome and lessons, as an episode if it was a task.

        A step is {"kind": "thought" | "action" | "observation", "content": ...}. The same `run_id` twice is once.
        """
        from recollect.conversation.run import parse_run

        scope = parse_scope(user_id, project_id, session_id)
        run = parse_run(run_id, goal, steps=steps, answer=answer, success=success, lessons=lessons)
        return await (await self._operations()).end_run(scope, run)

    async def sessions(self, *, user_id: str, limit: int = 100) -> list[Conversation]:
        """A user's sessions, the latest first."""
        return await (await self._operations()).sessions(Scope(user_id).user, limit=parse_limit(limit))

    async def job(self, job_id: str, *, user_id: str) -> Job:
        """A job and how it stands."""
        return await (await self._operations()).job(Scope(user_id).user, job_id)

    async def jobs(
        self, *, user_id: str | None = None, states: Sequence[JobState | str] = (), limit: int = 100
    ) -> list[Job]:
        """The work behind the answers, newest first: what waits, runs, is done or has failed for good."""
        job_states = [parse_job_state(state) for state in states]
        return await (await self._operations()).jobs(user_id, states=job_states, limit=parse_limit(limit))

    async def replay_jobs(self, job_ids: Sequence[str], *, user_id: str) -> list[Job]:
        """Have dead and cancelled jobs done after all."""
        operations = await self._operations()
        if self.settings.worker:
            operations.start()
        return await operations.replay(Scope(user_id).user, job_ids)

    async def cancel_jobs(self, job_ids: Sequence[str], *, user_id: str) -> list[Job]:
        """Keep waiting and running jobs from having any effect."""
        return await (await self._operations()).cancel(Scope(user_id).user, job_ids)

    async def work(self) -> int:
        """Do the jobs that are due and all that comes of them, of all users; gives how many that were."""
        return await (await self._operations()).run_pending()

    async def start_worker(self) -> Worker:
        """Begin to do jobs here, as they come, until the memory is closed."""
        await self._watch_model()
        operations = await self._operations()
        operations.start()
        return operations.worker

    async def erase(
        self,
        *,
        user_id: str,
        project_id: str | None = None,
        session_id: str | None = None,
        turn_id: str | None = None,
        memory_id: str | None = None,
        everything: bool = False,
        by: str = "python",
        why: str = "",
    ) -> Receipt:
        """Remove for good: a session, a project, one turn or memory, or with `everything` all of the user.

        What was derived from it goes too. It cannot be undone; the receipt says what went from each store. The turns
        that a memory was learned from are forgotten with it, and told of as `hidden`: erase them, too, by `turn_id`.
        """
        ids = {"project_id": project_id, "session_id": session_id, "turn_id": turn_id, "memory_id": memory_id}
        if empty := [name for name, id in ids.items() if id is not None and not id]:
            raise InvalidInput(f"{empty[0]} is empty; leave it out, or say what to erase")
        scope = parse_scope(user_id, project_id, session_id)
        request = parse_erasure_request(scope, turn_id, memory_id)
        if (request.target is Target.USER) != everything:
            raise InvalidInput("to erase all of a user say everything=True, and name nothing else")
        return await (await self._operations()).erase(scope, request, by=parse_author(by, why))

    async def erasures(self, *, since: TimeInput | None = None, user_id: str | None = None) -> list[Erasure]:
        """What was erased, of anyone or of one user, oldest first: ids and digests, none of what it said.

        Kept outside the database, it is replayed on a copy of it that is older: `each.to_dict()` is a line of JSON.
        """
        recorded = await (await self._operations()).erasures(parse_time(since, name="since"))
        return [each for each in recorded if user_id is None or each.user == user_digest(Scope(user_id).user)]

    async def replay_erasures(
        self, erasures: Iterable[Erasure | Mapping[str, Any]], *, by: str = "python", why: str = ""
    ) -> list[Receipt]:
        """Erase again, in a database restored from an older copy, what was erased since; a receipt for each.

        What this database knows of, or has nothing of, is passed over: doing it twice changes nothing. Do it before
        anything is written: a session that was erased goes whole.
        """
        parsed = [each if isinstance(each, Erasure) else parse_erasure(each) for each in erasures]
        return await (await self._operations()).replay_erasures(parsed, by=parse_author(by, why))

    async def propose(
        self,
        content: str,
        *,
        user_id: str,
        project_id: str | None = None,
        session_id: str | None = None,
        by: str = "python",
        why: str = "",
        **fields: Unpack[RecordFields],
    ) -> Outcome:
        """Keep a memory that is not used before a person has approved it; `why` tells them what is to be decided."""
        scope = parse_scope(user_id, project_id, session_id)
        return await (await self._operations()).propose(scope, content, fields, by=parse_author(by, why))

    async def reviews(
        self, *, user_id: str, project_id: str | None = None, session_id: str | None = None, limit: int = 100
    ) -> Page:
        """What was learned but is not used before a person has looked at it, oldest first."""
        scope = parse_scope(user_id, project_id, session_id)
        return await (await self._operations()).reviews(scope, limit=parse_limit(limit))

    async def approve(
        self,
        memory_id: str,
        *,
        user_id: str,
        by: str,
        actor: Actor | str = Actor.PERSON,
        expected_version: int | None = None,
        why: str = "",
    ) -> Outcome:
        """Let a memory that waits for review be recalled; `by` is the person who has looked at it.

        An agent cannot approve, nor can whoever proposed it: where an agent may be calling, say so by `actor`.
        With `expected_version` nothing is approved that was changed since it was looked at.
        """
        who = parse_author(by, why, actor=actor)
        version = parse_number(expected_version, name="expected_version")
        reviewed = await (await self._operations()).approve(
            Scope(user_id), memory_id, by=who, expected_version=version
        )
        return reviewed.outcome

    async def reject(
        self,
        memory_id: str,
        *,
        user_id: str,
        by: str = "python",
        expected_version: int | None = None,
        why: str = "",
    ) -> Outcome:
        """Forget a memory that waits for review; it was never used."""
        version = parse_number(expected_version, name="expected_version")
        operations = await self._operations()
        reviewed = await operations.reject(
            Scope(user_id), memory_id, by=parse_author(by, why), expected_version=version
        )
        return reviewed.outcome

    async def edit_review(
        self,
        memory_id: str,
        content: str | None = None,
        *,
        user_id: str,
        by: str = "python",
        expected_version: int | None = None,
        **fields: Unpack[RecordFields],
    ) -> Outcome:
        """Change what a memory that waits for review says; it goes on waiting."""
        changes: dict[str, Any] = dict(fields) if content is None else {**fields, "content": content}
        version = parse_number(expected_version, name="expected_version")
        operations = await self._operations()
        reviewed = await operations.edit_review(
            Scope(user_id), memory_id, changes, by=parse_author(by), expected_version=version
        )
        return reviewed.outcome

    async def upkeep(
        self,
        chores: Sequence[MaintenanceTask | str] = ("expire", "quota", "prune", "consolidate"),
        *,
        user_id: str,
        project_id: str | None = None,
        dry_run: bool = False,
        by: str = "python",
    ) -> list[MaintenanceReport]:
        """Put a user's memories in order now: expire, quota, prune, consolidate, reflect; each can be undone whole.

        A dry run only says what it would do.
        """
        from recollect.upkeep.report import parse_tasks

        scope = parse_scope(user_id, project_id, None)
        return await (await self._operations()).run_maintenance(
            scope, parse_tasks(chores), by=parse_author(by), dry_run=dry_run
        )

    async def add_key(
        self,
        *,
        user_id: str | None = None,
        project_id: str | None = None,
        everyone: bool = False,
        admin: bool = False,
        read: bool = True,
        write: bool = True,
        name: str = "",
        expires_at: TimeInput | None = None,
    ) -> NewKey:
        """Make a key for the server: for one user, for everyone, or for an admin. Its text is told this once."""
        until = None if expires_at is None else as_utc(expires_at, name="expires_at")
        return await (await self._open()).api_keys.add(
            user=user_id,
            project=project_id,
            everyone=everyone,
            admin=admin,
            reads=read,
            writes=write,
            name=name,
            expires_at=until,
        )

    async def keys(self, *, user_id: str | None = None) -> list[ApiKey]:
        """All keys of the server, or a user's, the oldest first."""
        return await (await self._open()).api_keys.list_keys(user_id)

    async def revoke_key(self, key_id: str) -> ApiKey:
        """Have a key open nothing any more."""
        return await (await self._open()).api_keys.revoke(key_id)

    async def usage(
        self,
        *,
        user_id: str | None = None,
        since: TimeInput | None = None,
        parts: Sequence[Part] = ("day", "model", "step"),
    ) -> list[Usage]:
        """What the LLM was asked, and what that came to, by day, model and step."""
        return await (await self._operations()).usage(user_id, since=parse_time(since, name="since"), by=parts)

    async def spent_today(self, *, user_id: str | None = None) -> SpentToday:
        """What the LLM cost since midnight, UTC, for a user or for all: what the day's limits are about."""
        return await (await self._operations()).spent_today(user_id)


def parse_job_state(state: str) -> JobState:
    """The state of this name, or an InvalidInput that says which there are."""
    if state not in tuple(JobState):
        raise InvalidInput(f"there is no state {state!r} of a job; there are {', '.join(JobState)}")
    return JobState(state)


def parse_erasure_request(scope: Scope, turn_id: str | None, memory_id: str | None) -> ErasureRequest:
    """What the ids ask to erase: the narrowest that is named."""
    if turn_id is not None and memory_id is not None:
        raise InvalidInput("give either a turn_id or a memory_id to erase, not both")
    if turn_id is not None:
        return ErasureRequest(Target.TURN, turn_id)
    if memory_id is not None:
        return ErasureRequest(Target.MEMORY, memory_id)
    return ErasureRequest(Target.SESSION if scope.session else Target.PROJECT if scope.project else Target.USER)
