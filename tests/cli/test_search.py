"""`recollect recall`, and what `--explain` tells of a search."""

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


def test_it_tells_the_outcome_the_block_and_the_hits(cli: Cli) -> None:
    id = cli.add(BUDGET, *ANN)
    lines = cli("recall", QUESTION, *ANN).stdout.splitlines()
    assert lines[0].startswith("used: 1 memor")
    assert lines[3].startswith("<recalled-memories ")
    assert json.loads(lines[4])["text"] == BUDGET
    assert lines[5].startswith("</recalled-memories ")
    assert lines[7].split() == ["SCORE", "ID", "CATEGORY", "MEMORY"]
    assert lines[8].split(maxsplit=3)[1:] == [id, "fact", BUDGET]


def test_the_words_may_be_piped_in(cli: Cli) -> None:
    cli.add(BUDGET, *ANN)
    assert BUDGET in cli("recall", *ANN, input=QUESTION + "\n").stdout


def test_a_greeting_is_ignored_and_says_why(cli: Cli) -> None:
    cli.add(BUDGET, *ANN)
    assert cli("recall", "hello", *ANN).stdout.startswith("ignored: it is a greeting")


def test_nothing_that_fits_is_missing(cli: Cli) -> None:
    assert cli("recall", QUESTION, *ANN).stdout.startswith("missing: ")


def test_no_memories_wanted_is_disabled(cli: Cli) -> None:
    cli.add(BUDGET, *ANN)
    assert cli("recall", QUESTION, *ANN, "--limit", "0").stdout.startswith("disabled: ")


def test_json_holds_the_messages_with_the_block_in_its_place(cli: Cli) -> None:
    cli.add(BUDGET, *ANN)
    report = cli.json("recall", QUESTION, *ANN)
    assert (report["outcome"], report["query"]) == ("used", QUESTION)
    block, question = report["messages"]
    assert block == {"role": "user", "content": report["context"]["text"]}
    assert question == {"role": "user", "content": QUESTION}
    assert report["results"][0]["memory"] == BUDGET
    assert report["candidates"] == []
    assert cli.json("recall", QUESTION, *ANN, "--explain")["candidates"][0]["fate"] == "kept"


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
    ("given", "complaint"),
    [
        ("{", "not JSON"),
        ('{"role": "user"}', "not a JSON list"),
        ('"How much?"', "not a JSON list"),
        ('["How much?"]', "{'role', 'content'}"),
        ("[" * 100_000, "not JSON"),
        (b"\xff\xfe", "not JSON"),
    ],
)
def test_messages_that_are_none_are_refused(cli: Cli, given: Any, complaint: str) -> None:
    assert complaint in cli.error("recall", *ANN, "--messages", "-", input=given, code=2)


def test_a_file_that_is_not_there_is_named(cli: Cli) -> None:
    assert "nowhere.json" in cli.error("recall", *ANN, "--messages", "nowhere.json", code=2)


def test_a_question_beside_messages_is_refused(cli: Cli) -> None:
    assert "not both" in cli.error("recall", QUESTION, *ANN, "--messages", "-", input="[]", code=2)


def test_a_session_and_a_project_see_what_is_theirs(cli: Cli) -> None:
    cli.add(BUDGET, *ANN, "--project", "trip")
    assert BUDGET in cli("recall", QUESTION, *ANN, "--project", "trip").stdout
    assert BUDGET not in cli("recall", QUESTION, *ANN, "--project", "work").stdout


def test_filters_and_a_least_score_count(cli: Cli) -> None:
    cli.add(BUDGET, *ANN, "--tag", "travel")
    assert BUDGET in cli("recall", QUESTION, *ANN, "--tag", "travel", "--min-score", "0.1").stdout
    assert cli("recall", QUESTION, *ANN, "--tag", "work").stdout.startswith("missing")
    assert cli("recall", QUESTION, *ANN, "--min-score", "1").stdout.startswith("missing")


