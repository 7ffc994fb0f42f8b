"""What leaves a ledger as plain lines, one memory each, and how such lines are read again."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recollect.conversation.written import MAX_INVOCATIONS
from recollect.errors import InvalidInput
from recollect.ledger.packing import unpacked
from recollect.ledger.protocol import Ledger
from recollect.model.change import By
from recollect.model.effect import Note
from recollect.model.memory import MemoryRecord, Status
from recollect.model.query import Listing
from recollect.model.scope import Scope
from recollect.model.times import as_utc
from recollect.model.tombstone import TombstoneSet
from recollect.model.turn import Conversation
from recollect.models.embedding import EmbeddingModel
from recollect.upkeep.transfer import read_line, whole
from recollect.write.embed import ready_made
from recollect.write.screening.given import Redacting

if TYPE_CHECKING:
    from recollect.model.change import Vector

PAGE = 500
# What a line calls itself that is no memory.
SESSION = "session"
TOMBSTONES = "tombstones"
_MAX_KEYS = 16
_HEX = re.compile("[0-9a-f]{32,64}")


async def export(
    scope: Scope, *, ledger: Ledger, sessions: bool = True, model: EmbeddingModel | None = None
) -> AsyncIterator[dict[str, Any]]:
    """Every memory of the scope in any state, oldest first, turns among them; with their vectors of a `model`.

    How each of the `sessions` stands comes last, unless they are left out.
    """
    cursor = None
    while True:
        page = await ledger.find(scope, Listing(statuses=tuple(Status), order="oldest", limit=PAGE, cursor=cursor))
        known = await ledger.vectors(scope.user, [each.id for each in page], model=model) if model else {}
        for record in page:
            line = record.to_dict()
            if model and record.id in known:
                line["embedding"] = {"model": model.name, "packed": b64encode(known[record.id]).decode()}
            yield line
        if page.cursor is None:
            break
        cursor = page.cursor
    if sessions:
        async for line in _sessions(scope, ledger=ledger):
            yield line
    if sessions and scope == Scope(scope.user):
        async for line in _tombstones(scope.user, ledger=ledger):
            yield line


async def _tombstones(user: str, *, ledger: Ledger) -> AsyncIterator[dict[str, Any]]:
    """Yield the digests of forgotten and erased turns, with the keys of this user that they were made with."""
    found = await ledger.tombstones(user)
    digests = sorted((digest, at.isoformat()) for digest, at in found.digests.items())
    for start in range(0, len(digests), PAGE):
        some = dict(digests[start : start + PAGE])
        yield {"kind": TOMBSTONES, "user_id": user, "keys": list(found.keys), "digests": some}


def read_tombstones(line: Mapping[str, Any], *, user: str | None = None) -> tuple[str, TombstoneSet]:
    """Return whose tombstones a line has, and the tombstones; `user` takes the place of the one it names."""
    owner = Scope(user or line.get("user_id") or "").user
    keys, digests = line.get("keys"), line.get("digests")
    if not owner or not isinstance(keys, list) or len(keys) > _MAX_KEYS or not isinstance(digests, Mapping):
        raise InvalidInput(f"tombstones need a user_id, a list of up to {_MAX_KEYS} keys and an object of digests")
    if not all(isinstance(each, str) and _HEX.fullmatch(each) for each in (*keys, *digests)):
        raise InvalidInput("keys and digests of tombstones must be hexadecimal, of 32 to 64 digits")
    times = {digest: as_utc(at, name="digests") for digest, at in digests.items()}
    return owner, TombstoneSet(tuple(keys), times)


async def _sessions(scope: Scope, *, ledger: Ledger) -> AsyncIterator[dict[str, Any]]:
    after = None
    while page := await ledger.conversations(scope.user, limit=PAGE, after=after):
        for each in page:
            if scope.project in ("", each.scope.project) and scope.session in ("", each.scope.session):
                yield {"kind": SESSION, **each.to_dict()}
        after = page[-1]


def read_vector(line: Mapping[str, Any], model: EmbeddingModel) -> Vector | None:
    """The vector that a line brings along, if it is of this model."""
    told = line.get("embedding")
    if told is None:
        return None
    if not isinstance(told, Mapping) or not isinstance(told.get("packed"), str):
        raise InvalidInput("embedding is an object with a model and the packed vector")
    if told.get("model") != model.name:
        return None
    try:
        data = b64decode(told["packed"], validate=True)
    except ValueError:
        raise InvalidInput("the packed vector of embedding is no Base64") from None
    return ready_made(unpacked(data, model).tolist(), model) if len(data) == 2 * model.dimensions else None


def read_session(line: Mapping[str, Any], *, user: str | None = None) -> Conversation:
    """How a session stood, as a line of an export tells it; `user` takes the place of the one it names."""
    scope = Scope(user or line.get("user_id") or "", line.get("project_id") or "", line.get("session_id") or "")
    closed_at = line.get("closed_at")
    invocations, metadata = line.get("invocations") or [], line.get("metadata") or {}
    if not isinstance(invocations, list) or not all(isinstance(each, Mapping) for each in invocations):
        raise InvalidInput("the invocations of a session are a list of objects")
    if not isinstance(metadata, Mapping):
        raise InvalidInput("the metadata of a session is an object")
    held = Conversation(
        scope=scope,
        turn_count=whole(line.get("turn_count"), name="turn_count", least=0),
        learned_to=whole(line.get("learned_to"), name="learned_to", least=0),
        summary=line.get("summary") or "",
        invocations=tuple(invocations),
        metadata=metadata,
        closed_at=None if closed_at is None else as_utc(closed_at, name="closed_at"),
    )
    Note(scope, _state(held))
    return held


def _state(held: Conversation) -> dict[str, Any]:
    return {
        "summary": held.summary,
        "learned_to": held.learned_to,
        "closed_at": held.closed_at,
        "metadata": dict(held.metadata),
        "invocations": [dict(each) for each in held.invocations],
    }


async def put_session(told: Conversation, *, ledger: Ledger, redacting: Redacting, by: By) -> None:
    """Have a session stand as it did; where somebody has talked on in it here, only its invocations come along."""
    held = await ledger.conversation(told.scope)
    summary, _ = redacting.said(told.summary) if told.summary else ("", ())
    state = {
        **_state(told),
        "learned_to": min(told.learned_to, held.turn_count),
        "summary": summary or held.summary,
        "metadata": {**held.metadata, **told.metadata},
    }
    if held.turn_count > told.turn_count:
        state = _state(held)
    state["invocations"] = _invocations(told, held, redacting)
    if state != _state(held):
        await ledger.apply(told.scope, [], by=by, effects=[Note(told.scope, state)])


def _invocations(told: Conversation, held: Conversation, redacting: Redacting) -> list[dict[str, Any]]:
    """Those that were told, without their secrets, and then those that came about here."""
    clean = [
        {name: redacting.said(text)[0] if isinstance(text, str) and text else text for name, text in each.items()}
        for each in told.invocations
    ]
    return [*clean, *(dict(each) for each in held.invocations if dict(each) not in clean)][-MAX_INVOCATIONS:]


@dataclass(frozen=True, slots=True)
class Lines:
    """What some lines stand for: memories, their usable vectors, how sessions stood, and users' tombstones."""

    records: tuple[MemoryRecord, ...]
    vectors: Mapping[str, Vector]
    sessions: tuple[Conversation, ...]
    tombstones: tuple[tuple[str, TombstoneSet], ...] = ()


def read_lines(
    lines: Iterable[Mapping[str, Any]], *, model: EmbeddingModel, user: str | None = None, done: int = 0
) -> Lines:
    """What lines stand for, of which `done` came before; a mistake names its line."""
    records: list[MemoryRecord] = []
    vectors: dict[str, Vector] = {}
    sessions: list[Conversation] = []
    tombstones: list[tuple[str, TombstoneSet]] = []
    for number, line in enumerate(lines, done + 1):
        try:
            if isinstance(line, Mapping) and line.get("kind") == SESSION:
                sessions.append(read_session(line, user=user))
                continue
            if isinstance(line, Mapping) and line.get("kind") == TOMBSTONES:
                tombstones.append(read_tombstones(line, user=user))
                continue
            record = read_line(line, user=user)
            records.append(record)
            if (vector := read_vector(line, model)) is not None:
                vectors[record.id] = vector
        except InvalidInput as error:
            raise InvalidInput(f"line {number}: {error}; the {done} lines before are imported") from None
    return Lines(tuple(records), vectors, tuple(sessions), tuple(tombstones))
