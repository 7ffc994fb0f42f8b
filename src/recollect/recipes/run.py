"""Run recipes, each on an empty memory."""

from __future__ import annotations

import re
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, assert_never
from xml.etree import ElementTree

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
    from recollect.models.embedding import Embedder


@dataclass(frozen=True, slots=True)
class Recalled:
    """A recalled memory and its score."""

    id: str
    text: str
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeCheck:
    """The result of an expectation; `at` is the rank, from 1, of the memory it is about, 0 if it is missing."""

    step: int
    question: str
    expected: Expected
    at: int
    recalled: tuple[Recalled, ...]
    notes: tuple[str, ...]
    taken_s: float

    @property
    def passed(self) -> bool:
        """Whether the expectation holds."""
        return bool(self.at) is self.expected.must

    def __str__(self) -> str:
        verb = "must recall" if self.expected.must else "must not recall"
        return f'"{self.question}" {verb} {self.expected}'


@dataclass(frozen=True, slots=True)
class RecipeReport:
    """The results of a recipe."""

    recipe: Recipe
    checks: tuple[RecipeCheck, ...]

    @property
    def failed(self) -> int:
        """The number of failed expectations."""
        return sum(not check.passed for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        checks = [
            {
                "step": check.step,
                "question": check.question,
                "expected": "must" if check.expected.must else "must_not",
                "words": check.expected.words or None,
                "memory": check.expected.memory or None,
                "held": check.passed,
                "at": check.at or None,
                "notes": list(check.notes),
                "recalled": [{"id": r.id, "memory": r.text, "score": round(r.score, 6)} for r in check.recalled],
            }
            for check in self.checks
        ]
        return {"file": str(self.recipe.file), "name": self.recipe.name, "failed": self.failed, "checks": checks}


@asynccontextmanager
async def borrowed_embedder(settings: Settings) -> AsyncIterator[Embedder]:
    """Open the embedder of the settings once for many ledgers, each of which has its own cache."""
    from recollect.wiring import open_embedder

    embedder = await open_embedder(settings.model_copy(update={"embedding_cache_mb": 0}))
    try:
        yield embedder
    finally:
        await embedder.close()


@asynccontextmanager
async def temporary_memory(settings: Settings, embedder: Embedder) -> AsyncIterator[AsyncMemory]:
    """Open an empty memory with these settings in a temporary folder."""
    from recollect.client import AsyncMemory

    with tempfile.TemporaryDirectory(prefix="recollect-eval-") as home:
        # Sessions of old conversations would end at once, at a time that no test controls.
        own = settings.model_copy(update={"home": Path(home), "database": "", "session_idle_s": 0.0})
        async with AsyncMemory(settings=own, embedder=embedder) as memory:
            yield memory


async def run_recipes(
    recipes: Sequence[Recipe], settings: Settings, *, on_report: Callable[[RecipeReport], None] = lambda report: None
) -> list[RecipeReport]:
    """Run the recipes in order; `on_report` is called after each."""
    reports = []
    async with borrowed_embedder(settings) as embedder:
        for recipe in recipes:
            async with temporary_memory(settings, embedder) as memory:
                report = await _RecipeRun(memory, recipe).run()
            reports.append(report)
            on_report(report)
    return reports


async def recall(memory: AsyncMemory, step: RecipeStep, ask: AskStep) -> SearchResult:
    """Search for the question of a step."""
    return await memory.search(ask.question, **step.place.ids, limit=ask.limit, as_of=ask.as_of)


class _RecipeRun:
    """The run of a recipe, with the ids of its named memories."""

    def __init__(self, memory: AsyncMemory, recipe: Recipe) -> None:
        self._memory = memory
        self._recipe = recipe
        self._ids: dict[str, str] = {}
        self._checks: list[RecipeCheck] = []

    async def run(self) -> RecipeReport:
        """Run every step; errors name the step."""
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
                raise NotFound(f"no memory has the key {forget.key!r}, so there is nothing to forget")
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
        """Return the rank of the first memory that matches, from 1; 0 if there is none."""
        memory_id = self._ids.get(expected.memory)
        words = expected.words.casefold()
        for place, each in enumerate(recalled, 1):
            if each.id == memory_id or (words and words in " ".join(each.text.casefold().split())):
                return place
        return 0


# Not allowed in XML 1.0.
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def write_junit(path: Path, reports: Sequence[RecipeReport]) -> None:
    """Write a JUnit file with a suite for each recipe and a case for each expectation."""
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
    """Return why a check failed."""
    if not check.recalled:
        return "nothing was recalled"
    if len(check.recalled) == 1:
        return f"{check.expected} is {'' if check.at else 'not '}the one that was recalled"
    place = f"number {check.at} of" if check.at else "not among"
    return f"{check.expected} is {place} the {len(check.recalled)} recalled"


def _counts(reports: Sequence[RecipeReport]) -> dict[str, str]:
    checks = [check for report in reports for check in report.checks]
    # The time of a question counts once for all its expectations.
    times = {(id(report), check.step): check.taken_s for report in reports for check in report.checks}
    return {
        "tests": str(len(checks)),
        "failures": str(sum(not check.passed for check in checks)),
        "errors": "0",
        "time": f"{sum(times.values()):.6f}",
    }


def _clean(text: str) -> str:
    return _UNWRITABLE.sub("\ufffd", text)
