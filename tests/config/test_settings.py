"""Settings: layers, sources, errors, and the generated page."""

from __future__ import annotations

from pathlib import Path

import pytest

from recollect.config.name_mapping import FORMER_NAMES
from recollect.config.settings import Settings, load, preset_names, read_preset, rows
from recollect.errors import InvalidSettings
from scripts.print_docs import settings_page
from tests.support.paths import ROOT


def test_later_layers_override_earlier_ones_and_sources_are_recorded(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('port = 1111\nhost = "127.0.0.2"\nlog_level = "debug"\n')
    environ = {"RECOLLECT_PORT": "2222", "RECOLLECT_LOG_LEVEL": "error"}
    loaded = load({"home": tmp_path, "port": 3333}, environ=environ)
    assert (loaded.settings.port, loaded.settings.log_level, loaded.settings.host) == (3333, "error", "127.0.0.2")
    sources = {row.name: row.source for row in rows(loaded)}
    assert sources["port"] == "command line"
    assert sources["log_level"] == "environment RECOLLECT_LOG_LEVEL"
    assert sources["host"] == f"file {tmp_path / 'config.toml'}"
    assert sources["index_memory_mb"] == "default"


def test_settings_can_be_yaml(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("search_limit: 7\n")
    assert load({"home": tmp_path}, environ={}).settings.search_limit == 7


def test_the_home_can_come_from_the_environment(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("search_limit = 3\n")
    loaded = load(environ={"RECOLLECT_HOME": str(tmp_path)})
    assert loaded.settings.home == tmp_path
    assert loaded.settings.search_limit == 3


def test_the_file_overrides_the_preset(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('preset = "semantic-router"\nsearch_limit = 9\n')
    settings = load({"home": tmp_path}, environ={}).settings
    assert (settings.search_limit, settings.context_format) == (9, "semantic-router")


def test_the_five_presets_are_valid(tmp_path: Path) -> None:
    assert set(preset_names()) == {"semantic-router", "react-mem", "session-service", "markdown-proxy", "three-tier"}
    for name in preset_names():
        assert load({"home": tmp_path, "preset": name}, environ={}).settings.preset == name
        assert read_preset(name)


def test_variables_of_other_tools_are_used_unless_ours_are_set(tmp_path: Path) -> None:
    both = {"OPENAI_API_KEY": "theirs", "RECOLLECT_EMBEDDER_API_KEY": "ours"}
    only = {"OPENAI_API_KEY": "theirs"}
    assert load({"home": tmp_path}, environ=both).settings.embedder_api_key.get_secret_value() == "ours"
    assert load({"home": tmp_path}, environ=only).settings.embedder_api_key.get_secret_value() == "theirs"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("port = 99999\n", "port: must be >= 0 and <= 65,535, got 99999"),
        ("context_tokens = 255\n", "context_tokens: must be >= 256"),
        ("prot = 1\n", "there is no setting 'prot'"),
        (
            "port = 8100\nhost = 127.0.0.1\n",
            "document after a statement (at line 2, column 13); a line is a setting, such",
        ),
        ('log_level = "loud"\n', "log_level"),
        ('preset = "nonsense"\n', "there is no preset 'nonsense'"),
    ],
)
def test_an_error_in_the_file_names_setting_and_file(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(InvalidSettings) as caught:
        load({"home": tmp_path}, environ={})
    assert complaint in str(caught.value)


def test_an_error_in_a_yaml_file_names_its_line_and_quotes_nothing_of_it(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("port: 8100\nllm_api_key: [sk-secret\n")
    with pytest.raises(InvalidSettings, match="expected ',' or ']', but got '<stream end>'") as caught:
        load({"home": tmp_path}, environ={})
    assert str(caught.value).startswith(f"{tmp_path / 'config.yaml'} is not valid YAML: ")
    assert "(at line 2, column 14)" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_misspelt_variable_is_answered_with_the_most_similar(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load({"home": tmp_path}, environ={"RECOLLECT_PROT": "1"})
    assert "RECOLLECT_PROT is not a setting; did you mean RECOLLECT_PORT?" in caplog.text


def test_secrets_are_masked(tmp_path: Path) -> None:
    loaded = load({"home": tmp_path, "embedder_api_key": "hush"}, environ={})
    visible = {row.name: row.value for row in rows(loaded)}
    assert visible["embedder_api_key"] == "********"
    assert "hush" not in repr(loaded)


def test_an_invalid_secret_is_not_repeated_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings) as caught:
        load({"home": tmp_path, "embedder_api_key": ["hush"]}, environ={})
    assert "hush" not in str(caught.value)


def test_the_settings_page_is_current() -> None:
    page = ROOT / "docs" / "settings.md"
    assert page.read_text(encoding="utf-8") == settings_page()
    assert all(f"`{name}`" in settings_page() for name in Settings.model_fields)


def test_former_names_of_settings_are_accepted_from_every_source(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("same_letters = 0.9\nmost_waiting_jobs = 5\n")
    environ = {"RECOLLECT_STOP_WITHIN_S": "7", "RECOLLECT_MAX_WAITING_JOBS": "6"}
    loaded = load({"home": tmp_path, "upkeep_nightly": "prune"}, environ=environ)
    settings = loaded.settings
    assert (settings.merge_text_similarity, settings.shutdown_timeout_s) == (0.9, 7)
    assert (settings.max_waiting_jobs, settings.nightly_maintenance) == (6, "prune")
    assert loaded.sources["shutdown_timeout_s"] == "environment RECOLLECT_STOP_WITHIN_S"
    assert Settings(same_meaning=0.8).merge_vector_similarity == 0.8


def test_former_names_are_those_of_settings() -> None:
    assert set(FORMER_NAMES.values()) <= Settings.model_fields.keys()
    assert not FORMER_NAMES.keys() & Settings.model_fields.keys()


def test_weights_that_exceed_one_are_rejected(tmp_path: Path) -> None:
    weights = {"recency_adds": True, "recency_weight": 0.5, "importance_weight": 0.6}
    with pytest.raises(InvalidSettings, match="must not add up to more than 1"):
        load({"home": tmp_path, **weights}, environ={})
