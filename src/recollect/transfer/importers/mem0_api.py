"""mem0 by its API: the platform's pages, or a server of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from recollect.errors import InvalidInput, UpstreamUnavailable
from recollect.transfer.importers.items import SkippedItem, SourceItem
from recollect.transfer.importers.source import ImportSource

_PAGE = 100
_MAX_MEMORIES = 1000
# As many as some server gives at most.
_SERVER_PAGE = 20
_TIMEOUT_S = 60.0


def read(source: ImportSource) -> Iterator[SourceItem]:
    """The memories of the users named in `more["of"]`, or of everyone the API names."""
    import httpx

    from recollect.transfer.importers.mem0 import read_memory

    token = source.options.get("token")
    headers = {"Authorization": f"Token {token}", "X-API-Key": token} if token else {}
    try:
        with httpx.Client(base_url=source.location, headers=headers, timeout=_TIMEOUT_S) as client:
            is_platform = client.get("/v1/ping/").status_code == 200
            for user in source.options.get("of") or _users(client, is_platform=is_platform):
                for memory in _platform_memories(client, user) if is_platform else _server_memories(client, user):
                    if isinstance(memory, SkippedItem):
                        yield memory
                        continue
                    id = str(memory.get("id"))
                    yield from read_memory(id, {**memory, "user_id": memory.get("user_id") or user}, f"memory {id}")
    except httpx.HTTPStatusError as error:
        raise InvalidInput(
            f"{source.location} answered {error.response.status_code}: check the address and the key"
        ) from None
    except (httpx.HTTPError, ValueError) as error:
        raise UpstreamUnavailable(f"{source.location} does not answer as mem0 does: {error}") from error


def _users(client: Any, *, is_platform: bool) -> list[str]:
    if not is_platform:
        raise InvalidInput("a server of mem0 does not tell who its users are: name them with --of")
    answer = client.get("/v1/entities/")
    answer.raise_for_status()
    return [str(each["name"]) for each in answer.json()["results"] if each.get("type") == "user"]


def _platform_memories(client: Any, user: str) -> Iterator[dict[str, Any]]:
    page = 1
    while True:
        params = {"page": page, "page_size": _PAGE}
        answer = client.post("/v3/memories/", params=params, json={"filters": {"user_id": user}})
        answer.raise_for_status()
        data = answer.json()
        yield from data["results"]
        if not data.get("next") or not data["results"]:
            return
        page += 1


def _server_memories(client: Any, user: str) -> Iterator[dict[str, Any] | SkippedItem]:
    # There are no pages there, and without a number it gives its first few.
    answer = client.get("/memories", params={"user_id": user, "limit": _MAX_MEMORIES})
    answer.raise_for_status()
    data = answer.json()
    memories = data["results"] if isinstance(data, dict) else data
    yield from memories
    if memories and len(memories) % _SERVER_PAGE == 0:
        yield SkippedItem(f"user {user}", f"it gave {len(memories):,} and may have more: bring in its folder instead")
