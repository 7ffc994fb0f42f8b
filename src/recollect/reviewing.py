"""What waits for a person: proposed, looked at, changed, approved or rejected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recollect.model.change import Author, Outcome
from recollect.model.result import Page
from recollect.model.scope import Scope
from recollect.upkeep import review
from recollect.upkeep.review import ReviewResult
from recollect.write.deps import Deps
from recollect.write.screening.given import Redactor


class ReviewOperations:
    """Memories that are not used before somebody has looked at them."""

    def __init__(self, deps: Deps, redactor: Redactor) -> None:
        self._deps = deps
        self._ledger = deps.ledger
        self._redacting = redactor

    async def reviews(self, scope: Scope, *, limit: int = 100, cursor: str | None = None) -> Page:
        """What waits for a person to look at it, oldest first."""
        return await review.list_reviews(scope, ledger=self._ledger, limit=limit, cursor=cursor)

    async def propose(self, scope: Scope, content: str, fields: Mapping[str, Any], *, by: Author) -> Outcome:
        """Keep a memory that is not used before a person has looked at it."""
        return await review.propose(
            scope,
            content,
            fields,
            by=self._redacting.redact_author(by),
            ledger=self._ledger,
            embedder=self._deps.embedder,
            redactor=self._redacting,
        )

    async def approve(
        self, scope: Scope, id: str, *, by: Author, expected_version: int | None = None
    ) -> ReviewResult:
        """Let a memory that waited for review be recalled from now on; the door vouches that a person says so."""
        by = self._redacting.redact_author(by)
        return await review.approve(scope, id, by=by, ledger=self._ledger, expected_version=expected_version)

    async def edit_review(
        self, scope: Scope, id: str, fields: Mapping[str, Any], *, by: Author, expected_version: int | None = None
    ) -> ReviewResult:
        """Change what a memory that waits for review says; it goes on waiting."""
        return await review.edit(
            scope,
            id,
            fields,
            by=by,
            ledger=self._ledger,
            embedder=self._deps.embedder,
            redactor=self._redacting,
            expected_version=expected_version,
        )

    async def reject(self, scope: Scope, id: str, *, by: Author, expected_version: int | None = None) -> ReviewResult:
        """Forget a memory that waited for review, unused."""
        by = self._redacting.redact_author(by)
        return await review.reject(scope, id, by=by, ledger=self._ledger, expected_version=expected_version)
