"""`recollect recall`, and `--explain` of searches."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli_runner import Cli

ANN = ("--user", "ann")
BUDGET = "My budget for the Hawaii trip is 10,000 dollars"
QUESTION = "What is my budget for the Hawaii trip?"
TALK = [
    {"role": "user", "content": "I am planning the Hawaii trip and its budget"},
    {"role": "assistant", "content": "Lovely."},
    {"role": "user", "content": "How much?"},
]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home")


def test_recall_prints_the_outcome_the_block_and_the_hits(cli: Cli) -> None:
    id = cli.add(BUDGET, *ANN)
    lines = cli("recall", QUESTION, *ANN).stdout.splitlines()
    assert lines[0].startswith("used: 1 memor")
    assert lines[3].startswith("<recalled-memories ")
    assert json.loads(lines[4])["text"] == BUDGET
    assert lines[5].startswith("</recalled-memories ")
    assert lines[7].split() == ["SCORE", "ID", "CATEGORY", "MEMORY"]
    assert lines[8].split(maxsplit=3)[1:] == [id, "fact", BUDGET]


@pytest.mark.parametrize(
    ("words", "outcome"),
    [
        (("hello",), "ignored: it is a greeting"),
        ((QUESTION, "--user", "bob"), "missing: "),
        ((QUESTION, "--limit", "0"), "disabled: "),
        ((QUESTION, "--tag", "work"), "missing: "),
    ],
)
def test_a_recall_without_memories_prints_the_reason(cli: Cli, words: tuple[str, ...], outcome: str) -> None:
    cli.add(BUDGET, *ANN)
    assert cli("recall", *ANN, *words).stdout.startswith(outcome)


def test_json_has_the_messages_with_the_block_inserted(cli: Cli) -> None:
    cli.add(BUDGET, *ANN)
    report = cli.json("recall", QUESTION, *ANN)
    assert (report["outcome"], report["query"]) == ("used", QUESTION)
    block, question = report["messages"]
    assert block == {"role": "user", "content": report["context"]["text"]}
    assert question == {"role": "user", "content": QUESTION}
    assert report["results"][0]["memory"] == BUDGET
    assert report["candidates"] == []
    assert cli.json("recall", QUESTION, *ANN, "--explain")["candidates"][0]["decision"] == "selected"


@pytest.mark.parametrize("piped", [True, False])
def test_the_last_user_message_of_a_conversation_is_completed_by_the_others(
    cli: Cli, tmp_path: Path, piped: bool
) -> None:
    cli.add(BUDGET, *ANN)
    file = tmp_path / "talk.json"
    file.write_text(json.dumps(TALK))
    inputs = ("-", json.dumps(TALK)) if piped else (str(file), None)
    report = cli.json("recall", *ANN, "--messages", inputs[0], input=inputs[1])
    assert report["query"].startswith("How much? ")
    assert "Hawaii" in report["query"]
    assert [message["content"] for message in report["messages"] if message in TALK] == [
        message["content"] for message in TALK
    ]
    assert len(report["messages"]) == len(TALK) + 1


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('{"role": "user"}', "not a JSON list"),
        ('["How much?"]', "{'role', 'content'}"),
        ("[" * 100_000, "not JSON"),
        (b"\xff\xfe", "not JSON"),
    ],
)
def test_invalid_messages_are_rejected(cli: Cli, content: Any, complaint: str) -> None:
    assert complaint in cli.error("recall", *ANN, "--messages", "-", input=content, code=2)
    assert "nowhere.json" in cli.error("recall", *ANN, "--messages", "nowhere.json", code=2)
    assert "not both" in cli.error("recall", QUESTION, *ANN, "--messages", "-", input="[]", code=2)


@pytest.mark.parametrize("flag", ["--is-fact", "--requires-tool"])
def test_the_caller_can_decide_that_no_search_is_needed(cli: Cli, flag: str) -> None:
    cli.add("The speed of light came up at dinner", *ANN)
    request = "speed of light at the dinner table"
    assert cli("recall", request, *ANN).stdout.startswith("used")
    assert cli("recall", request, *ANN, flag).stdout.startswith("ignored: the caller says")


def test_as_of_uses_an_earlier_state(cli: Cli) -> None:
    cli.add(BUDGET, *ANN)
    assert cli("recall", QUESTION, *ANN, "--as-of", "7d").stdout.startswith("missing")
    assert "Nothing found" in cli("search", QUESTION, *ANN, "--as-of", "2020-01-01").stdout
    assert BUDGET in cli("search", QUESTION, *ANN, "--as-of", "2999-01-01T00:00:00+01:00").stdout


def test_at_is_the_reference_of_last_march(cli: Cli) -> None:
    for month in ("2024-03-10", "2026-03-10"):
        cli.add(f"Ran the marathon in {month[:4]}", *ANN, "--occurred", month)
    request = ("Which marathon did I run last March?", *ANN, "--explain")
    for at, year in (("2024-06-01", "2024"), ("2026-06-01T00:00:00+02:00", "2026")):
        report = cli.json("search", *request, "--at", at)
        inside = [each["memory"] for each in report["candidates"] if each["features"]["in_period"] > 0.9]
        assert inside == [f"Ran the marathon in {year}"]


def test_explain_prints_the_decision_the_query_and_the_times(cli: Cli) -> None:
    cli.add(BUDGET, *ANN)
    output = cli("recall", *ANN, "--messages", "-", "--explain", input=json.dumps(TALK))
    assert "\nsearched: " in output.stdout
    assert re.search(r"^query: How much\? .*Hawaii", output.stdout, re.MULTILINE)
    steps = output.stdout.partition("\nSTEP")[2]
    assert all(f"\n{step} " in steps for step in ("decide", "rewrite", "embed", "gather", "format", "inject"))
    assert re.search(r"^1 hit in \d+\.\d{3} ms$", output.stdout, re.MULTILINE)


def test_notes_are_printed_if_verbose_or_if_something_failed(cli: Cli) -> None:
    cli.add(BUDGET, *ANN)
    assert cli("recall", QUESTION, *ANN).stderr == ""
    assert cli("recall", *ANN, "--messages", "-", input=json.dumps(TALK)).stderr == ""
    assert cli("recall", *ANN, "How much?").stderr == ""
    assert "searched: " in cli("recall", QUESTION, *ANN, "-v").stderr
    (cli.home / "config.toml").write_text('rewrite = "llm"\n')
    output = cli("recall", *ANN, "--messages", "-", input=json.dumps(TALK)).stderr
    assert "no LLM is set up" in output
    assert "searched" not in output


def test_explain_prints_why_each_candidate_was_selected_or_dropped(cli: Cli) -> None:
    id = cli.add(BUDGET, *ANN)
    cli.add("The dentist is on Elm Street", *ANN)
    output = cli("recall", QUESTION, *ANN, "--explain", "--min-score", "0.5").stdout
    header, first, why, printed_id, second = output[output.index("RANK") :].splitlines()[:5]
    assert header.split() == ["RANK", "SCORE", "RELEVANCE", "MEANING", "WORDS", "RECENCY", "DECISION", "MEMORY"]
    assert re.fullmatch(rf" +1( +\d\.\d\d){{5}} +selected +{BUDGET}", first)
    assert "shares budget, hawaii, trip" in why
    assert printed_id.strip() == id
    assert re.fullmatch(r" +2( +\d\.\d\d){5} +relevance 0\.\d\d is below 0\.5 +The dentist is on Elm Street", second)


def test_explain_prints_the_strongest_features_of_the_first_hit(cli: Cli) -> None:
    cli.add(BUDGET, *ANN)
    for command in ("search", "recall"):
        table = cli(command, QUESTION, *ANN, "--explain").stdout.partition("FEATURE")[2]
        assert re.search(r"^semantic +\d\.\d\d +-?\d\.\d{3} +[+-]\d\.\d\d$", table, re.MULTILINE)
        report = cli.json(command, QUESTION, *ANN, "--explain")["candidates"][0]
        [sums] = re.findall(r"^all features .*", table, re.MULTILINE)
        own, question, base, total, odds = map(float, re.findall(r"[+-]\d+\.\d\d", sums))
        assert own + question + base == pytest.approx(total, abs=0.021)
        assert ", which among 1 memory counts as " in sums
        assert 1 / (1 + 2.718281828**-odds) == pytest.approx(report["relevance"], abs=0.01)


def test_features_are_only_printed_for_the_learned_fusion(cli: Cli) -> None:
    cli.add(BUDGET, *ANN)
    (cli.home / "config.toml").write_text('fusion = "rrf"\n')
    output = cli("search", QUESTION, *ANN, "--explain").stdout
    assert ("RANK" in output, "FEATURE" in output) == (True, False)


def test_a_keyed_fact_that_the_search_dropped_is_marked_as_included(cli: Cli) -> None:
    cli.add(BUDGET, *ANN)
    cli("add", "--key", "name", "--value", "Ann", "--category", "identity", *ANN)
    output = cli("recall", QUESTION, *ANN, "--explain", "--min-score", "0.5").stdout
    assert re.search(r"always included; relevance 0\.\d\d is below 0\.5 +name: Ann", output)


def test_only_the_best_dropped_candidates_are_listed(cli: Cli) -> None:
    lines = [json.dumps({"memory": f"Trip number {n} went to Hawaii", "user_id": "ann"}) for n in range(30)]
    cli("import", input="\n".join(lines))
    output = cli("search", "trip to Hawaii", *ANN, "--limit", "2", "--explain").stdout
    table = output[output.index("RANK") : output.index("Strongest features")]
    assert len(re.findall(r"^ +\d+ +\d", table, re.MULTILINE)) == 12
    assert "18 dropped candidates not shown" in table


def test_a_memory_that_does_not_fit_the_block_is_marked(cli: Cli) -> None:
    cli.add(BUDGET, *ANN)
    cli.add("The Hawaii trip budget " + "was talked about at great length " * 400, *ANN)
    (cli.home / "config.toml").write_text("context_tokens = 256\n")
    assert re.search(r"^ +(cut|left out): ", cli("recall", QUESTION, *ANN).stdout, re.MULTILINE)


def test_graph_shows_what_is_related_to_a_name(cli: Cli) -> None:
    id = cli.add("Met Maria in New York", *ANN)
    assert [line.split() for line in cli("graph", "new", "york", *ANN, "--depth", "2").stdout.splitlines()] == [
        ["KIND", "ID", "LABEL"],
        ["name", "New", "York"],
        ["memory", id, "Met", "Maria", "in", "New", "York"],
        ["mentions:", "Maria"],
        ["mentions:", "New", "York"],
        ["name", "Maria"],
    ]
    assert [node["id"] for node in cli.json("graph", id, *ANN)["nodes"]] == [
        f"memory:{id}",
        "name:maria",
        "name:new york",
    ]
    assert "No memory of user bob mentions 'Maria'" in cli("graph", "Maria", "--user", "bob").stdout
    assert "Cut at --limit 1;" in cli("graph", id, *ANN, "--limit", "1").stderr
    assert "3 is not in the range" in cli.error("graph", "Maria", *ANN, "--depth", "3", code=2)
