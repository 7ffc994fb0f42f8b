"""The configuration blocks that presets accept besides our names."""

from __future__ import annotations

from pathlib import Path

import pytest

from recollect.config.name_mapping import NAMES
from recollect.config.settings import Settings, load
from recollect.errors import InvalidSettings

BLOCK = """\
preset: semantic-router
memory:
  milvus:
    m: 32
  default_retrieval_limit: 7
"""


def load_yaml(home: Path, text: str) -> Settings:
    (home / "config.yaml").write_text(text)
    return load({"home": home}, environ={}).settings


def test_a_block_of_the_preset_is_translated_and_its_name_is_the_source(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(BLOCK)
    loaded = load({"home": tmp_path}, environ={})
    assert (loaded.settings.milvus_m, loaded.settings.search_limit) == (32, 7)
    assert loaded.sources["milvus_m"] == f"file {tmp_path / 'config.yaml'}, memory.milvus.m"


def test_names_may_be_dotted_instead_of_nested(tmp_path: Path) -> None:
    assert load_yaml(tmp_path, "preset: semantic-router\nmemory.milvus.m: 24\n").milvus_m == 24


def test_our_own_name_overrides_the_name_of_the_block(tmp_path: Path) -> None:
    assert load_yaml(tmp_path, f"search_limit: 3\n{BLOCK}").search_limit == 3


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (BLOCK + "  cache_size: 3\n", "semantic-router has no setting 'memory.cache_size' (from file "),
        ("preset: semantic-router\nmemory: 3\n", "has no setting 'memory'"),
        (BLOCK.replace("32", "1"), "milvus_m: must be >= 2"),
        (BLOCK + "  store_backend: redis\n", "memory.store_backend must be milvus or memory, got 'redis'"),
        (BLOCK + "  extraction: {enabled: 1}\n", "memory.extraction.enabled must be true or false, got 1"),
        (BLOCK.replace("preset: semantic-router\n", ""), "'memory' is a block of the preset 'semantic-router'"),
    ],
)
def test_an_error_in_a_block_names_the_key(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        load_yaml(tmp_path, text)
    assert complaint in str(caught.value)


def test_a_wrong_value_is_reported_with_the_name_in_the_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=r"memory\.milvus\.m\)$"):
        load_yaml(tmp_path, BLOCK.replace("32", "1"))


def test_no_block_has_the_name_of_a_setting() -> None:
    blocks = {name.partition(".")[0] for names in NAMES.values() for name in names}
    assert blocks.isdisjoint(Settings.model_fields)


def test_a_special_name_overrides_a_general_one_in_any_order(tmp_path: Path) -> None:
    urls = "embedding_base_url: http://localhost:2/v1\nopenai_base_url: http://localhost:1/v1\n"
    settings = load_yaml(tmp_path, f"preset: markdown-proxy\n{urls}max_entries: 9\n")
    assert (settings.upstream_url, settings.embedder_url) == ("http://localhost:1/v1", "http://localhost:2/v1")
    assert settings.quota_project == 9
