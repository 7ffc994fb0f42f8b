"""Nothing that is stored contains a secret, whichever way it comes into the ledger."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recollect.ledger.ledger import Ledger
from recollect.ledger.sqlite import open_sqlite
from recollect.model.change import Add, Author, ConversationUpdate, FinishJob, IdempotencyToken, Supersede, Update
from recollect.model.ids import new_id
from recollect.model.job import ExtractPayload, JobKind, NewJob
from recollect.model.key import new_key
from recollect.model.memory import Category, MemoryRecord, MemoryType
from recollect.model.response import StoredResponse, Thread, ThreadItems
from recollect.model.scope import Level, Scope
from recollect.model.times import now
from recollect.model.turn import Role, Turn
from recollect.models.embedding import EmbeddingModel
from recollect.write.redact import Redactor

SECRET = "ghp_R7bK2mXq9TzLw4VfN8cYd1HsJ5pGe3Ua6oBi"
TOLD = f"The deploy token is {SECRET}"
NESTED: dict[str, Any] = {"text": TOLD, "list": [{"deep": SECRET}], "password": "sunshine", "count": 7}
ANN = Scope("ann", "", "monday")
BY = Author(SECRET, why=TOLD)
MODEL = EmbeddingModel("test", 4)


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    opened = await open_sqlite(tmp_path / "ledger.db", MODEL, Redactor())
    yield opened
    await opened.close()
    assert files_with_secret(tmp_path) == []


def files_with_secret(folder: Path) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path.name for path in files if SECRET.encode() in path.read_bytes()]


def memory(content: str, **fields: Any) -> MemoryRecord:
    at = now()
    return MemoryRecord(
        id=new_id(), scope=ANN, level=Level.USER, type=MemoryType.SEMANTIC, category=Category.FACT, content=content,
        created_at=at, updated_at=at, **fields,
    )  # fmt: skip


def turn(**fields: Any) -> Turn:
    return Turn(id=new_id(), scope=ANN, role=Role.USER, said_at=now(), **fields)


def response(**fields: Any) -> StoredResponse:
    return StoredResponse(id="resp_1", scope=ANN, root_id="resp_1", created_at=now(), expires_at=None, **fields)


async def test_changes_and_their_author_are_redacted(ledger: Ledger) -> None:
    added = await ledger.apply(ANN, [Add(memory(TOLD, metadata=NESTED, tags=(SECRET,)))], by=BY)
    updated = await ledger.apply(ANN, [Update(added.outcomes[0].id, {"content": f"Now {SECRET}"})], by=BY)
    await ledger.apply(ANN, [Supersede(updated.outcomes[0].id, memory(f"Later {TOLD}"))], by=BY)
    [line, *_] = await ledger.history(ANN)
    assert (line.by.who, line.by.why) == ("[redacted: GitHub token]", "The deploy token is [redacted: GitHub token]")


async def test_a_vector_of_a_text_with_a_secret_is_not_stored(ledger: Ledger) -> None:
    vector = np.ones(4, np.float32)
    await ledger.apply(ANN, [Add(memory(TOLD), vector), Add(memory("Likes tea"), vector)], by=Author("test"))
    unembedded = await ledger.unembedded(MODEL, limit=10, user="ann")
    assert [row.content for row in unembedded] == ["The deploy token is [redacted: GitHub token]"]


async def test_turns_and_the_names_of_speakers_are_redacted(ledger: Ledger) -> None:
    appended = await ledger.append(
        ANN,
        [turn(content=TOLD, name=SECRET)],
        vectors=[None],
        by=BY,
        jobs=[NewJob(kind=JobKind.EXTRACT, payload=ExtractPayload(model=SECRET))],
    )
    assert appended.turns[0].name == "[redacted: GitHub token]"
    [job] = await ledger.lease(worker="w", limit=1, lease_s=60)
    await ledger.fail(job, error=TOLD, retry_at=now())
    [job] = await ledger.lease(worker="w", limit=1, lease_s=60)
    await ledger.release(job, error=TOLD)
    [job] = await ledger.lease(worker="w", limit=1, lease_s=60)
    state = ConversationUpdate(ANN, {"summary": TOLD, "metadata": NESTED})
    await ledger.apply(ANN, [], by=BY, effects=[state, FinishJob(job.id, job.lease or "", {"reasons": [TOLD]})])
    conversation = await ledger.conversation(ANN)
    assert conversation.summary == "The deploy token is [redacted: GitHub token]"
    assert conversation.metadata["password"] == "[redacted: password]"


async def test_responses_and_their_items_are_redacted(ledger: Ledger) -> None:
    body = {"instructions": TOLD, "metadata": NESTED, "output": [{"type": "function_call", "arguments": TOLD}]}
    image = {"type": "input_image", "image_url": "data:image/png;base64," + "sk/EAAAb1Zz9" * 500}
    items = [{"id": "fco_1", "type": "function_call_output", "output": TOLD}, image]
    await ledger.save_response(ANN, response(body=body, input_items=items), started_at=now())
    await ledger.save_thread(ANN, Thread(id="conv_1", scope=ANN, created_at=now(), expires_at=None, metadata=NESTED))
    await ledger.add_items(ANN, ThreadItems("conv_1", [{"id": "msg_1", "content": TOLD}]))
    stored = await ledger.response(ANN, "resp_1")
    assert stored.body["instructions"] == "The deploy token is [redacted: GitHub token]"
    assert stored.input_items[1] == image
    assert (await ledger.thread(ANN, "conv_1")).metadata["count"] == 7


async def test_idempotency_keys_answers_and_labels_of_keys_are_redacted(ledger: Ledger) -> None:
    token = IdempotencyToken(SECRET, "digest")
    assert (await ledger.claim_key("ann", token)).is_owner
    await ledger.store_answer("ann", token, {"status": 200, "body": NESTED, "etag": None})
    assert (await ledger.claim_key("ann", token)).answer is not None
    await ledger.add_key(new_key(user="ann", name=TOLD[:60]).key)


async def test_without_redaction_of_turns_they_are_stored_as_they_are(tmp_path: Path) -> None:
    opened = await open_sqlite(tmp_path / "plain.db", MODEL, Redactor(turns=False))
    appended = await opened.append(ANN, [turn(content=TOLD)], vectors=[None], by=Author("test"))
    assert appended.turns[0].content == TOLD
    await opened.close()
