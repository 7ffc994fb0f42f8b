"""Export a ledger as JSON lines, and parse such lines."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from recollect.aio.slices import TimeSlice
from recollect.errors import InvalidInput
from recollect.ledger.codec import unpack_vector
from recollect.ledger.ledger import Ledger, read_pages
from recollect.model.change import ConversationUpdate, Vector
from recollect.model.erasure import TombstoneSet
from recollect.model.memory import MemoryRecord, Status
from recollect.model.query import Listing
from recollect.model.scope import Scope
from recollect.model.times import as_utc
from recollect.model.turn import Conversation
from recollect.models.embedding import EmbeddingModel
from recollect.sessions.step_output import MAX_INVOCATIONS
from recollect.transfer.import_ import RecordWriter, parse_count, parse_record
from recollect.write.embed import normalize_vector

PAGE_SIZE = 500
# The kinds of lines that are not memories.
SESSION_LINE = "session"
TOMBSTONES_LINE = "tombstones"
_MAX_KEYS = 16
_HEX = re.compile("[0-9a-f]{32,64}")


async def export(
    scope: Scope, *, ledger: Ledger, sessions: bool = True, model: EmbeddingModel | None = None
) -> AsyncIterator[dict[str, Any]]:
    """Yield the memories and turns of the scope in any state, oldest first, with their vectors of a `model`.

    With `sessions`, the states of the sessions and the tombstones of a user follow.
    """
    listing = Listing(statuses=tuple(Status), order="oldest", limit=PAGE_SIZE)
    async for page in read_pages(ledger, scope, listing):
        vectors = await ledger.vectors(scope.user, [each.id for each in page], model=model) if model else {}
        for record in page:
            line = record.to_dict()
            if model and record.id in vectors:
                line["embedding"] = {"model": model.name, "packed": b64encode(vectors[record.id]).decode()}
            yield line
    if sessions:
        async for line in _sessions(scope, ledger=ledger):
            yield line
    if sessions and scope == Scope(scope.user):
        tombstones = await ledger.tombstones(scope.user)
        digests = sorted((digest, at.isoformat()) for digest, at in tombstones.digests.items())
        for start in range(0, len(digests), PAGE_SIZE):
            some = dict(digests[start : start + PAGE_SIZE])
            yield {"kind": TOMBSTONES_LINE, "user_id": scope.user, "keys": list(tombstones.keys), "digests": some}


async def _sessions(scope: Scope, *, ledger: Ledger) -> AsyncIterator[dict[str, Any]]:
    after = None
    while page := await ledger.conversations(scope.user, limit=PAGE_SIZE, after=after):
        for each in page:
            if scope.project in ("", each.scope.project) and scope.session in ("", each.scope.session):
                yield {"kind": SESSION_LINE, **each.to_dict()}
        after = page[-1]


@dataclass(slots=True)
class ParsedExport:
    """The memories of some lines with their usable vectors by id, the sessions, and the tombstones by user."""

    records: list[MemoryRecord] = field(default_factory=list)
    vectors: dict[str, Vector] = field(default_factory=dict)
    sessions: list[Conversation] = field(default_factory=list)
    tombstones: list[tuple[str, TombstoneSet]] = field(default_factory=list)

    def add(self, line: Any, *, user: str | None, model: EmbeddingModel) -> MemoryRecord | None:
        """Parse a line; return its memory, if it is one. `user` replaces the user that it names."""
        kind = line.get("kind") if isinstance(line, Mapping) else None
        if kind == SESSION_LINE:
            self.sessions.append(parse_session(line, user=user))
            return None
        if kind == TOMBSTONES_LINE:
            self.tombstones.append(parse_tombstones(line, user=user))
            return None
        record = parse_record(line, user=user)
        vector = parse_vector(line, model)
        if vector is not None:
            self.vectors[record.id] = vector
        self.records.append(record)
        return record


async def parse_lines(
    lines: Iterable[Mapping[str, Any]], *, model: EmbeddingModel, user: str | None = None, done: int = 0
) -> ParsedExport:
    """Parse lines that follow `done` others; an error names the line."""
    parsed, time_slice = ParsedExport(), TimeSlice()
    for number, line in enumerate(lines, done + 1):
        await time_slice.pause()
        try:
            parsed.add(line, user=user, model=model)
        except InvalidInput as error:
            raise InvalidInput(f"line {number}: {error}; the {done} lines before are imported") from None
    return parsed


def parse_tombstones(line: Mapping[str, Any], *, user: str | None = None) -> tuple[str, TombstoneSet]:
    """Return the user and the tombstones of a line; `user` replaces the user that it names."""
    owner = Scope(user or line.get("user_id") or "").user
    keys, digests = line.get("keys"), line.get("digests")
    if not owner or not isinstance(keys, list) or len(keys) > _MAX_KEYS or not isinstance(digests, Mapping):
        raise InvalidInput(f"tombstones need a user_id, a list of up to {_MAX_KEYS} keys and an object of digests")
    if not all(isinstance(each, str) and _HEX.fullmatch(each) for each in (*keys, *digests)):
        raise InvalidInput("keys and digests of tombstones must be hexadecimal, of 32 to 64 digits")
    times = {digest: as_utc(at, name="digests") for digest, at in digests.items()}
    return owner, TombstoneSet(tuple(keys), times)


def parse_vector(line: Mapping[str, Any], model: EmbeddingModel) -> Vector | None:
    """Return the vector of a line if it is of this model."""
    embedding = line.get("embedding")
    if embedding is None:
        return None
    if not isinstance(embedding, Mapping) or not isinstance(embedding.get("packed"), str):
        raise InvalidInput("embedding is an object with a model and the packed vector")
    if embedding.get("model") != model.name:
        return None
    try:
        data = b64decode(embedding["packed"], validate=True)
    except ValueError:
        raise InvalidInput("the packed vector of embedding is not Base64") from None
    return normalize_vector(unpack_vector(data, model).tolist(), model) if len(data) == 2 * model.dimensions else None


def parse_session(line: Mapping[str, Any], *, user: str | None = None) -> Conversation:
    """Return the state of a session from a line; `user` replaces the user that it names."""
    scope = Scope(user or line.get("user_id") or "", line.get("project_id") or "", line.get("session_id") or "")
    closed_at = line.get("closed_at")
    invocations, metadata = line.get("invocations") or [], line.get("metadata") or {}
    if not isinstance(invocations, list) or not all(isinstance(each, Mapping) for each in invocations):
        raise InvalidInput("the invocations of a session are a list of objects")
    if not isinstance(metadata, Mapping):
        raise InvalidInput("the metadata of a session is an object")
    session = Conversation(
        scope=scope,
        turn_count=parse_count(line.get("turn_count"), name="turn_count", minimum=0),
        learned_to=parse_count(line.get("learned_to"), name="learned_to", minimum=0),
        summary=line.get("summary") or "",
        invocations=tuple(invocations),
        metadata=metadata,
        closed_at=None if closed_at is None else as_utc(closed_at, name="closed_at"),
    )
    # Its constructor validates the fields.
    ConversationUpdate(scope, _session_state(session))
    return session


def _session_state(session: Conversation) -> dict[str, Any]:
    return {
        "summary": session.summary,
        "learned_to": session.learned_to,
        "closed_at": session.closed_at,
        "metadata": dict(session.metadata),
        "invocations": [dict(each) for each in session.invocations],
    }


async def import_session(session: Conversation, writer: RecordWriter) -> None:
    """Restore the state of a session; if it was continued here, only its invocations are added."""
    current = await writer.ledger.conversation(session.scope)

    async def clean(text: Any) -> Any:
        return (await writer.redactor.redact_turn_text(text))[0] if isinstance(text, str) and text else text

    before = _session_state(current)
    state = dict(before)
    if current.turn_count <= session.turn_count:
        state = {
            **_session_state(session),
            "learned_to": min(session.learned_to, current.turn_count),
            "summary": await clean(session.summary) or current.summary,
            "metadata": {**current.metadata, **session.metadata},
        }
    added = [{name: await clean(text) for name, text in each.items()} for each in session.invocations]
    own = [each for each in before["invocations"] if each not in added]
    state["invocations"] = [*added, *own][-MAX_INVOCATIONS:]
    if state != before:
        await writer.update_session(session.scope, state)
