"""Writers that make all kinds of writes, each to its own memories, and note every step."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator

from recollect.errors import Conflict, StoreUnavailable
from recollect.ledger.ledger import Ledger
from recollect.model.change import Add, Author, Change, Forget, Supersede, Update
from recollect.model.ids import new_id
from recollect.model.memory import Category, MemoryRecord, MemoryType
from recollect.model.scope import Level, Scope
from recollect.model.times import now
from recollect.model.turn import Role, Turn
from recollect.models.embedding import EmbeddingModel
from recollect.testing.fake_embedder import embed_words
from tests.drills.notes import Notes, State, Step

MODEL = EmbeddingModel("fake", 32)
BY = Author("drill", "to see whether it holds")
_WORDS = "amber basin cedar delta ember fjord grove heron inlet jetty knoll lagoon maple north olive pine".split()


class Writer:
    """One writer: its expected state, and its next steps."""

    def __init__(self, number: int, *, user: str, seed: int) -> None:
        self.number, self.name, self.user = number, f"writer-{number}", user
        self.state = State()
        self._random = random.Random(f"{seed} {number}")
        self._tokens = self._numbers()

    def _numbers(self) -> Iterator[int]:
        number = self.number * 1_000_000
        while True:
            yield (number := number + 1)

    def text(self) -> str:
        """Return a unique text: it begins with a number of this writer."""
        length = 400 if self._random.random() < 0.03 else self._random.randint(2, 12)
        return f"{next(self._tokens)} {' '.join(self._random.choices(_WORDS, k=length))}"

    def next_step(self, verb: str = "") -> Step:
        """Return the next step."""
        mine = [id for id, stored in self.state.memories.items() if stored.status == "active" and id[0] != "t"]
        verb = verb or self._random.choice(("add", "add", "batch", "say", "update", "supersede", "forget"))
        if verb in ("update", "supersede", "forget") and not mine:
            verb = "add"
        new = {"add": 1, "batch": 3, "say": 2, "supersede": 1}.get(verb, 0)
        target = self._random.choice(mine) if verb in ("update", "supersede", "forget") else ""
        return Step(
            writer=self.name,
            user=self.user,
            verb=verb,
            ids=tuple(("t-" if verb == "say" else "m-") + new_id() for _ in range(new)),
            texts=tuple(self.text() for _ in range(1 if verb == "update" else new)),
            target=target,
            version=self.state.memories[target].version if target else 0,
        )

    async def go_on(self, ledger: Ledger, notes: Notes, *, steps: int | None = None) -> None:
        """Take steps, for ever or so many, and note each before and after."""
        while steps is None or steps > 0:
            step = self.next_step()
            notes.intend(step)
            await take(ledger, step)
            notes.acked(step)
            self.state = self.state.after(step)
            steps = None if steps is None else steps - 1

    async def insist(self, ledger: Ledger, notes: Notes, step: Step, on_error: Callable[[Exception], None]) -> None:
        """Retry a step until it is acknowledged."""
        notes.intend(step)
        tried = False
        while True:
            try:
                await take(ledger, step)
            except StoreUnavailable as error:
                on_error(error)
                tried = True
                await asyncio.sleep(self._random.uniform(0, 0.01))
                continue
            except Conflict:
                # A try that failed may have been written nevertheless.
                if not tried:
                    raise
            break
        notes.acked(step)
        self.state = self.state.after(step)


async def take(ledger: Ledger, step: Step) -> None:
    """Take a step, in one write."""
    scope = Scope(step.user, session=step.writer)
    vectors = list(embed_words(step.texts, MODEL.dimensions))
    if step.verb == "say":
        messages = [
            Turn(id=id, scope=scope, role=Role.USER, content=text, said_at=now())
            for id, text in zip(step.ids, step.texts, strict=True)
        ]
        await ledger.append(scope, messages, vectors=vectors, by=BY)
        return
    changes: list[Change] = []
    match step.verb:
        case "add" | "batch":
            new = zip(step.ids, step.texts, vectors, strict=True)
            changes += [Add(record(scope, id, text), vector) for id, text, vector in new]
        case "update":
            changes.append(Update(step.target, {"content": step.texts[0]}, step.version, vectors[0]))
        case "supersede":
            replacement = record(scope, step.ids[0], step.texts[0])
            changes.append(Supersede(step.target, replacement, step.version, vectors[0]))
        case "forget":
            changes.append(Forget(step.target, step.version))
    await ledger.apply(scope, changes, by=BY)


def record(scope: Scope, id: str, text: str) -> MemoryRecord:
    """Return a memory with the text."""
    at = now()
    return MemoryRecord(
        id=id,
        scope=scope,
        level=Level.USER,
        type=MemoryType.SEMANTIC,
        category=Category.FACT,
        content=text,
        created_at=at,
        updated_at=at,
    )
