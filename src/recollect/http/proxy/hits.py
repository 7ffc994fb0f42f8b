"""Tell with an answer which memories went into it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from recollect.errors import InvalidInput
from recollect.http.proxy.body import read_body
from recollect.model.result import Hit, Recalled

NAME = "memory_hits"


def with_hits(raw: bytes, hits: Sequence[Hit]) -> bytes | None:
    """The answer with the memories that were shown for it; None if it is no object to put them in."""
    try:
        body = read_body(raw)
    except InvalidInput:
        return None
    told = json.dumps([told_hit(hit) for hit in hits])
    end = body.listed.end - 1
    comma = ", " if body.listed.items else ""
    return f'{body.text[:end].rstrip()}{comma}"{NAME}": {told}{body.text[end:]}'.encode()


def shown(recalled: Recalled | None) -> list[Hit]:
    """The hits that went into the prompt, best first."""
    if recalled is None:
        return []
    found = {hit.id: hit for hit in recalled.hits}
    return [found[id] for id in recalled.context.used if id in found]


def told_hit(hit: Hit) -> dict[str, Any]:
    """A hit as an answer tells of it."""
    record = hit.record
    return {
        "role": str(record.detail.get("role") or "memory"),
        "content": record.content,
        "created_at": record.created_at.isoformat(),
        "score": round(hit.score, 6),
        "id": record.id,
    }
