"""Tell with an answer which memories went into it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from recollect.errors import InvalidInput
from recollect.http.proxy.body import parse_body
from recollect.model.result import Hit, RecallResult

HITS_FIELD = "memory_hits"


def add_hits(raw: bytes, hits: Sequence[Hit]) -> bytes | None:
    """The answer with the memories that were shown for it; None if it is no object to put them in."""
    try:
        body = parse_body(raw)
    except InvalidInput:
        return None
    encoded = json.dumps([hit_to_json(hit) for hit in hits])
    end = body.root.end - 1
    comma = ", " if body.root.items else ""
    return f'{body.text[:end].rstrip()}{comma}"{HITS_FIELD}": {encoded}{body.text[end:]}'.encode()


def used_hits(recalled: RecallResult | None) -> list[Hit]:
    """The hits that went into the prompt, best first."""
    if recalled is None:
        return []
    by_id = {hit.id: hit for hit in recalled.hits}
    return [by_id[id] for id in recalled.context.used if id in by_id]


def hit_to_json(hit: Hit) -> dict[str, Any]:
    """A hit as an answer tells of it."""
    record = hit.record
    return {
        "role": str(record.detail.get("role") or "memory"),
        "content": record.content,
        "created_at": record.created_at.isoformat(),
        "score": round(hit.score, 6),
        "id": record.id,
    }
