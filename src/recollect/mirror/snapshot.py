"""`memory_index.json`: every memory of a user's folder in one file, for people and programs that look for it there.

Nothing of ours reads it, and it is as long as all files together: of a large folder it is not kept up to date.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator
from typing import Any

from recollect.errors import InvalidInput
from recollect.mirror.folder import Folder
from recollect.mirror.front_matter import split
from recollect.mirror.layout import SNAPSHOT
from recollect.mirror.state import State

# Up to so many memories it is written with every change.
MOST_AT_ONCE = 2_000
_META = ("conversation_id", "role", "created_at", "summary_kind", "replaced_by", "source_id")


def write_snapshot(user: str, base: str, *, folder: Folder, state: State, changed: Collection[str] = ()) -> None:
    """Write the snapshot of a user's folder; where only some paths changed, the rest is taken from the last one."""
    path = base + SNAPSHOT
    rows = {row.path for row in state.of(user) if row.stamp and not row.is_gone}
    if not rows:
        folder.remove(path)
        return
    before = _last(path, folder) if changed else {}
    kept = {each: line for each, line in before.items() if each in rows and each not in changed}
    read = {os.path.relpath(each["path"], folder.root): each for each in _read(sorted(rows - kept.keys()), folder)}
    lines = [json.dumps(each, ensure_ascii=False) for each in {**kept, **read}.values()]
    folder.write(path, ("[\n" + ",\n".join(lines) + "\n]\n").encode(), seen=folder.stamp(path))
    folder.sync()


def _last(path: str, folder: Folder) -> dict[str, Any]:
    """The lines of the last snapshot by their paths; none of one that cannot be read."""
    try:
        lines = json.loads((folder.root / path).read_bytes())
        return {os.path.relpath(each["path"], folder.root): each for each in lines}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def _read(paths: list[str], folder: Folder) -> Iterator[dict[str, Any]]:
    for path in paths:
        try:
            said, body = split(folder.read(path)[0].decode(errors="replace"))
        except (InvalidInput, OSError):
            continue
        meta = {name: str(said[name]) for name in _META if said.get(name) is not None}
        if "id" in said and len(meta) >= 3:
            yield {
                "id": str(said["id"]),
                "path": os.path.join(folder.root, path),
                "metadata": meta,
                "content": body,
            }