@pytest.mark.parametrize("flag", ["--is-fact", "--requires-tool"])
def test_what_the_caller_knows_decides(cli: Cli, flag: str) -> None:
    cli.add("The speed of light came up at dinner", *ANN)
    request = "speed of light at the dinner table"
    assert cli("recall", request, *ANN).stdout.startswith("used")
    assert cli("recall", request, *ANN, flag).stdout.startswith("ignored: the caller says")


def test_a_preset_gives_its_own_block(cli: Cli) -> None:
    cli.add(BUDGET, *ANN)
    output = cli("recall", QUESTION, *ANN, "--preset", "semantic-router").stdout
    assert f"\n## User's Relevant Context\n\n- {BUDGET}\n\nSCORE" in output


def test_what_held_then_is_what_is_answered_from(cli: Cli) -> None:
    cli.add(BUDGET, *ANN)
    assert cli("recall", QUESTION, *ANN, "--as-of", "7d").stdout.startswith("missing")
    assert "Nothing found" in cli("search", QUESTION, *ANN, "--as-of", "2020-01-01").stdout
    assert BUDGET in cli("search", QUESTION, *ANN, "--as-of", "2999-01-01T00:00:00+01:00").stdout


def test_last_march_is_meant_from_the_moment_that_is_given(cli: Cli) -> None:
    for month in ("2024-03-10", "2026-03-10"):
        cli.add(f"Ran the marathon in {month[:4]}", *ANN, "--occurred", month)
    request = ("Which marathon did I run last March?", *ANN, "--explain")
    for at, year in (("2024-06-01", "2024"), ("2026-06-01T00:00:00+02:00", "2026")):
        report = cli.json("search", *request, "--at", at)
        inside = [each["memory"] for each in report["candidates"] if each["signals"]["in_period"] > 0.9]
        assert inside == [f"Ran the marathon in {year}"]


@pytest.mark.parametrize("option", ["--at", "--as-of"])
@pytest.mark.parametrize("command", ["search", "recall"])
def test_a_time_that_is_none_names_its_option(cli: Cli, command: str, option: str) -> None:
    assert option.removeprefix("--").replace("-", "") in cli.error(
        command, "x", *ANN, option, "soonish", code=2
    ).replace("-", "").replace("_", "")


def test_explain_tells_the_decision_the_query_and_the_times(cli: Cli) -> None:
    cli.add(BUDGET, *ANN)
    output = cli("recall", *ANN, "--messages", "-", "--explain", input=json.dumps(TALK))
    assert "\nsearched: " in output.stdout
    assert re.search(r"^query: How much\? .*Hawaii", output.stdout, re.MULTILINE)
    steps = output.stdout.partition("\nSTEP")[2]
    assert all(f"\n{step} " in steps for step in ("decide", "rewrite", "embed", "gather", "format", "inject"))
    assert re.search(r"^1 hit in \d+\.\d{3} ms$", output.stdout, re.MULTILINE)


def test_notes_are_told_where_they_are_asked_for_or_something_failed(cli: Cli) -> None:
    cli.add(BUDGET, *ANN)
    assert cli("recall", QUESTION, *ANN).stderr == ""
    assert cli("recall", *ANN, "--messages", "-", input=json.dumps(TALK)).stderr == ""
    assert cli("recall", *ANN, "How much?").stderr == ""
    assert "searched: " in cli("recall", QUESTION, *ANN, "-v").stderr
    (cli.home / "config.toml").write_text('rewrite = "llm"\n')
    output = cli("recall", *ANN, "--messages", "-", input=json.dumps(TALK)).stderr
    assert "no LLM is set up" in output
    assert "searched" not in output


