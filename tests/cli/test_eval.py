"""recollect eval: tables, JSON, files, exit codes, errors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import click
import pytest

import tests.support.evaluation_samples as samples
from recollect.cli.commands.eval import eval_
from recollect.cli.context import Command
from tests.support.cli_runner import Cli, run_with_progress

RECIPE = "name: Tea\nsteps:\n- store: Likes green tea\n- ask: Which tea?\n  must: green\n"


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A command line in a folder with every file that the examples name."""
    monkeypatch.chdir(tmp_path)
    samples.write(tmp_path / "locomo10.json", samples.locomo())
    samples.write(tmp_path / "longmemeval_s.json", samples.longmemeval())
    samples.write(tmp_path / "beam.json.xz", samples.beam())
    samples.write(tmp_path / "realtalk.json", samples.realtalk())
    (tmp_path / "messages.jsonl").write_text(samples.MESSAGES)
    (tmp_path / "pairs.csv").write_text(samples.PAIRS)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return Cli(tmp_path)


@pytest.mark.parametrize("name", eval_.commands)
def test_the_examples_of_the_help_run(cli: Cli, name: str) -> None:
    if name == "compare":
        for file in ("before.json", "after.json"):
            cli("eval", "locomo", "locomo10.json", "--json", file)
    command = eval_.commands[name]
    assert isinstance(command, Command)
    for example in command.examples:
        assert cli.typed(example, id="")


def test_the_table_has_a_row_for_each_category_and_totals(cli: Cli) -> None:
    lines = cli("eval", "locomo", "locomo10.json").stdout.splitlines()
    assert lines[0] == "LoCoMo: 10 questions on 12 turns of 2 conversations"
    assert lines[1] == "embedder bundled, fusion learned, reranker none"
    [titles] = [line for line in lines if line.startswith("CATEGORY")]
    assert titles.split() == "CATEGORY N R@1 R@5 R@10 R@20 HIT@10 ALL@10 MRR NDCG@10".split()
    rows = {line.split()[0]: line for line in lines[lines.index(titles) + 1 :] if line}
    assert {"multi-hop", "temporal", "single-hop", "adversarial", "all"} <= set(rows)
    assert all(len(rows[name]) == len(titles) for name in ("multi-hop", "adversarial", "all"))
    assert {"search", "index", "tokens", "abstention"} <= set(rows)
    assert "probes that nothing answers" in rows["abstention"]


def test_json_is_written_to_a_file_or_printed(cli: Cli) -> None:
    output = cli("eval", "locomo", "locomo10.json", "--json", "out.json", "--limit", "1", "--k", "5").stdout
    assert "CATEGORY" in output
    assert "NDCG@5" in output
    printed = json.loads(Path("out.json").read_text())
    answered = cli.json("eval", "locomo", "locomo10.json", "--limit", "1", "--k", "5")
    assert json.loads(cli("--json", "eval", "locomo", "locomo10.json").stdout)["conversations"] == 2
    assert list(printed) == list(answered)
    assert printed["questions"][0].keys() == answered["questions"][0].keys()
    assert printed["headline"] == answered["headline"]
    assert (printed["conversations"], printed["k"]) == (1, 5)


