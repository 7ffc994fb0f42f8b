"""Memory for the OpenAI Agents SDK: a durable session that is learned from, recall for each call, and tools."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from recollect.client import AsyncMemory
from recollect.errors import Backlog, Conflict, InvalidInput, MissingExtra, NotFound, QuotaReached
from recollect.integrations.common import AnyMemory, IdSource, RunMemory, call_memory, memory_functions
from recollect.model.ids import new_id
from recollect.model.messages import message_role, message_text
from recollect.model.response import Plain, Thread, ThreadItems
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.model.turn import Role

try:
    from agents import FunctionTool, RunContextWrapper, SessionSettings, TResponseInputItem, function_tool
    from agents.run import CallModelData, ModelInputData
except ImportError as error:
    raise MissingExtra("memory for the OpenAI Agents SDK", "openai-agents") from error

_log = logging.getLogger("recollect")
BY = "openai-agents"
_PAGE = 200


class RecollectSession:
    """The items of one conversation, stored in the ledger as they are; their messages are learned from.

    Clearing and popping leave marks in the log, so that `undo` restores the items. Learned memories stay when a
    session is cleared; those that rest only on a popped item are forgotten with it. `memory.erase` with this user and
    session removes the items for good.
    """

    session_settings: SessionSettings | None

    def __init__(
        self,
        session_id: str,
        memory: AnyMemory,
        *,
        user_id: str,
        project_id: str | None = None,
        session_settings: SessionSettings | None = None,
        learns: bool = True,
    ) -> None:
        self.session_id = session_id
        self.session_settings = session_settings
        self._memory = memory
        self._scope = Scope(user_id, project_id or "", session_id)
        if not session_id:
            raise InvalidInput("`session_id` must not be empty")
        self._learns = learns
        identity = json.dumps([self._scope.project, session_id]).encode()
        self._thread = f"agents-{hashlib.blake2b(identity, digest_size=16).hexdigest()}"

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the items in order; with a limit, the latest ones."""
        settings = self.session_settings
        max_items = limit if limit is not None else settings.limit if settings is not None else None
        lines = await call_memory(self._memory, lambda memory: self._lines(memory, max_items))
        return [cast("TResponseInputItem", line["item"]) for line in reversed(lines)]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items, all or none; they are durable when this returns."""
        lines = [_line(item) for item in items]
        if lines:
            await call_memory(self._memory, lambda memory: self._add(memory, lines))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove and return the last item, with the memories that rest only on it; None if there is none."""
        line = await call_memory(self._memory, self._pop)
        return None if line is None else cast("TResponseInputItem", line["item"])

    async def clear_session(self) -> None:
        """Hide the items so far; memories that were learned from them stay."""
        await call_memory(self._memory, self._clear)

    async def undo(self) -> None:
        """Restore what the last clear or pop removed; raise NotFound if there is none."""
        await call_memory(self._memory, self._undo)

    async def _add(self, memory: AsyncMemory, lines: Sequence[dict[str, Any]]) -> None:
        messages = [
            {"role": message_role(line["item"]), "content": text, "turn_id": line["id"]}
            for line in lines
            if message_role(line["item"]) in tuple(Role)
            and (text := message_text(line["item"].get("content"))).strip()
        ]
        names = await self._remember(memory, messages) if messages and self._learns else ()
        await self._write(memory, lines, names)

    async def _remember(self, memory: AsyncMemory, messages: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        """Return the ids of the stored turns; none if the quota or the backlog is full, but the items are stored."""
        scope = self._scope
        try:
            remembered = await memory.acting_as(BY).remember(
                messages, user_id=scope.user, project_id=scope.project, session_id=scope.session
            )
        except (Backlog, QuotaReached) as error:
            _log.warning("the items of a session are stored, but not learned from: %s", error)
            return ()
        return tuple(turn.id for turn in remembered.turns)

    async def _write(self, memory: AsyncMemory, lines: Sequence[Plain], names: tuple[str, ...] = ()) -> None:
        """Append lines to the log; erasing one of the turns `names` removes them."""
        responses = (await memory.service()).responses
        added = ThreadItems(self._thread, lines, names)
        try:
            await responses.add_items(self._scope, added)
        except NotFound:
            # This is the first line of the session.
            await responses.save_thread(
                self._scope, Thread(id=self._thread, scope=self._scope, created_at=now(), expires_at=None)
            )
            await responses.add_items(self._scope, added)

    async def _lines(self, memory: AsyncMemory, max_items: int | None = None) -> list[Plain]:
        """Return the lines of visible items, the latest first."""
        lines: list[Plain] = []
        popped: set[str] = set()
        max_items = None if max_items is None else max(max_items, 0)
        after = ""
        while (max_items is None or len(lines) < max_items) and (page := await self._page(memory, after)):
            for line in page:
                if "cleared" in line:
                    return lines[:max_items]
                if "popped" in line:
                    popped.add(line["popped"])
                elif line["id"] not in popped:
                    lines.append(line)
            after = page[-1]["id"]
        return lines[:max_items]

    async def _page(self, memory: AsyncMemory, after: str) -> list[Plain]:
        responses = (await memory.service()).responses
        try:
            return await responses.thread_items(
                self._scope, self._thread, after=after, newest_first=True, limit=_PAGE
            )
        except NotFound:
            return []

    async def _pop(self, memory: AsyncMemory) -> Plain | None:
        while lines := await self._lines(memory, 1):
            [line] = lines
            forget_ids = await self._dependent_ids(memory, line["id"])
            try:
                # The mark's id derives from the item's, so that of two concurrent pops only one succeeds.
                mark = {"id": f"{line['id']}-popped", "popped": line["id"], "forgot": forget_ids}
                await self._write(memory, [mark])
            except Conflict:
                continue
            for id in forget_ids:
                await memory.acting_as(BY, why="the item was popped").delete(
                    id, user_id=self._scope.user, sources=False
                )
            return line
        return None

    async def _dependent_ids(self, memory: AsyncMemory, turn_id: str) -> list[str]:
        """Return the turn of an item, if it has one, and the memories that rest only on it."""
        user = self._scope.user
        try:
            await memory.get(turn_id, user_id=user)
        except NotFound:
            return []
        learned = await memory.get_all(user_id=user, filters={"evidence": turn_id})
        return [turn_id, *(record.id for record in learned if set(record.evidence) == {turn_id})]

    async def _clear(self, memory: AsyncMemory) -> None:
        if await self._lines(memory, 1):
            await self._write(memory, [{"id": new_id(), "cleared": True}])

    async def _undo(self, memory: AsyncMemory) -> None:
        after = ""
        while page := await self._page(memory, after):
            mark = next((line for line in page if "item" not in line), None)
            if mark is not None:
                await (await memory.service()).responses.drop_item(self._scope, self._thread, mark["id"])
                await self._restore(memory, mark.get("forgot", ()))
                return
            after = page[-1]["id"]
        raise NotFound("nothing was cleared or popped in this session")

    async def _restore(self, memory: AsyncMemory, ids: Sequence[str]) -> None:
        for id in ids:
            try:
                await memory.acting_as(BY, why="the item came back").restore(id, user_id=self._scope.user)
            except (Conflict, NotFound) as error:
                _log.warning("a memory was not restored with its item: %s", error)


def _line(item: TResponseInputItem) -> dict[str, Any]:
    try:
        # Normalised, so that every ledger returns the same.
        plain = json.loads(json.dumps(item, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"an item of a session must be plain JSON: {error}") from None
    if not isinstance(plain, dict):
        raise InvalidInput(f"an item of a session must be a mapping, got {type(item).__name__}")
    return {"id": new_id(), "item": plain}


def recalling(
    memory: AnyMemory, *, user_id: IdSource, project_id: IdSource | None = None, session_id: str | None = None
) -> Callable[[CallModelData[Any]], Any]:
    """Return a `call_model_input_filter` for a RunConfig that inserts memories before the user's question.

    They are part of that one request only, not of the session or the result of the run.
    """

    async def recall(data: CallModelData[Any]) -> ModelInputData:
        run = RunMemory.of(
            memory, by=BY, run=data.context, user_id=user_id, project_id=project_id, session_id=session_id
        )
        result = await run.recall(cast("Sequence[Mapping[str, Any]]", data.model_data.input))
        if result is None:
            return data.model_data
        messages: list[TResponseInputItem] = list(result.messages)
        return ModelInputData(input=messages, instructions=data.model_data.instructions)

    return recall


def memory_tools(memory: AnyMemory, *, user_id: IdSource, project_id: IdSource | None = None) -> list[FunctionTool]:
    """Return tools with which a model recalls, stores, corrects and forgets its user's memories."""

    def memory_of(ctx: RunContextWrapper[Any]) -> RunMemory:
        return RunMemory.of(memory, by=BY, run=ctx.context, user_id=user_id, project_id=project_id)

    return [function_tool(each) for each in memory_functions(memory_of, RunContextWrapper[Any])]
