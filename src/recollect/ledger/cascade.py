"""Decide what an erasure removes, before anything is removed. The rules are in `recollect.model.erasure`.

Pure: the ledger loads the links between a user's memories, calls `cascade`, and removes what it returns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, assert_never

from recollect.errors import NotFound
from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.erasure import ErasureRequest, Remade, Target
from recollect.model.ids import memory_not_found
from recollect.model.memory import Category, Status
from recollect.model.scope import Scope

SessionKey: TypeAlias = tuple[str, str]

# Under these names, and under those that end in _id or _ids, the detail of a memory cites others.
_CITATION_FIELDS = frozenset({"evidence", "sources", "cites", "turns", "memories"})
_MAX_DEPTH = 8
_SUMMARY_CATEGORIES = (Category.EPISODE, Category.SUMMARY)


@frozen_dataclass
class MemoryLink:
    """The links of one memory to others."""

    id: str
    scope: Scope
    category: str
    status: str
    cites: frozenset[str] = frozenset()
    turns: tuple[int, int] | None = None
    position: int | None = None
    superseded_by: str | None = None
    at_end: bool = False

    @property
    def session(self) -> SessionKey:
        return self.scope.project, self.scope.session


@dataclass(slots=True)
class Cascade:
    """What is removed, and what that means for what stays."""

    removed: set[str]
    # Sessions that lose a turn.
    sessions: set[SessionKey] = field(default_factory=set)
    # Memories superseded by a removed one, and what supersedes them instead, if anything does.
    relinked: dict[str, str | None] = field(default_factory=dict)
    # Memories to restore, the latest first.
    restored: list[str] = field(default_factory=list)
    remade: tuple[Remade, ...] = ()
    stays: tuple[str, ...] = ()
    # Turns to forget, because they say what is removed.
    hidden: tuple[str, ...] = ()


def build_link(id: str, scope: Scope, category: str, status: str, body: Mapping[str, Any]) -> MemoryLink:
    """Return the links of a memory from the `body` in which it is stored."""
    detail = body.get("detail") or {}
    first, last, position = detail.get("turn_start"), detail.get("turn_end"), detail.get("position")
    return MemoryLink(
        id,
        scope,
        category,
        status,
        frozenset((*body.get("evidence", ()), *_cited(detail))) - {id},
        (first, last) if isinstance(first, int) and isinstance(last, int) else None,
        position if category == Category.TURN and isinstance(position, int) else None,
        body.get("superseded_by"),
        detail.get("kind") == "session",
    )


def _cited(data: Any, *, depth: int = 0) -> Iterator[str]:
    """Yield the ids that the detail of a memory cites."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(data, list | tuple):
        for each in data:
            yield from _cited(each, depth=depth + 1)
    elif isinstance(data, Mapping):
        for name, value in data.items():
            if name in _CITATION_FIELDS or name.endswith(("_id", "_ids")):
                yield from (text for text in (value if isinstance(value, list | tuple) else (value,)) if _is_id(text))
            if isinstance(value, list | tuple | Mapping):
                yield from _cited(value, depth=depth + 1)


