"""Memories that a person has to approve before they are used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recollect.deps import Deps
from recollect.maintenance import reviews
from recollect.maintenance.reviews import ReviewResult
from recollect.model.change import Author, Outcome
from recollect.model.result import Page
from recollect.model.scope import Scope
from recollect.write.redact import Redactor


class ReviewService:
    """Propose, list, edit, approve and reject memories in review."""

    def __init__(self, deps: Deps, redactor: Redactor) -> None:
        self._ledger, self._embedder, self._redactor = deps.ledger, deps.embedder, redactor

    async def list(self, scope: Scope, *, limit: int = 100, cursor: str | None = None) -> Page:
        """Return a page of the memories in review, oldest first."""
        return await reviews.list_reviews(scope, ledger=self._ledger, limit=limit, cursor=cursor)

    async def propose(self, scope: Scope, content: str, fields: Mapping[str, Any], *, by: Author) -> Outcome:
        """Store a memory that is not used until a person approves it."""
        return await reviews.propose(
            scope,
            content,
            fields,
            by=self._redactor.redact_author(by),
            ledger=self._ledger,
            embedder=self._embedder,
            redactor=self._redactor,
        )

    async def approve(
        self, scope: Scope, id: str, *, by: Author, expected_version: int | None = None
    ) -> ReviewResult:
        """Make a memory active; the interface vouches that `by` is a person."""
        by = self._redactor.redact_author(by)
        return await reviews.approve(scope, id, by=by, ledger=self._ledger, expected_version=expected_version)

    async def edit(
        self, scope: Scope, id: str, fields: Mapping[str, Any], *, by: Author, expected_version: int | None = None
    ) -> ReviewResult:
        """Change a memory that stays in review."""
        return await reviews.edit(
            scope,
            id,
            fields,
            by=self._redactor.redact_author(by),
            ledger=self._ledger,
            embedder=self._embedder,
            redactor=self._redactor,
            expected_version=expected_version,
        )

    async def reject(self, scope: Scope, id: str, *, by: Author, expected_version: int | None = None) -> ReviewResult:
        """Forget a memory in review."""
        by = self._redactor.redact_author(by)
        return await reviews.reject(scope, id, by=by, ledger=self._ledger, expected_version=expected_version)