def test_explain_tells_why_each_candidate_was_kept_or_fell(cli: Cli) -> None:
    id = cli.add(BUDGET, *ANN)
    cli.add("The dentist is on Elm Street", *ANN)
    output = cli("recall", QUESTION, *ANN, "--explain", "--min-score", "0.5").stdout
    header, first, why, printed_id, second = output[output.index("RANK") :].splitlines()[:5]
    assert header.split() == ["RANK", "SCORE", "RELEVANCE", "MEANING", "WORDS", "RECENCY", "FATE", "MEMORY"]
    assert re.fullmatch(rf" +1( +\d\.\d\d){{5}} +kept +{BUDGET}", first)
    assert "shares budget, hawaii, trip" in why
    assert printed_id.strip() == id
    assert re.fullmatch(r" +2( +\d\.\d\d){5} +relevance 0\.\d\d is below 0\.5 +The dentist is on Elm Street", second)


def test_explain_tells_which_signals_did_most_for_the_first(cli: Cli) -> None:
    cli.add(BUDGET, *ANN)
    for command in ("search", "recall"):
        table = cli(command, QUESTION, *ANN, "--explain").stdout.partition("SIGNAL")[2]
        assert re.search(r"^meaning +\d\.\d\d +-?\d\.\d{3} +[+-]\d\.\d\d$", table, re.MULTILINE)
        report = cli.json(command, QUESTION, *ANN, "--explain")["candidates"][0]
        [sums] = re.findall(r"^all signals .*", table, re.MULTILINE)
        own, question, base, total, odds = map(float, re.findall(r"[+-]\d+\.\d\d", sums))
        assert own + question + base == pytest.approx(total, abs=0.021)
        assert ", which among 1 memory counts as " in sums
        assert 1 / (1 + 2.718281828**-odds) == pytest.approx(report["relevance"], abs=0.01)


def test_the_signals_are_not_told_where_others_decide(cli: Cli) -> None:
    cli.add(BUDGET, *ANN)
    (cli.home / "config.toml").write_text('fusion = "rrf"\n')
    output = cli("search", QUESTION, *ANN, "--explain").stdout
    assert ("RANK" in output, "SIGNAL" in output) == (True, False)


def test_a_keyed_fact_that_the_search_left_out_is_told_to_be_given(cli: Cli) -> None:
    cli.add(BUDGET, *ANN)
    cli("add", "--key", "name", "--value", "Ann", "--category", "identity", *ANN)
    output = cli("recall", QUESTION, *ANN, "--explain", "--min-score", "0.5").stdout
    assert re.search(r"always included; relevance 0\.\d\d is below 0\.5 +name: Ann", output)


def test_explain_of_what_was_not_searched_for_tells_how_long_that_took(cli: Cli) -> None:
    output = cli("recall", "hello", *ANN, "--explain").stdout
    assert output.startswith("ignored")
    assert "decide" in output
    assert "RANK" not in output


def test_many_that_fell_are_counted_not_listed(cli: Cli) -> None:
    lines = [json.dumps({"memory": f"Trip number {n} went to Hawaii", "user_id": "ann"}) for n in range(30)]
    cli("import", input="\n".join(lines))
    output = cli("search", "trip to Hawaii", *ANN, "--limit", "2", "--explain").stdout
    table = output[output.index("RANK") : output.index("Strongest signals")]
    assert len(re.findall(r"^ +\d+ +\d", table, re.MULTILINE)) == 12
    assert "18 dropped candidates not shown" in table


def test_a_search_without_explain_answers_as_before(cli: Cli) -> None:
    cli.add(BUDGET, *ANN)
    assert set(cli.json("search", QUESTION, *ANN)) == {"results"}
    report = cli.json("search", QUESTION, *ANN, "--explain")
    assert set(report) == {"results", "steps_us", "notes", "candidates"}


def test_what_was_left_out_of_the_block_says_so(cli: Cli) -> None:
    cli.add(BUDGET, *ANN)
    cli.add("The Hawaii trip budget " + "was talked about at great length " * 400, *ANN)
    (cli.home / "config.toml").write_text("context_tokens = 256\n")
    assert re.search(r"^ +(cut|left out): ", cli("recall", QUESTION, *ANN).stdout, re.MULTILINE)
