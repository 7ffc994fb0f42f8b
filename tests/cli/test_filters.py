"""--where and its shortcuts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from recollect.cli.options import parse_cli_time, parse_where
from recollect.errors import InvalidInput
from recollect.model.query import Not, Op, Where
from tests.support.cli_runner import Cli


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("importance>=0.5", Where("importance", Op.GTE, 0.5)),
        ("version>2", Where("version", Op.GT, 2)),
        ("category == fact", Where("category", Op.EQ, "fact")),
        ("category!=fact", Where("category", Op.NE, "fact")),
        ("category in fact, event", Where("category", Op.IN, ("fact", "event"))),
        ("tags~travel", Where("tags", Op.CONTAINS, "travel")),
        ("tags=travel", Where("tags", Op.CONTAINS, "travel")),
        ("tags!=travel", Not(Where("tags", Op.CONTAINS, "travel"))),
        ("content~a=b", Where("content", Op.CONTAINS, "a=b")),
        ("value=x >= y", Where("value", Op.EQ, "x >= y")),
        ("source=", Where("source", Op.EQ, "")),
        ("metadata.days=7", Where("metadata.days", Op.EQ, 7)),
        ('metadata.days="7"', Where("metadata.days", Op.EQ, "7")),
        ("metadata.paid=true", Where("metadata.paid", Op.EQ, True)),
        ("metadata.trip name=big island", Where("metadata.trip name", Op.EQ, "big island")),
        ("metadata.inside~in", Where("metadata.inside", Op.CONTAINS, "in")),
        ("created_at>=2026-03-15", Where("created_at", Op.GTE, datetime(2026, 3, 15, tzinfo=UTC))),
    ],
)
def test_comparisons_are_parsed(text: str, expected: object) -> None:
    assert parse_where(text) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("importance", "cannot read --where 'importance'"),
        ("=5", "cannot read --where"),
        ("nonsense=5", "unknown field 'nonsense'; the fields are"),
        ("metadata=5", "unknown field 'metadata'"),
        ("importance>=high", "importance is compared with a number, not 'high'"),
        ("importance~5", "importance cannot be compared with contains"),
        ("category=facts", "unknown category 'facts'; it is one of fact,"),
        ("category in fact,facts", "unknown category 'facts'"),
        ("created_at>yesterday", "created_at is not a time: 'yesterday'"),
        ("tags>5", "tags cannot be compared with gt"),
        ("content=caf\udce9", "lone surrogate"),
    ],
)
def test_an_invalid_comparison_is_rejected_with_the_alternatives(text: str, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=r"\w") as caught:
        parse_where(text)
    assert complaint in str(caught.value)


def test_a_span_is_a_time_ago() -> None:
    for text, span in (("24h", timedelta(hours=24)), ("7d", timedelta(days=7)), ("2w", timedelta(weeks=2))):
        assert abs(datetime.now(UTC) - span - parse_cli_time(text, name="--since")) < timedelta(seconds=60)
    with pytest.raises(InvalidInput, match="before the calendar begins"):
        parse_cli_time("999999w", name="--since")


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home")


def matching(cli: Cli, *options: str) -> set[str]:
    listed = {each["memory"] for each in cli.json("list", *options)["results"]}
    searched = {each["memory"] for each in cli.json("search", "likes", *options)["results"]}
    assert searched == listed
    return listed


def test_filters_narrow_list_and_search_alike(cli: Cli) -> None:
    cli.add("likes tea", "--importance", "0.9", "--tag", "drinks", "--tag", "hot")
    cli.add("likes gin", "--importance", "0.2", "--tag", "drinks", "--category", "preference")
    cli.add("likes Lisbon", "--type", "episodic", "--category", "event", "--meta", "year=2024")
    assert matching(cli, "--where", "importance>=0.5", "--where", "tags~drinks") == {"likes tea"}
    assert matching(cli, "--tag", "drinks") == {"likes tea", "likes gin"}
    assert matching(cli, "--tag", "drinks", "--tag", "hot") == {"likes tea"}
    assert matching(cli, "--category", "fact", "--category", "event") == {"likes tea", "likes Lisbon"}
    assert matching(cli, "--type", "episodic") == {"likes Lisbon"}
    assert matching(cli, "--where", "metadata.year<2025") == {"likes Lisbon"}
    assert matching(cli, "--since", "1h") == {"likes tea", "likes gin", "likes Lisbon"}
    assert matching(cli, "--until", "1h") == set()


def test_a_day_counts_as_a_whole(cli: Cli) -> None:
    cli("import", input='{"memory": "likes tea", "user_id": "default", "created_at": "2026-03-15T20:00:00Z"}')
    assert matching(cli, "--since", "2026-03-15", "--until", "2026-03-15") == {"likes tea"}
    assert matching(cli, "--until", "2026-03-14") == set()
    assert matching(cli, "--until", "2026-03-15T12:00:00Z") == set()


def test_an_empty_result_says_which_filters_to_drop(cli: Cli) -> None:
    cli.add("likes tea")
    assert "fewer filters" in cli("list", "--tag", "nope").stdout
    assert "without the filters." in cli("search", "tea", "--tag", "nope", "--user", "default").stdout
    assert "without --as-of;" in cli("search", "tea", "--as-of", "2020-01-01").stdout
    assert "without --min-score;" in cli("search", "gin", "--min-score", "1").stdout
    every = cli("search", "gin", "--min-score", "1", "--as-of", "7d", "--tag", "nope").stdout
    assert "Try it without the filters, --min-score and --as-of;" in every


@pytest.mark.parametrize("option", ["--since", "--as-of", "--at"])
def test_an_invalid_time_is_rejected_with_the_valid_forms(cli: Cli, option: str) -> None:
    report = cli.error("search", "tea", option, "yesterday", code=2)
    assert all(form in report for form in ("ISO 8601", "24h", "7d", "2w"))