def test_settings_of_the_environment_apply(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("eval", "locomo", "locomo10.json", "--json", "a.json")
    monkeypatch.setenv("RECOLLECT_SEARCH_MIN_SCORE", "1")
    cli("eval", "locomo", "locomo10.json", "--json", "b.json")
    b = json.loads(Path("b.json").read_text())
    assert b["settings"]["search_min_score"] == "1.0"
    assert b["abstention"]["mean_returned"] == 0
    report = cli.json("eval", "compare", "a.json", "b.json")
    [row] = [each for each in report["marks"] if each["mark"] == "R@10"]
    assert row["high"] < 0
    output = cli("eval", "compare", "a.json", "b.json").stdout
    assert "search_min_score 1.0" in output
    assert "worse" in output


def test_the_ledger_of_the_user_is_not_touched(cli: Cli) -> None:
    before = sorted(cli.home.iterdir())
    cli("eval", "locomo", "locomo10.json")
    cli("eval", "recipe", "recipe.yaml")
    assert sorted(cli.home.iterdir()) == before


def test_another_file_is_not_overwritten(cli: Cli) -> None:
    Path("mine.json").write_text("precious")
    assert "exists and is not a result" in cli.error("eval", "locomo", "locomo10.json", "--json", "mine.json", code=2)
    assert Path("mine.json").read_text() == "precious"
    assert "no folder" in cli.error("eval", "locomo", "locomo10.json", "--json", "nowhere/out.json", code=2)
    assert "PATH" in cli.error("eval", "locomo", "--json", "locomo10.json", code=2)


@pytest.mark.parametrize("name", ["locomo", "longmemeval", "beam", "realtalk", "prefilter"])
def test_an_invalid_file_is_rejected_with_the_expected_format(cli: Cli, name: str) -> None:
    assert "No such file or directory; it should be" in cli.error("eval", name, "nope.json", code=2)
    assert "it should be" in cli.error("eval", name, "recipe.yaml", code=2)
    assert "cannot read" in cli.error("eval", name, "/proc/self/mem", code=2)


def test_prefilter_shows_the_shares_and_the_mistakes(cli: Cli) -> None:
    output = cli("eval", "prefilter", "messages.jsonl").stdout
    assert "66.7 % searched, 2 of 3" in output
    assert "100.0 % skipped, 1 of 1" in output
    assert "hello there" not in output
    output = cli("eval", "prefilter", "messages.jsonl", "--show", "5").stdout
    assert "1 message skipped, though memory is needed:" in output
    assert "hello there" in output
    report = cli.json("eval", "prefilter", "messages.jsonl")
    assert (report["memory"]["right"], report["mistakes"][0]["did"]) == (2, "skip")


def test_a_failing_recipe_prints_the_recalled_memories(cli: Cli) -> None:
    Path("wrong.yaml").write_text(RECIPE.replace("must: green", "must: [green, black]\n  must_not: likes"))
    result = cli("eval", "recipe", "recipe.yaml", "wrong.yaml", "--junit", "out.xml", code=1)
    assert 'ok    step 2: "Which tea?" must recall "green"' in result.stdout
    assert 'fail  step 2: "Which tea?" must recall "black"' in result.stdout
    assert '"black" is not the one that was recalled' in result.stdout
    assert result.stdout.count("Likes green tea") == 1
    assert result.stdout.endswith("2 of 4 expectations do not hold.\n")
    assert ElementTree.parse("out.xml").getroot().get("failures") == "2"
    output = json.loads(cli("eval", "recipe", "wrong.yaml", "--json", code=1).stdout)
    assert output["ok"] is False
    assert [check["held"] for check in output["recipes"][0]["checks"]] == [True, False, False]


def test_an_invalid_recipe_is_rejected_before_any_is_run(cli: Cli) -> None:
    Path("broken.yaml").write_text("- ask: x\n  musst: y\n")
    report = cli.error("eval", "recipe", "recipe.yaml", "broken.yaml", code=2)
    assert "broken.yaml, step 1: musst: this name is not known" in report
    assert "cannot read" in cli.error("eval", "recipe", "nope.yaml", code=2)


def test_control_characters_in_a_recipe_are_escaped(cli: Cli) -> None:
    Path("evil.yaml").write_text('- store: "tea \\x1b[2J"\n- ask: "tea? \\x1b[2J"\n  must: "\\x1b[2J coffee"\n')
    assert "\x1b" not in cli("eval", "recipe", "evil.yaml", code=1).output


def test_progress_is_shown_on_a_terminal(cli: Cli) -> None:
    _, shown = run_with_progress(cli.home, "eval", "locomo", "locomo10.json")
    assert re.search(rb"Evaluating \S+ 74/74 100 %", shown)


def test_equal_measurements_compare_as_the_same(cli: Cli) -> None:
    cli("eval", "locomo", "locomo10.json", "--json", "a.json")
    Path("b.json").write_bytes(Path("a.json").read_bytes())
    output = cli("eval", "compare", "a.json", "b.json").stdout
    assert "the same" in output
    assert "unclear" not in output


@pytest.mark.parametrize("group", ["eval", "config"])
def test_a_group_without_a_command_shows_its_help(cli: Cli, group: str) -> None:
    report = cli.error(group, code=2)
    assert report.startswith(f"Usage: recollect {group} ")
    assert "\nCommands:\n" in report
    assert "Error" not in report
    report = json.loads(cli.error("--json", group, code=2))["error"]["message"]
    assert report.startswith(f"recollect {group} needs a command: ")


def test_commands_are_listed_with_recipes_first(cli: Cli) -> None:
    assert eval_.list_commands(click.Context(eval_))[0] == "recipe"
    output = cli("eval", "--help").stdout
    assert "..." not in output.partition("Commands:")[2]
