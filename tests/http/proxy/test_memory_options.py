"""What a chat request says about memory, in fields and headers, and what it must not say."""

from __future__ import annotations

from typing import Any

import pytest

from recollect.http.proxy.memory_options import InvalidField, MemoryDefaults, parse_memory_options
from recollect.model.memory import MemoryType
from recollect.model.query import EVERYTHING
from recollect.model.scope import Scope


def steering(fields: dict[str, Any] | None = None, *, headers: dict[str, str] | None = None, **defaults: Any) -> Any:
    return parse_memory_options(fields or {}, headers or {}, MemoryDefaults(**defaults))


def test_a_request_that_says_nothing_is_the_default_users_and_reads_and_writes() -> None:
    results = steering()
    assert (results.scope, results.reads, results.writes, results.include_hits) == (
        Scope("default"),
        True,
        True,
        False,
    )
    assert (results.limit, results.min_score, results.recency_weight, results.filter) == (
        None,
        None,
        None,
        EVERYTHING,
    )


@pytest.mark.parametrize(
    ("fields", "headers", "user"),
    [
        ({"user": "u"}, {}, "u"),
        ({"user": "u", "metadata": {"user_id": "m"}}, {}, "m"),
        ({"metadata": {"user_id": "m"}, "memory_context": {"user_id": "c"}}, {}, "c"),
        ({"memory_context": {"user_id": "c"}}, {"x-memory-user": "h"}, "h"),
        ({"user": None, "metadata": None}, {}, "default"),
        ({"user": 7, "metadata": ["x"]}, {}, "default"),
    ],
)
def test_the_user_is_named_by_the_nearest_to_memory(fields: Any, headers: Any, user: str) -> None:
    assert steering(fields, headers=headers).scope.user == user


def test_project_and_session_come_from_headers_or_the_context() -> None:
    results = steering({"memory_context": {"user_id": "u", "project_id": "p"}}, headers={"x-memory-session": "s"})
    assert results.scope == Scope("u", "p", "s")
    assert steering(headers={"x-memory-project": "q"}).scope == Scope("default", "q")


def test_a_memory_id_is_a_conversation_with_memories_of_its_own() -> None:
    assert steering({"memory_id": "trip"}).scope == Scope("default", "trip", "trip")
    # The global bucket is what all of the user's conversations see.
    assert steering({"memory_id": "global"}).scope == Scope("default", "", "global")
    assert steering(memory_id="default").scope == Scope("default", "default", "default")
    assert steering({"memory_id": "trip"}, memory_id="default").scope.project == "trip"


@pytest.mark.parametrize(
    ("header", "reads", "writes"),
    [("off", False, False), ("read", True, False), ("WRITE", False, True), ("", True, True)],
)
def test_a_header_switches_reading_and_writing(header: str, reads: bool, writes: bool) -> None:
    results = steering(headers={"x-memory": header})
    assert (results.reads, results.writes) == (reads, writes)


def test_none_wanted_turns_retrieval_off_and_keeps_on_remembering() -> None:
    for fields in ({"memory_top_k": 0}, {"memory_config": {"retrieval_limit": 0}}):
        results = steering(fields)
        assert (results.reads, results.writes) == (False, True)


def test_the_memory_config_of_a_request_is_honoured() -> None:
    config = {
        "enabled": True,
        "memory_types": ["semantic", "procedural"],
        "retrieval_limit": 3,
        "similarity_threshold": 0.5,
        "auto_store": False,
    }
    results = steering({"memory_config": config})
    assert (results.limit, results.min_score, results.reads, results.writes) == (3, 0.5, True, False)
    assert results.types == (MemoryType.SEMANTIC, MemoryType.PROCEDURAL)
    off = steering({"memory_config": {"enabled": False}})
    assert (off.reads, off.writes) == (False, False)


def test_the_proxys_own_fields_come_before_the_config() -> None:
    fields = {
        "memory_top_k": 7,
        "memory_score_threshold": 0,
        "memory_recency_weight": 1,
        "memory_config": {"retrieval_limit": 3, "similarity_threshold": 0.5},
    }
    results = steering(fields)
    assert (results.limit, results.min_score, results.recency_weight) == (7, 0.0, 1.0)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"memory_top_k": "many"}, "memory_top_k"),
        ({"memory_top_k": -1}, "memory_top_k"),
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
def test_nonsense_is_refused_by_its_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidField) as caught:
        steering(fields)
    assert caught.value.name == named
    assert str(caught.value).startswith(named)


def test_a_header_with_another_word_is_refused() -> None:
    with pytest.raises(InvalidField, match="off, read or write"):
        steering(headers={"x-memory": "maybe"})