def _is_id(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def erasure_seeds(links: Mapping[str, MemoryLink], scope: Scope, target: Target, ids: Collection[str]) -> set[str]:
    """Return where an erasure begins: the named ids, or all memories of the project or the session."""
    match target:
        case Target.TURN | Target.MEMORY:
            return {id for id in ids if id in links}
        case Target.PROJECT:
            return {each.id for each in links.values() if each.scope.project == scope.project}
        case Target.SESSION:
            return {each.id for each in links.values() if each.session == (scope.project, scope.session)}
        case Target.USER:
            return set(links)
        case _:
            assert_never(target)


def check_exists(links: Mapping[str, MemoryLink], request: ErasureRequest) -> None:
    """Raise NotFound if the requested id does not exist, or is not a turn though one is requested."""
    target_link = links.get(request.id)
    if request.id and (target_link is None or (request.target is Target.TURN and target_link.position is None)):
        if request.target is Target.MEMORY:
            raise memory_not_found(request.id)
        raise NotFound(f"no {request.target} {request.id} for this user; the list of turns shows their ids")


def strip_ids(data: Any, ids: Collection[str]) -> Any:
    """Return plain values without the ids."""
    if isinstance(data, Mapping):
        return {name: strip_ids(value, ids) for name, value in data.items() if not _is_among(value, ids)}
    if isinstance(data, list):
        return [strip_ids(value, ids) for value in data if not _is_among(value, ids)]
    return data


def mentions_any(data: Any, ids: Collection[str]) -> bool:
    """Return whether plain values contain one of the ids."""
    return _is_among(data, ids) or strip_ids(data, ids) != data


def _is_among(value: Any, ids: Collection[str]) -> bool:
    return isinstance(value, str) and value in ids


def cascade(
    links: Mapping[str, MemoryLink], seeds: Collection[str], *, with_older: bool, hide: Collection[str] = ()
) -> Cascade:
    """Return what an erasure of the seeds removes; `with_older` includes the versions they superseded.

    The turns to `hide` are forgotten, unless they are removed.
    """
    selected = {id for id in seeds if id in links}
    if with_older:
        selected |= _older_versions(links, selected)
    removed = _with_derived(links, selected)
    result = Cascade(removed)
    result.sessions = {links[id].session for id in removed if links[id].position is not None}
    result.remade = tuple(
        each for id in sorted(removed - selected) if (each := _describe_rebuild(links, links[id], removed))
    )
    cited = {source for id in selected for source in links[id].cites}
    result.stays = tuple(sorted(source for source in cited if source in links and source not in removed))
    if with_older:
        result.hidden = tuple(id for id in result.stays if _is_direct_source(links, links[id], selected))
    extra_turns = (id for id in hide if id in links and id not in removed and links[id].status == Status.ACTIVE)
    result.hidden = tuple(dict.fromkeys((*result.hidden, *extra_turns)))
    _close_gaps(links, result)
    return result


def _is_direct_source(links: Mapping[str, MemoryLink], turn: MemoryLink, selected: Collection[str]) -> bool:
    """Return whether it is an active turn that a selected memory was learned from, other than as a summary.

    A turn of a project is not hidden for a memory of another project.
    """
    learned = (
        links[id] for id in selected if turn.id in links[id].cites and links[id].category not in _SUMMARY_CATEGORIES
    )
    return (
        turn.position is not None
        and turn.status == Status.ACTIVE
        and any(each.scope.project in ("", turn.scope.project) for each in learned)
    )


def with_older_versions(links: Mapping[str, MemoryLink], ids: Collection[str]) -> set[str]:
    """Return the memories of these ids and all versions they superseded."""
    selected = {id for id in ids if id in links}
    return selected | _older_versions(links, selected)


def _older_versions(links: Mapping[str, MemoryLink], ids: Iterable[str]) -> set[str]:
    """Return what these superseded, directly or indirectly."""
    before: dict[str, list[str]] = defaultdict(list)
    for each in links.values():
        if each.superseded_by is not None:
            before[each.superseded_by].append(each.id)
    older: set[str] = set()
    waiting = list(ids)
    while waiting:
        for id in before[waiting.pop()]:
            if id not in older:
                older.add(id)
                waiting.append(id)
    return older


def _with_derived(links: Mapping[str, MemoryLink], seeds: Collection[str]) -> set[str]:
    """Return the seeds and whatever was derived from them, directly or indirectly."""
    citing: dict[str, list[str]] = defaultdict(list)
    ranges: dict[SessionKey, list[tuple[int, int, str]]] = defaultdict(list)
    for each in links.values():
        for source in each.cites:
            citing[source].append(each.id)
        if each.turns is not None:
            ranges[each.session].append((*each.turns, each.id))
    removed, waiting = set(seeds), list(seeds)
    while waiting:
        erased = links[waiting.pop()]
        dependents = citing.get(erased.id, [])
        if erased.position is not None:
            dependents = [
                *dependents,
                *(id for a, b, id in ranges.get(erased.session, ()) if a <= erased.position <= b),
            ]
        waiting += (new := set(dependents) - removed)
        removed |= new
    return removed


def _describe_rebuild(links: Mapping[str, MemoryLink], erased: MemoryLink, removed: Collection[str]) -> Remade | None:
    """Return how to derive it anew, or None if none of its sources stay."""
    sources = tuple(sorted(id for id in erased.cites if id in links and id not in removed))
    if not sources and erased.turns is not None:
        first, last = erased.turns
        if not any(
            each.position is not None
            and first <= each.position <= last
            and each.session == erased.session
            and each.id not in removed
            for each in links.values()
        ):
            return None
    elif not sources:
        return None
    return Remade(str(erased.category), erased.scope, sources, erased.turns, erased.at_end)


def _close_gaps(links: Mapping[str, MemoryLink], result: Cascade) -> None:
    """Decide what becomes of memories that were superseded by a removed one."""
    for each in reversed(list(links.values())):
        if each.id in result.removed or each.superseded_by not in result.removed:
            continue
        seen = {each.id}
        last = links[each.superseded_by]
        while last.superseded_by in result.removed and last.superseded_by not in seen:
            seen.add(last.superseded_by)
            last = links[last.superseded_by]
        if last.superseded_by is not None and last.superseded_by in links:
            result.relinked[each.id] = None if last.superseded_by in result.removed else last.superseded_by
        elif last.status == Status.ACTIVE and each.status == Status.SUPERSEDED:
            result.restored.append(each.id)
        else:
            result.relinked[each.id] = None
