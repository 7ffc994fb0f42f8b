"""What a chat asks of memory beside the conversation: what is kept, to forget, to undo, why it recalled something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from recollect.cli.given import CliContext
from recollect.errors import Unsupported
from recollect.model.change import Outcome
from recollect.model.memory import MemoryRecord
from recollect.model.result import RecallResult

if TYPE_CHECKING:
    from recollect.cli.chatting.talk import ChatAnswer
    from recollect.sync import Memory

_MAX_LISTED = 20


class ChatMemories:
    """The memories of one user, read from the ledger that the settings name, opened when first asked.

    All that `recollect chat` knows of memory goes through here. The server has the same ledger open, unless it is
    `elsewhere`: then nothing can be told of its memories here.
    """

    def __init__(self, cli: CliContext, *, user: str, project: str | None, remote_host: str = "") -> None:
        self._cli = cli
        self._remote_host = remote_host
        self.user = user
        self.project = project
        self._memory: Memory | None = None

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def list_records(self, query: str = "") -> list[MemoryRecord]:
        """The newest memories, or those that fit the words."""
        if query:
            hits = self._open().search(query, user_id=self.user, project_id=self.project, limit=_MAX_LISTED)
            return [hit.record for hit in hits]
        return list(self._open().get_all(user_id=self.user, project_id=self.project, limit=_MAX_LISTED))

    def forget(self, memory_id: str) -> Outcome:
        """Take it out of recall, with the turns it was learned from."""
        return self._open().delete(memory_id, user_id=self.user, by="chat", why="/forget")

    def undo(self) -> Sequence[Outcome]:
        """Take back the user's last change."""
        return self._open().undo(user_id=self.user, by="chat", why="/undo")

    def get(self, memory_id: str) -> MemoryRecord:
        return self._open().get(memory_id, user_id=self.user)

    def explain(self, answer: ChatAnswer, *, session: str) -> RecallResult:
        """What recall finds for that question, as memory was when it was asked, with every candidate."""
        return self._open().recall(
            answer.messages,
            user_id=self.user,
            project_id=self.project,
            session_id=session,
            at=answer.at,
            as_of=answer.at,
            trace=True,
        )

    @property
    def is_fusion_learned(self) -> bool:
        """Whether the learned blend weighs the signals, so that their weights can be told."""
        return self._open().settings.fusion == "learned"

    def _open(self) -> Memory:
        if self._remote_host:
            raise Unsupported(f"the memories of the server on {self._remote_host} are not on this machine")
        if self._memory is None:
            self._memory = self._cli.open().open()
        return self._memory
