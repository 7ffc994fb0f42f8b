"""What a chat asks of memory beside the conversation: what is kept, to forget, to undo, why it recalled something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from recollect.cli.given import Given
from recollect.errors import Unsupported
from recollect.model.change import Outcome
from recollect.model.memory import MemoryRecord
from recollect.model.result import Recalled

if TYPE_CHECKING:
    from recollect.cli.chatting.talk import Answer
    from recollect.sync import Memory

_SHOWN = 20


class Memories:
    """The memories of one user, read from the ledger that the settings name, opened when first asked.

    All that `recollect chat` knows of memory goes through here. The server has the same ledger open, unless it is
    `elsewhere`: then nothing can be told of its memories here.
    """

    def __init__(self, given: Given, *, user: str, project: str | None, elsewhere: str = "") -> None:
        self._given = given
        self._elsewhere = elsewhere
        self.user = user
        self.project = project
        self._memory: Memory | None = None

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def kept(self, about: str = "") -> list[MemoryRecord]:
        """The newest memories, or those that fit the words."""
        if about:
            found = self._opened().search(about, user_id=self.user, project_id=self.project, limit=_SHOWN)
            return [hit.record for hit in found]
        return list(self._opened().get_all(user_id=self.user, project_id=self.project, limit=_SHOWN))

    def forget(self, memory_id: str) -> Outcome:
        """Take it out of recall, with the turns it was learned from."""
        return self._opened().delete(memory_id, user_id=self.user, by="chat", why="/forget")

    def undo(self) -> Sequence[Outcome]:
        """Take back the user's last change."""
        return self._opened().undo(user_id=self.user, by="chat", why="/undo")

    def get(self, memory_id: str) -> MemoryRecord:
        return self._opened().get(memory_id, user_id=self.user)

    def why(self, answer: Answer, *, session: str) -> Recalled:
        """What recall finds for that question, as memory was when it was asked, with every candidate."""
        return self._opened().recall(
            answer.asked,
            user_id=self.user,
            project_id=self.project,
            session_id=session,
            at=answer.at,
            as_of=answer.at,
            trace=True,
        )

    @property
    def learned(self) -> bool:
        """Whether the learned blend weighs the signals, so that their weights can be told."""
        return self._opened().settings.fusion == "learned"

    def _opened(self) -> Memory:
        if self._elsewhere:
            raise Unsupported(f"the memories of the server on {self._elsewhere} are not on this machine")
        if self._memory is None:
            self._memory = self._given.open().open()
        return self._memory
