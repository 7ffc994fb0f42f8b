"""Running recipes: each on an empty memory of its own, step by step."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, assert_never
from xml.etree import ElementTree

from evals.adapter import borrowed_embedder, temporary_memory
from recollect.errors import InvalidInput, NotFound
from recollect.recipes.files import new_file
from recollect.recipes.parse import (
    AskStep,
    CorrectStep,
    Expected,
    ForgetStep,
    Recipe,
    RecipeStep,
    RememberStep,
    StoreStep,
)

if TYPE_CHECKING:
    from recollect.client import AsyncMemory
    from recollect.config.settings import Settings
    from recollect.model.result import SearchResult


@dataclass(frozen=True, slots=True)
class Recalled:
    """A memory that came back, and how well it fitted."""

    id: str
    text: str
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeCheck:
    """How one expectation went; `at` is the place, from 1, of what bears it out or breaks it, 0 for none.

    `notes` tell what recall had to do without.
    """

    step: int
    question: str
    expected: Expected
    at: int
    recalled: tuple[Recalled, ...]
    notes: tuple[str, ...]
    taken_s: float

    @property
    def passed(self) -> bool:
        return bool(self.at) is self.expected.must

    def __str__(self) -> str:
        verb = "must recall" if self.expected.must else "must not recall"
        return f'"{self.question}" {verb} {self.expected}'


@dataclass(frozen=True, slots=True)
class RecipeReport:
    """How every expectation of a recipe went."""

    recipe: Recipe
    checks: tuple[RecipeCheck, ...]

    @property
    def failed(self) -> int:
        return sum(not check.passed for check in self.checks)


async def run_recipes(
    recipes: Sequence[Recipe], settings: Settings, *, on_report: Callable[[RecipeReport], None] = lambda report: None
) -> list[RecipeReport]:
    """Run one after the other; `tell` hears of each as soon as it is done."""
    reports = []
    async with borrowed_embedder(settings) as embedder:
        for recipe in recipes:
            async with temporary_memory(settings, embedder) as memory:
                report = await _Kitchen(memory, recipe).run()
            reports.append(report)
            on_report(report)
    return reports


async def recall(memory: AsyncMemory, step: RecipeStep, ask: AskStep) -> SearchResult:
    """What comes back for a question: the one place that says how recipes ask."""
    more: dict[str, Any] = {} if ask.as_of is None else {"as_of": ask.as_of}
    if more and "as_of" not in signature(memory.search).parameters:
        raise InvalidInput("this version cannot ask as of a time in the past; leave as_of out")
    return await memory.search(ask.question, **step.place.ids, limit=ask.limit, **more)


class _Kitchen:
    """One recipe at work: the memory it fills, and the ids behind the names it gives."""

    def __init__(self, memory: AsyncMemory, recipe: Recipe) -> None:
        self._memory = memory
        self._recipe = recipe
        self._ids: dict[str, str] = {}
        self._checks: list[RecipeCheck] = []

    async def run(self) -> RecipeReport:
        """Every step in order; one that the memory refuses is an InvalidInput with its number."""
        for step in self._recipe.steps:
            try:
                await self._step(step)
            except (InvalidInput, NotFound) as error:
                raise InvalidInput(f"{self._recipe.file}, step {step.number}: {error}") from error
        return RecipeReport(self._recipe, tuple(self._checks))

    async def _step(self, step: RecipeStep) -> None:
        match step.action:
            case StoreStep(text=text, fields=fields, correction=correction):
                more: dict[str, Any] = {**step.place.ids, **fields}
                outcome = await self._memory.add(text, correction=correction, **more)
                self._name(step, [outcome.record.id])
            case RememberStep(messages=messages):
                turns = await self._memory.remember(list(messages), **step.place.ids, wait=True)
                self._name(step, [turn.id for turn in turns])
            case CorrectStep(memory=name, text=text):
                await self._memory.update(self._ids[name], text, user_id=step.place.user)
            case ForgetStep():
                await self._forget(step, step.action)
            case AskStep():
                await self._ask(step, step.action)
            case _:
                assert_never(step.action)

    def _name(self, step: RecipeStep, ids: Sequence[str]) -> None:
        if step.name and len(ids) == 1:
            self._ids[step.name] = ids[0]
        elif step.name:
            self._ids |= {f"{step.name}.{number}": id for number, id in enumerate(ids, 1)}

    async def _forget(self, step: RecipeStep, forget: ForgetStep) -> None:
        if forget.memory is not None:
            await self._memory.delete(self._ids[forget.memory], user_id=step.place.user)
        elif forget.key is None:
            await self._memory.delete_all(**step.place.ids)
        else:
            records = (await self._memory.get_all(**step.place.ids, filters={"key": forget.key}, limit=1000)).records
            if not records:
                raise NotFound(f"nothing has the key {forget.key!r}, so there is nothing to forget")
            for record in records:
                await self._memory.delete(record.id, user_id=step.place.user)

    async def _ask(self, step: RecipeStep, ask: AskStep) -> None:
        began = perf_counter()
        result = await recall(self._memory, step, ask)
        taken = perf_counter() - began
        recalled = tuple(Recalled(hit.id, hit.memory, hit.score) for hit in result)
        self._checks += [
            RecipeCheck(
                step=step.number,
                question=ask.question,
                expected=expected,
                at=self._at(expected, recalled),
                recalled=recalled,
                notes=result.notes,
                taken_s=taken,
            )
            for expected in ask.expected
        ]

    def _at(self, expected: Expected, recalled: Sequence[Recalled]) -> int:
        """The place of the first memory that is meant, from 1; 0 where there is none."""
        memory_id = self._ids.get(expected.memory)
        words = expected.words.casefold()
        for place, each in enumerate(recalled, 1):
            if each.id == memory_id or (words and words in " ".join(each.text.casefold().split())):
                return place
        return 0


# XML 1.0 has no way to write these.
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def write_junit(path: Path, reports: Sequence[RecipeReport]) -> None:
    """Write one suite a recipe and one case an expectation."""
    root = ElementTree.Element("testsuites", {"name": "recollect recipes", **_counts(reports)})
    for report in reports:
        name = f"{report.recipe.name} ({report.recipe.file})"
        suite = ElementTree.SubElement(root, "testsuite", {"name": _clean(name), **_counts([report])})
        for check in report.checks:
            _add_case(suite, report, check)
    ElementTree.indent(root)
    with new_file(path) as out:
        out.write('<?xml version="1.0" encoding="utf-8"?>\n')
        out.write(ElementTree.tostring(root, encoding="unicode") + "\n")


def _add_case(suite: ElementTree.Element, report: RecipeReport, check: RecipeCheck) -> None:
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=_clean(report.recipe.name),
        name=_clean(f"step {check.step}: {check}"),
        file=_clean(str(report.recipe.file)),
        time=f"{check.taken_s:.6f}",
    )
    if not check.passed:
        failure = ElementTree.SubElement(case, "failure", message=_clean(complaint(check)), type="Recall")
        lines = [f"{place}. {each.score:.2f}  {each.text}" for place, each in enumerate(check.recalled, 1)]
        failure.text = _clean("\n".join(lines))


def complaint(check: RecipeCheck) -> str:
    """What is wrong, in a sentence."""
    if not check.recalled:
        return "nothing was recalled"
    if len(check.recalled) == 1:
        return f"{check.expected} is {'' if check.at else 'not '}the one that was recalled"
    place = f"number {check.at} of" if check.at else "not among"
    return f"{check.expected} is {place} the {len(check.recalled)} recalled"


def _counts(reports: Sequence[RecipeReport]) -> dict[str, str]:
    checks = [check for report in reports for check in report.checks]
    # The time of a question counts once, however much is expected of it.
    times = {(id(report), check.step): check.taken_s for report in reports for check in report.checks}
    return {
        "tests": str(len(checks)),
        "failures": str(sum(not check.passed for check in checks)),
        "errors": "0",
        "time": f"{sum(times.values()):.6f}",
    }


def _clean(text: str) -> str:
    return _UNWRITABLE.sub("\ufffd", text)
