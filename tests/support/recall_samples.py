"""A memory without a minimum score, and messages, for tests of recall."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from recollect import Memory
from recollect.config.settings import Settings
from recollect.model.result import RecallResult
from recollect.testing.fake_embedder import FakeEmbedder

NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)
TEA = "Where do I buy my green tea?"


def opened(tmp_path: Path, embedder: FakeEmbedder | None = None, **settings: Any) -> Memory:
    """Open a memory without a minimum score, unless a test sets one."""
    # A loaded machine must not turn a slow answer into none.
    patient = {"recall_timeout_s": 60, "rewrite_timeout_s": 60, "rerank_timeout_s": 60}
    chosen = Settings(home=tmp_path, **{"search_min_score": 0.0, **patient, **settings})
    return Memory(settings=chosen, embedder=embedder or FakeEmbedder(64))


def texts(recalled: RecallResult) -> list[str]:
    return [hit.memory for hit in recalled]


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}
