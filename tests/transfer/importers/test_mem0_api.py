"""Imports from mem0's API: the platform, and a self-hosted server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mem0.client.main import MemoryClient

from recollect import Memory
from recollect.errors import InvalidInput
from recollect.testing.fake_embedder import FakeEmbedder
from recollect.transfer.importers import mem0
from tests.http.compat.test_mem0 import running
from tests.support import importer_samples  # noqa: F401  (sets up mem0 before it is imported)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[str]:
    """A mem0 server with memories of two users."""
    with running(tmp_path / "theirs") as url:
        client = MemoryClient(api_key="any", host=url)
        for n in range(5):
            client.add(f"Owns boat number {n}", user_id="alex", infer=False, metadata={"n": n})
        client.add("Rides a bike", user_id="bea", infer=False)
        client.client.close()
        yield url


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(home=tmp_path / "ours", embedder=FakeEmbedder(16)) as memory:
        yield memory


def test_all_pages_of_all_users_are_imported_with_times_and_metadata(
    host: str, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mem0, "API_PAGE_SIZE", 2)
    moved = memory.admin.import_from(host, everyone=True, token="any")
    assert (moved.kind, moved.memories, sorted(moved.users)) == ("mem0", 6, ["alex", "bea"])
    lines = list(memory.export(user_id="alex"))
    assert {line["memory"] for line in lines} == {f"Owns boat number {n}" for n in range(5)}
    assert {line["metadata"]["n"] for line in lines} == set(range(5))
    with Memory(home=memory.settings.home.parent / "theirs") as theirs:
        report = {line["memory"]: line["created_at"] for line in theirs.export(user_id="alex")}
    assert {line["memory"]: line["created_at"][:19] for line in lines} == {
        text: at[:19] for text, at in report.items()
    }
    assert memory.admin.import_from(host, everyone=True).present == 6


def test_a_self_hosted_server_is_read_for_the_named_users(
    host: str, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    import httpx

    request = httpx.Client.get

    def without_platform(self: httpx.Client, url: str, **more: object) -> httpx.Response:
        return httpx.Response(404) if url == "/v1/ping/" else request(self, url, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(httpx.Client, "get", without_platform)
    with pytest.raises(InvalidInput, match="--of"):
        memory.admin.import_from(host, user_id="alex")
    assert memory.admin.import_from(host, user_id="cy", of=["alex"]).added == 5
    assert memory.admin.users() == ["cy"]
