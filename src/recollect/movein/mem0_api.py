"""mem0 by its API: the platform's pages, or a server of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from recollect.errors import InvalidInput, UpstreamUnavailable
from recollect.movein.item import Item, Left
from recollect.movein.source import Source

_PAGE = 100
_MOST = 1000
# As many as some server gives at most.
_ROUND = 20
_PATIENCE_S = 60.0


def read(source: Source) -> Iterator[Item]:
    """The memories of the users named in `more["of"]`, or of everyone the API names."""
    import httpx

    from recollect.movein.mem0 import remembered

    token = source.more.get("token")
    headers = {"Authorization": f"Token {token}", "X-API-Key": token} if token else {}
    try:
        with httpx.Client(base_url=source.place, headers=headers, timeout=_PATIENCE_S) as client:
            is_platform = client.get("/v1/ping/").status_code == 200
            for user in source.more.get("of") or _users(client, is_platform=is_platform):
                for memory in _pages(client, user) if is_platform else _all(client, user):
                    if isinstance(memory, Left):
                        yield memory
                        continue
                    id = str(memory.get("id"))
                    yield from remembered(id, {**memory, "user_id": memory.get("user_id") or user}, f"memory {id}")
    except httpx.HTTPStatusError as error:
        raise InvalidInput(
            f"{source.place} answered {error.response.status_code}: check the address and the key"
        ) from None
    except (httpx.HTTPError, ValueError) as error:
        raise UpstreamUnavailable(f"{source.place} does not answer as mem0 does: {error}") from error


def _users(client: Any, *, is_platform: bool) -> list[str]:
    if not is_platform:
        raise InvalidInput("a server of mem0 does not tell who its users are: name them with --of")
    answer = client.get("/v1/entities/")
    answer.raise_for_status()
    return [str(each["name"]) for each in answer.json()["results"] if each.get("type") == "user"]


def _pages(client: Any, user: str) -> Iterator[dict[str, Any]]:
    page = 1
    while True:
        asked = {"page": page, "page_size": _PAGE}
        answer = client.post("/v3/memories/", params=asked, json={"filters": {"user_id": user}})
        answer.raise_for_status()
        told = answer.json()
        yield from told["results"]
        if not told.get("next") or not told["results"]:
            return
        page += 1


def _all(client: Any, user: str) -> Iterator[dict[str, Any] | Left]:
    # There are no pages there, and without a number it gives its first few.
    answer = client.get("/memories", params={"user_id": user, "limit": _MOST})
    answer.raise_for_status()
    told = answer.json()
    found = told["results"] if isinstance(told, dict) else told
    yield from found
    if found and len(found) % _ROUND == 0:
        yield Left(f"user {user}", f"it gave {len(found):,} and may have more: bring in its folder instead")
