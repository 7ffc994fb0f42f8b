"""Keys that may write and not read."""

from __future__ import annotations

from pathlib import Path

from tests.support.api_server import PREFIX
from tests.support.auth_samples import bearer, make_key, serving

TEXT = "The budget for the trip to Hawaii is ten thousand"


def test_a_write_only_key_adds_a_memory_that_is_similar_to_another(tmp_path: Path) -> None:
    with serving(tmp_path, auth="keys", merge_text_similarity=0.8) as client:
        write_only, full = make_key(client, user="ann", reads=False), make_key(client, user="ann")
        for text in (TEXT, f"{TEXT} now"):
            added = client.post(f"{PREFIX}/memories", headers=bearer(write_only), json={"content": text})
            assert (added.status_code, added.json()["memory"]) == (201, text)
        merged = client.post(f"{PREFIX}/memories", headers=bearer(full), json={"content": f"{TEXT} yes"})
        assert (merged.status_code, merged.json()["event"]) == (201, "update")
