"""Recipes: each verb, errors that name the step, JUnit output, and the examples of the documentation."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from recollect.cli.recipes import RecipeReport, junit_xml, read_recipe, run_recipes
from recollect.config.settings import Settings
from recollect.errors import InvalidInput
from tests.support.cli_runner import Cli
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
ASK = "- ask: tea?\n  must: tea\n"


def write_recipe(folder: Path, text: str, name: str = "recipe.yaml") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def run(folder: Path, text: str) -> RecipeReport:
    [report] = asyncio.run(run_recipes([read_recipe(write_recipe(folder, text))], Settings()))
    return report


def passed_checks(folder: Path, text: str) -> list[bool]:
    return [check.passed for check in run(folder, text).checks]


def test_the_example_in_the_repository_passes() -> None:
    recipe = read_recipe(ROOT / "examples" / "06_recipe.yaml")
    [report] = asyncio.run(run_recipes([recipe], Settings()))
    assert len(report.checks) == 8
    assert not report.failed
    assert len(recipe.file.read_text().splitlines()) <= 40


def test_an_expectation_that_does_not_hold_fails(tmp_path: Path) -> None:
    text = "- store: Likes green tea\n- ask: tea?\n  must: [GREEN  tea, coffee]\n  must_not: [coffee, green]\n"
    assert passed_checks(tmp_path, text) == [True, False, True, False]


def test_words_match_regardless_of_case_and_spacing(tmp_path: Path) -> None:
    assert passed_checks(
        tmp_path, "- store: |\n    Likes   Green\n    TEA\n- ask: tea?\n  must: likes green tea\n"
    ) == [True]


def test_a_key_is_corrected_whatever_its_confidence(tmp_path: Path) -> None:
    text = (
        "- store: {key: diet, value: vegan, category: preference}\n"
        "- correct: {key: diet, value: fish, category: preference, confidence: 0.2}\n"
        "- ask: diet?\n  must: fish\n  must_not: vegan\n"
    )
    assert passed_checks(tmp_path, text) == [True, True]
    assert passed_checks(tmp_path, text.replace("correct", "store")) == [False, False]


def test_a_named_memory_can_be_corrected_expected_and_forgotten(tmp_path: Path) -> None:
    text = (
        "- store: Likes tea\n  as: drink\n"
        "- correct: {memory: drink, text: Likes coffee}\n"
        "- ask: Likes what?\n  must: [{id: drink}, coffee]\n  must_not: tea\n"
        "- forget: drink\n"
        "- ask: Likes what?\n  must_not: {id: drink}\n"
    )
    assert passed_checks(tmp_path, text) == [True] * 4


def test_messages_are_remembered_and_named_by_their_number(tmp_path: Path) -> None:
    text = (
        "- remember:\n    - user: I moved to Lisbon. What is there to see?\n      name: Alex\n      at: 2026-03-15\n"
        "    - {role: assistant, content: Congratulations}\n  as: chat\n  session: monday\n"
        "- remember: Why is my cat so grey?\n  as: cat\n"
        "- ask: Lisbon?\n  must: {id: chat.1}\n"
        "- forget: {memory: chat.1}\n"
        "- ask: Is the cat grey? Congratulations?\n  must_not: {id: chat.1}\n  must: [{id: cat}, {id: chat.2}]\n"
    )
    assert passed_checks(tmp_path, text) == [True] * 4


def test_a_key_and_everything_can_be_forgotten(tmp_path: Path) -> None:
    text = (
        "- store: {key: city, value: Oslo}\n- store: Likes tea\n- forget: {key: city}\n"
        "- ask: Oslo? tea?\n  must: tea\n  must_not: Oslo\n"
        "- forget: {all: true}\n- ask: Oslo? tea?\n  must_not: [tea, Oslo]\n"
    )
    assert passed_checks(tmp_path, text) == [True] * 4


def test_scopes_are_separate_and_have_defaults(tmp_path: Path) -> None:
    text = (
        "user: alex\nproject: trip\nsteps:\n- store: Likes tea\n"
        "- ask: tea?\n  must: tea\n- ask: tea?\n  project: work\n  must_not: tea\n- ask: tea?\n  user: bob\n"
        "  must_not: tea\n"
    )
    assert passed_checks(tmp_path, text) == [True] * 3


def test_the_limit_is_that_of_the_step_or_of_the_file(tmp_path: Path) -> None:
    stores = "".join(f"- store: Fact number {number} about tea\n" for number in range(5))
    text = "limit: 2\nsteps:\n" + stores + "- ask: tea\n  must: tea\n- ask: tea\n  must: tea\n  limit: 4\n"
    assert [len(check.recalled) for check in run(tmp_path, text).checks] == [2, 4]


def test_values_are_read_as_text(tmp_path: Path) -> None:
    text = (
        "- store: {key: answer, value: no}\n- store: {key: day, value: 2026-03-15}\n"
        "- ask: answer and day\n  must: ['answer: no', 2026-03-15]\n"
    )
    assert passed_checks(tmp_path, text) == [True, True]


def test_recipes_do_not_see_each_other(tmp_path: Path) -> None:
    first = read_recipe(write_recipe(tmp_path, "- store: Likes tea\n" + ASK, "a.yaml"))
    second = read_recipe(write_recipe(tmp_path, ASK, "b.yaml"))
    reports: list[RecipeReport] = []
    asyncio.run(run_recipes([first, second], Settings(), on_report=reports.append))
    assert [report.failed for report in reports] == [0, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "steps: Input should be a valid list"),
        ("steps: []", "steps: List should have at least 1 item"),
        ("- store: x", "asks nothing"),
        ("- {store: x, ask: y}", "step 1: a step has exactly one of .* this one has store and ask"),
        (ASK + "- {}", "step 2: a step has exactly one of .* this one has none"),
        ("- ask: x\n  musst: y", "step 1: musst: this name is not known"),
        ("- ask: x", "nothing is expected; add must or must_not"),
        ("- ask: x\n  must: ''", "must and must_not take words"),
        ("- ask: x\n  must: y\n  limit: 0", "limit: Input should be greater than or equal to 1"),
        ("- store: x\n  limit: 3\n" + ASK, "step 1: limit goes with ask"),
        ("- store: [x]\n" + ASK, "store: it should be a mapping"),
        ("- remember: [{role: system, content: x}]\n" + ASK, "remember: role: Input should be 'user' or 'assistant'"),
        ("- forget: {all: false}\n" + ASK, "forget takes the name of a memory"),
        ("- store: x\n  store: y\n" + ASK, "a name is used twice"),
        ("- ask: 'x", "while scanning a quoted scalar"),
        ("[" * 1500, "is not YAML"),
    ],
)
def test_an_invalid_file_is_rejected_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=message) as error:
        read_recipe(write_recipe(tmp_path, text))
    assert str(error.value).startswith(str(tmp_path / "recipe.yaml"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- store: {text: x, category: nonsense}\n" + ASK, "step 1: unknown category 'nonsense'"),
        ("- forget: {key: city}\n" + ASK, "step 1: no memory has the key 'city'"),
        ("- correct: {text: x}\n" + ASK, "correct takes memory and text, or key and value"),
        ("- store: x\n  as: a\n- ask: x\n  must: {id: y}", "no earlier step names a memory 'y'; named are a"),
        ("- store: x\n  as: a\n- store: y\n  as: a\n" + ASK, "step 2: an earlier step is called 'a'"),
        ("- ask: x\n  must: y\n  as_of: yesterday", "as_of is not a time"),
    ],
)
def test_a_step_that_fails_is_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=rf"recipe\.yaml, .*{message}"):
        run(tmp_path, text)


def test_junit_xml_has_a_case_for_each_expectation_and_the_recalled_memories(tmp_path: Path) -> None:
    text = '- store: "Likes <tea> & \\x1b[2J"\n- ask: "tea \\x07?"\n  must: [tea, coffee]\n'
    root = ElementTree.fromstring(junit_xml([run(tmp_path, text)]))
    assert (root.get("tests"), root.get("failures")) == ("2", "1")
    passed, failed = root.findall("./testsuite/testcase")
    assert passed.find("failure") is None
    failure = failed.find("failure")
    assert failure is not None
    assert failure.get("message") == '"coffee" is not the one that was recalled'
    assert "Likes <tea> & [2J" in (failure.text or "")
    assert '"tea \ufffd?"' in str(failed.get("name"))


@pytest.mark.parametrize("number", [0, 1])
def test_the_page_shows_the_output_of_recipes(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [recipe] = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    write_recipe(tmp_path, recipe)
    fifth = "  - correct: {key: diet, value: vegetarian, category: preference}\n"
    assert fifth in recipe
    write_recipe(tmp_path, recipe.replace(fifth, ""), "failing.yaml")
    command, _, visible = re.findall(r"^```console\n\$ (.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[number].partition(
        "\n"
    )
    printed = Cli(tmp_path)(*command.split()[1:], code=number).stdout
    assert stable(printed) == stable(visible)


def stable(output: str) -> str:
    """Return the output without scores and without the second and third memory, whose order is a close call."""
    output = re.sub(r"^( +[23]\.) .*$", r"\1", output, flags=re.MULTILINE)
    return re.sub(r"\d\.\d\d", "N", output)


def test_the_page_names_every_verb_and_field_of_a_step() -> None:
    for name in "store remember correct forget ask must must_not limit as_of user project session steps as".split():
        assert re.search(rf"`{name}\b", PAGE), name
