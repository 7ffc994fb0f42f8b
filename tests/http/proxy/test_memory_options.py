"""The fields and headers by which a chat request controls memory."""

from __future__ import annotations

from typing import Any

import pytest

from recollect.config.settings import Settings
from recollect.http.proxy.memory_options import InvalidField, MemoryOptions, parse_memory_options
from recollect.model.memory import MemoryType
from recollect.model.query import EVERYTHING
from recollect.model.scope import Scope


def parse(fields: dict[str, Any] | None = None, *, headers: dict[str, str] | None = None, **settings: Any) -> Any:
    return parse_memory_options(fields or {}, headers or {}, Settings(**settings))


def test_a_request_without_options_reads_and_writes_for_the_default_user() -> None:
    assert parse() == MemoryOptions(scope=Scope("default"))
    assert parse().filter is EVERYTHING


@pytest.mark.parametrize(
    ("fields", "headers", "user"),
    [
        ({"user": "u"}, {}, "u"),
        ({"user": "u", "metadata": {"user_id": "m"}}, {}, "m"),
        ({"metadata": {"user_id": "m"}, "memory_context": {"user_id": "c"}}, {}, "c"),
        ({"memory_context": {"user_id": "c"}}, {"x-memory-user": "h"}, "h"),
        ({"user": None, "metadata": None}, {}, "default"),
        ({"user": 7, "metadata": ["x"]}, {}, "7"),
        ({"user": True}, {}, "default"),
    ],
)
def test_the_most_specific_user_counts(fields: Any, headers: Any, user: str) -> None:
    assert parse(fields, headers=headers).scope.user == user


def test_project_and_session_come_from_headers_or_memory_context() -> None:
    results = parse({"memory_context": {"user_id": "u", "project_id": "p"}}, headers={"x-memory-session": "s"})
    assert results.scope == Scope("u", "p", "s")
    assert parse(headers={"x-memory-project": "q"}).scope == Scope("default", "q")


def test_a_memory_id_is_a_project_and_a_session() -> None:
    assert parse({"memory_id": "trip"}).scope == Scope("default", "trip", "trip")
    # All conversations of the user see the global memories.
    assert parse({"memory_id": "global"}).scope == Scope("default", "", "global")
    assert parse(chat_memory_id="default").scope == Scope("default", "default", "default")
    assert parse({"memory_id": "trip"}, chat_memory_id="default").scope.project == "trip"


@pytest.mark.parametrize(
    ("header", "reads", "writes"),
    [("off", False, False), ("read", True, False), ("WRITE", False, True), ("", True, True)],
)
def test_x_memory_switches_reading_and_writing(header: str, reads: bool, writes: bool) -> None:
    results = parse(headers={"x-memory": header})
    assert (results.reads, results.writes) == (reads, writes)


def test_a_limit_of_zero_turns_recall_off_and_not_storing() -> None:
    for fields in ({"memory_top_k": 0}, {"memory_config": {"retrieval_limit": 0}}):
        results = parse(fields)
        assert (results.reads, results.writes) == (False, True)


def test_memory_config_sets_limit_threshold_types_and_storing() -> None:
    config = {
        "enabled": True,
        "memory_types": ["semantic", "procedural"],
        "retrieval_limit": 3,
        "similarity_threshold": 0.5,
        "auto_store": False,
    }
    results = parse({"memory_config": config})
    assert (results.limit, results.min_score, results.reads, results.writes) == (3, 0.5, True, False)
    assert results.types == (MemoryType.SEMANTIC, MemoryType.PROCEDURAL)
    off = parse({"memory_config": {"enabled": False}})
    assert (off.reads, off.writes) == (False, False)


def test_top_level_fields_override_memory_config() -> None:
    fields = {
        "memory_top_k": 7,
        "memory_score_threshold": 0,
        "memory_recency_weight": 1,
        "memory_config": {"retrieval_limit": 3, "similarity_threshold": 0.5},
    }
    results = parse(fields)
    assert (results.limit, results.min_score, results.recency_weight) == (7, 0.0, 1.0)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"memory_top_k": "many"}, "memory_top_k"),
        ({"memory_config": {"retrieval_limit": -1}}, "memory_config.retrieval_limit"),
        ({"memory_top_k": True}, "memory_top_k"),
        ({"memory_top_k": 10**9}, "memory_top_k"),
        ({"memory_score_threshold": 2}, "memory_score_threshold"),
        ({"memory_recency_weight": float("nan")}, "memory_recency_weight"),
        ({"memory_id": 5}, "memory_id"),
        ({"memory_config": "on"}, "memory_config"),
        ({"memory_config": {"enabled": "yes"}}, "memory_config.enabled"),
        ({"memory_config": {"memory_types": ["made-up"]}}, "memory_config.memory_types"),
        ({"memory_config": {"memory_types": "semantic"}}, "memory_config.memory_types"),
        ({"memory_context": ["u"]}, "memory_context"),
        ({"memory_context": {"user_id": 1}}, "memory_context.user_id"),
        ({"memory_hits": 1}, "memory_hits"),
    ],
)
def test_an_invalid_field_is_rejected_by_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidField) as caught:
        parse(fields)
    assert caught.value.name == named
    assert str(caught.value).startswith(named)


def test_an_unknown_value_of_x_memory_is_rejected() -> None:
    with pytest.raises(InvalidField, match="off, read or write"):
        parse(headers={"x-memory": "maybe"})
