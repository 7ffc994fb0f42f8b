"""What was erased: a file that still says it must not bring it back."""

from __future__ import annotations

from collections.abc import Sequence

from recollect.ledger.protocol import Ledger
from recollect.mirror.page import MemoryDocument
from recollect.model.erase import Erasure, Target, user_digest
from recollect.model.times import as_utc


class ErasureLog:
    """The erasures a ledger knows, asked for once."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._erasures: Sequence[Erasure] | None = None

    async def covers(self, user: str, document: MemoryDocument) -> bool:
        """Whether what a file says was erased since it was made."""
        if self._erasures is None:
            self._erasures = await self._ledger.erasures()
        digest = user_digest(user)
        return any(_covers(erasure, document) for erasure in self._erasures if erasure.user == digest)


def _covers(erasure: Erasure, document: MemoryDocument) -> bool:
    if document.id in erasure.ids:
        return True
    if as_utc(document.line["created_at"], name="created_at") > erasure.at:
        return False
    project, session, _ = document.scope
    match erasure.target:
        case Target.USER:
            return True
        case Target.PROJECT:
            return erasure.project == project
        case Target.SESSION:
            return (erasure.project, erasure.session) == (project, session)
        case Target.TURN | Target.MEMORY:
            return False
