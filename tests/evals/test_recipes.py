"""Recipes: every step does what it says, every mistake is told with its step, and the document's example runs."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from recollect.config.settings import Settings
from recollect.errors import InvalidInput
from recollect.model.result import SearchResult
from recollect.recipes.parse import AskStep, read_recipe
from recollect.recipes.run import RecipeReport, recall, run_recipes, write_junit
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


# Steps


def test_the_example_of_the_project_holds() -> None:
    recipe = read_recipe(ROOT / "examples" / "06_recipe.yaml")
    [report] = asyncio.run(run_recipes([recipe], Settings()))
    assert len(report.checks) == 8
    assert not report.failed
    assert len(recipe.file.read_text().splitlines()) <= 40


def test_an_expectation_that_does_not_hold_fails(tmp_path: Path) -> None:
    text = "- store: Likes green tea\n- ask: tea?\n  must: [GREEN  tea, coffee]\n  must_not: [coffee, green]\n"
    assert passed_checks(tmp_path, text) == [True, False, True, False]


def test_words_are_found_whatever_their_case_and_spacing(tmp_path: Path) -> None:
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


def test_a_named_memory_is_corrected_asked_for_and_forgotten(tmp_path: Path) -> None:
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


def test_what_has_a_key_and_everything_can_be_forgotten(tmp_path: Path) -> None:
    text = (
        "- store: {key: city, value: Oslo}\n- store: Likes tea\n- forget: {key: city}\n"
        "- ask: Oslo? tea?\n  must: tea\n  must_not: Oslo\n"
        "- forget: {all: true}\n- ask: Oslo? tea?\n  must_not: [tea, Oslo]\n"
    )
    assert passed_checks(tmp_path, text) == [True] * 4
    with pytest.raises(InvalidInput, match="step 1: no memory has the key 'city'"):
        run(tmp_path, "- forget: {key: city}\n" + ASK)


def test_places_are_kept_apart_and_have_defaults(tmp_path: Path) -> None:
    text = (
        "user: alex\nproject: trip\nsteps:\n- store: Likes tea\n"
        "- ask: tea?\n  must: tea\n- ask: tea?\n  project: work\n  must_not: tea\n- ask: tea?\n  user: bob\n"
        "  must_not: tea\n"
    )
    assert passed_checks(tmp_path, text) == [True] * 3


def test_the_limit_counts_how_many_are_looked_at(tmp_path: Path) -> None:
    stores = "".join(f"- store: Fact number {number} about tea\n" for number in range(5))
    text = "limit: 2\nsteps:\n" + stores + "- ask: tea\n  must: tea\n- ask: tea\n  must: tea\n  limit: 4\n"
    assert [len(check.recalled) for check in run(tmp_path, text).checks] == [2, 4]


def test_texts_stay_as_they_are_written(tmp_path: Path) -> None:
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


def test_what_the_memory_refuses_is_told_with_its_step(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"recipe.yaml, step 2: unknown category 'nonsense'"):
        run(tmp_path, ASK + "- store: {text: x, category: nonsense}\n")


def test_a_question_as_of_a_time_is_asked_as_of_then(tmp_path: Path) -> None:
    class Past:
        async def search(self, query: str, *, as_of: str | None = None, **more: object) -> SearchResult:
            requests.append(as_of)
            return SearchResult(())

    requests: list[str | None] = []
    recipe = read_recipe(write_recipe(tmp_path, "- ask: x\n  must: y\n  as_of: 2026-03-15\n- ask: x\n  must: y\n"))
    for step in recipe.steps:
        assert isinstance(step.action, AskStep)
        asyncio.run(recall(Past(), step, step.action))  # type: ignore[arg-type]
    assert requests == ["2026-03-15", None]


# Mistakes


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has no steps; it should be a YAML list"),
        ("just text", "has no steps"),
        ("steps: []", "has no steps"),
        ("stesp: []", "'stesp' is not known, did you mean 'steps'?"),
        ("- store: x", "asks nothing"),
        ("- {}", "step 1: a step has exactly one of store, remember, correct, forget, ask; this one has none"),
        ("- 5", "step 1: a step has exactly one of"),
        ("- {store: x, ask: y}", "step 1: .* this one has store and ask"),
        (ASK + "- stroe: x", "step 2: a step has exactly one of"),
        (
            "- ask: x\n  musst: y",
            r"step 1 \(ask\): 'musst' is not known, did you mean 'must'\?; allowed are ask, must",
        ),
        ("- ask: x", "nothing is expected; add must or must_not"),
        ("- ask: x\n  must: 5", "must takes words .* not a number; put it in quotes"),
        ("- ask: x\n  must: ''", "not an empty text"),
        ("- ask: x\n  must:", "not nothing"),
        ("- ask: x\n  must: {id: y}", "no step before it names a memory 'y'; name one with as: NAME"),
        ("- store: x\n  as: a\n- ask: x\n  must: {id: y}", "'y'; named are a"),
        ("- store: x\n  as: a\n- store: y\n  as: a\n" + ASK, "step 2 .*: step 1 is called 'a' already"),
        ("- ask: 5\n  must: x", "ask is text, not a number; put it in quotes"),
        ("- ask:\n  must: x", "ask is text and required, not nothing"),
        ("- ask: x\n  must: y\n  limit: 0", "limit is a whole number from 1 to 1000"),
        ("- ask: x\n  must: y\n  limit: ten", "limit is a whole number"),
        ("- ask: x\n  must: y\n  as_of: yesterday", "as_of is not a time"),
        ("- store: {text: 10,000 dollars}\n" + ASK, "a text with a comma in it needs quotes; allowed are text"),
        ("- store: {key: a}\n" + ASK, "give a text, or a key and its value"),
        ("- store: {importance: 1}\n" + ASK, "give a text, or a key and its value"),
        ("- store: {key: a, value: 5}\n" + ASK, "value is text, not a number; put it in quotes"),
        ("- store: [x]\n" + ASK, "store takes a text, or .* not a list"),
        ("- store: ' '\n" + ASK, "store is empty"),
        ("- remember: []\n" + ASK, "there are no messages"),
        ("- remember: [{users: x}]\n" + ASK, "a message is a text, {user: TEXT} or {assistant: TEXT}"),
        ("- remember: [{role: system, content: x}]\n" + ASK, "role is user or assistant, not 'system'"),
        ("- remember: [{user: x, at: noon}]\n" + ASK, "at is not a time"),
        ("- correct: x\n" + ASK, "correct takes memory and text, or key and value"),
        ("- forget: {all: false}\n" + ASK, "forget takes the name of a memory"),
        ("- forget: x\n" + ASK, "no step before it names a memory 'x'"),
        ("- ask: x\n  must: y\n  user: ''", "user is text"),
        ('- ask: x\n  must: y\n  user: "a\\tb"', "step 1 .*control character"),
        ("user: 5\nsteps: [{ask: x, must: y}]", "user is text, not a number"),
        ("- store: x\n  store: y\n" + ASK, "line 2, column 3: the name 'store' is used twice"),
        ("- store: &a x\n- store: *a\n" + ASK, r"line 2, column 10: aliases \(\*name\) are not allowed"),
        ("- store: !!python/object/apply:os.system [ls]\n" + ASK, "could not determine a constructor"),
        ("- {[a]: b}\n" + ASK, "a name must be plain text"),
        ("- ask: 'x", "line 1, column 10: while scanning a quoted scalar, found unexpected end"),
        ("- ask: x\n  must: y\n--- \n- ask: z", "expected a single document"),
        ("- ask: \x07", "is not YAML"),
        ("[" * 5000, "nested too deeply"),
        ("- ask: " + "1" * 5000, "is not YAML"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_what_is_allowed(text: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=complaint) as error:
        read_recipe(write_recipe(tmp_path, text))
    assert str(error.value).startswith(str(tmp_path / "recipe.yaml"))


def test_a_bomb_of_aliases_does_not_go_off(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"] + [
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]" for n in range(1, 30)
    ]
    began = time.process_time()
    with pytest.raises(InvalidInput, match="aliases"):
        read_recipe(write_recipe(tmp_path, "\n".join(lines)))
    assert time.process_time() - began < 5


def test_a_file_of_five_megabytes_is_no_recipe(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="larger than 4 MB"):
        read_recipe(write_recipe(tmp_path, "#" * 5_000_000))


# The outcome for build servers


def test_the_xml_tells_every_expectation_and_what_was_recalled_instead(tmp_path: Path) -> None:
    text = '- store: "Likes <tea> & \\x1b[2J"\n- ask: "tea \\x07?"\n  must: [tea, coffee]\n'
    write_junit(tmp_path / "out.xml", [run(tmp_path, text)])
    root = ElementTree.parse(tmp_path / "out.xml").getroot()
    assert (root.get("tests"), root.get("failures")) == ("2", "1")
    cases = root.findall("./testsuite/testcase")
    assert [case.find("failure") is not None for case in cases] == [False, True]
    failure = cases[1].find("failure")
    assert failure is not None
    assert failure.get("message") == '"coffee" is not the one that was recalled'
    assert "Likes <tea> & [2J" in (failure.text or "")


# The page


@pytest.mark.parametrize("number", [0, 1])
def test_the_page_shows_what_its_recipes_print(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    """The output without scores, and without what came second and third by a hair."""
    output = re.sub(r"^( +[23]\.) .*$", r"\1", output, flags=re.MULTILINE)
    return re.sub(r"\d\.\d\d", "N", output)


def test_the_page_names_every_verb_and_field_of_a_step() -> None:
    for name in "store remember correct forget ask must must_not limit as_of user project session steps as".split():
        assert re.search(rf"`{name}\b", PAGE), name
