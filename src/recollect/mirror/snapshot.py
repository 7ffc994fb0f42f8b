"""Write `memory_index.json`, which has every memory of a user's folder, for people and other programs.

Recollect does not read it. It is as large as all files together, so that of a large folder it is not kept up to date.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator
from time import time_ns
from typing import Any

from recollect.errors import InvalidInput
from recollect.mirror.folder import MirrorFolder, mtime_ns
from recollect.mirror.layout import SNAPSHOT
from recollect.mirror.state import MirrorState
from recollect.text.front_matter import split_front_matter

# Up to this many memories it is written after every change.
MAX_EAGER_MEMORIES = 2_000
# File times are coarse, and may lag a little.
_SLACK_NS = 1_000_000_000
_METADATA_FIELDS = ("conversation_id", "role", "created_at", "summary_kind", "replaced_by", "source_id")


def write_snapshot(
    user: str, base: str, *, folder: MirrorFolder, state: MirrorState, changed: Collection[str] = ()
) -> None:
    """Write the snapshot of a user's folder; reuse the last one's lines of unchanged files."""
    path = base + SNAPSHOT
    started_ns, last = time_ns(), folder.stamp(path)
    visible = state.visible_files(user, since_ns=mtime_ns(last) - _SLACK_NS if last else 0)
    if not visible:
        folder.remove(path)
        return
    unchanged = {each for each, is_newer in visible.items() if not is_newer}.difference(changed)
    lines = _unchanged_lines(path, unchanged, folder) if last else {}
    for each, line in _read(sorted(visible.keys() - lines.keys()), folder):
        lines[each] = json.dumps(line, ensure_ascii=False)
    data = ("[\n" + ",\n".join(lines.values()) + "\n]\n").encode()
    # Its mtime is when the first file was read: later changes may be missing.
    folder.write(path, data, expected=last, at_ns=started_ns)
    folder.sync()


def is_outdated(user: str, base: str, *, folder: MirrorFolder, state: MirrorState) -> bool:
    """Return whether files of a user are newer than the snapshot."""
    last = folder.stamp(base + SNAPSHOT)
    return state.has_changed_since(user, mtime_ns(last) if last else 0)


def _unchanged_lines(path: str, unchanged: Collection[str], folder: MirrorFolder) -> dict[str, str]:
    """Return the lines of unchanged files in the last snapshot, if they have the expected format."""
    try:
        text = (folder.root / path).read_text()
    except (OSError, UnicodeDecodeError):
        return {}
    prefix, lines = os.path.join(folder.root, ""), {}
    for line in text.split("\n"):
        # Parse only the start of each line: there may be many.
        parts = line.split('"', 8)
        if len(parts) == 9 and parts[0] == "{" and parts[1] == "id" and parts[5] == "path":
            file_path = parts[7].removeprefix(prefix)
            if file_path in unchanged:
                lines[file_path] = line.removesuffix(",")
    return lines


def _read(paths: list[str], folder: MirrorFolder) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in paths:
        try:
            fields, body = split_front_matter(folder.read(path)[0].decode(errors="replace"))
        except (InvalidInput, OSError):
            continue
        meta = {name: str(fields[name]) for name in _METADATA_FIELDS if fields.get(name) is not None}
        if "id" in fields and len(meta) >= 3:
            file_path = os.path.join(folder.root, path)
            yield path, {"id": str(fields["id"]), "path": file_path, "metadata": meta, "content": body}
