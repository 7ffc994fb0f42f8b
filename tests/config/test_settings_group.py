"""Declared settings: types, limits, tables, immutability."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from recollect.config.fields import RecallSettings, Settings
from recollect.errors import InvalidSettings


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("port", "8100", 8100),
        ("port", 8100.0, 8100),
        ("search_min_score", "0.5", 0.5),
        ("search_min_score", 1, 1.0),
        ("recall_turns", "off", False),
        ("recall_turns", 1, True),
        ("home", "/data", Path("/data")),
        ("log_format", "json", "json"),
        ("agent_groups", '{"all": ["a", "b"]}', {"all": ["a", "b"]}),
    ],
)
def test_a_value_is_converted_to_the_type_of_its_setting(name: str, text: Any, value: Any) -> None:
    converted = getattr(Settings(**{name: text}), name)
    assert converted == value
    assert type(converted) is type(value) or isinstance(value, Path)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"port": "many"}, "port: must be a whole number"),
        ({"port": 1.5}, "port: must be a whole number, got 1.5"),
        ({"port": None}, "port: must be a whole number"),
        ({"search_min_score": float("nan")}, "search_min_score: must be >= 0 and <= 1, got nan"),
        ({"recall_turns": "maybe"}, "recall_turns: must be true or false"),
        ({"llm": 5}, "llm: must be a text"),
        ({"chat_user": ""}, "chat_user: must not be empty"),
        ({"log_format": "xml"}, "log_format: must be one of text, json"),
        ({"milvus_collection": "a b"}, "milvus_collection: must match the pattern"),
        ({"agent_groups": "[1"}, "agent_groups: is not JSON"),
        ({"upstreams": {"a": {"url": "http://x"}}}, "upstreams: models is missing"),
        (
            {"upstreams": {"a": {"url": "http://x", "models": "*", "key": "secret"}}},
            "upstreams: there is no setting 'key'",
        ),
        ({"upstreams": ["a"]}, "upstreams: must be a table"),
    ],
)
def test_an_invalid_value_is_described(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        Settings(**values)
    assert str(caught.value).startswith(problem)
    assert "secret" not in str(caught.value)


def test_tables_hold_groups_with_secrets_that_are_not_printed() -> None:
    settings = Settings(upstreams='{"a": {"url": "http://x", "models": "*", "api_key": "hush"}}')
    assert settings.upstreams["a"].api_key.get_secret_value() == "hush"
    assert settings.upstreams["a"].responses == "auto"
    assert "hush" not in repr(settings)


def test_settings_are_immutable_and_compared_by_value() -> None:
    settings = Settings(port=1)
    with pytest.raises(AttributeError):
        settings.port = 2  # type: ignore[misc]
    assert settings == Settings(port=1) == pickle.loads(pickle.dumps(settings)) != Settings(port=2)
    assert Settings(port=Settings().port) == Settings()
    assert RecallSettings() != Settings()


def test_a_copy_has_other_values_and_its_own_cached_properties() -> None:
    settings = Settings(recall_excluded_tags="a, b", port=1)
    assert settings.excluded_tags == {"a", "b"}
    copy = settings.model_copy(update={"recall_excluded_tags": "c"})
    assert copy.excluded_tags == {"c"}
    assert copy.model_fields_set == {"recall_excluded_tags", "port"}
    assert settings.recall_excluded_tags == "a, b"
