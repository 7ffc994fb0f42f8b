"""Recipes: YAML files with steps that fill an empty memory, and questions that must recall certain memories."""

from __future__ import annotations

import re
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal
from xml.etree import ElementTree

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from recollect import wiring
from recollect.client import AsyncMemory
from recollect.config.settings import Settings
from recollect.errors import InvalidInput, NotFound
from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.result import Hit
from recollect.models.embedding import Embedder

_SHAPE = "a YAML list of steps, or a mapping with name, user, project, session, limit and steps"
_VERBS = ("store", "remember", "correct", "forget", "ask")
# The options that only some verbs take.
_OPTIONS = {"name": ("store", "remember"), **dict.fromkeys(("must", "must_not", "as_of", "limit"), ("ask",))}

_Text = Annotated[str, Field(min_length=1)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StoredFields(_Model):
    """The text and the fields of a memory; the Python API checks the fields that are not listed here."""

    model_config = ConfigDict(extra="allow")

    text: str | None = None
    importance: float | None = None
    confidence: float | None = None


class ForgetTarget(_Model):
    """The memories to forget: a named one, those with a key, or all of the scope."""

    memory: str | None = None
    key: str | None = None
    all: bool = False

    @model_validator(mode="after")
    def _check(self) -> ForgetTarget:
        if sum(map(bool, (self.memory, self.key, self.all))) != 1:
            raise ValueError("forget takes the name of a memory, {key: NAME} or {all: true}")
        return self


class Expected(_Model):
    """A memory that must be recalled, or must not be: one with these words, or one that an earlier step named."""

    words: str = ""
    id: str = ""

    @model_validator(mode="after")
    def _check(self) -> Expected:
        if not (self.words or self.id):
            raise ValueError("must and must_not take words of a memory or {id: NAME}, or a list of them")
        return self

    def __str__(self) -> str:
        return f'"{self.words}"' if self.words else f"the memory {self.id}"


class RecipeMessage(_Model):
    """A chat message: a text, {user: TEXT}, {assistant: TEXT}, or {role: ROLE, content: TEXT}."""

    role: Literal["user", "assistant"] = "user"
    content: _Text
    name: str | None = None
    timestamp: datetime | None = Field(None, alias="at")

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, source: Any) -> Any:
        if isinstance(source, str):
            return {"content": source}
        for role in ("user", "assistant"):
            if isinstance(source, dict) and role in source:
                others = {name: value for name, value in source.items() if name != role}
                return {"role": role, "content": source[role], **others}
        return source


def _wrap(name: str) -> BeforeValidator:
    """Return a validator that makes a text the field `name` of a mapping."""
    return BeforeValidator(lambda value: {name: " ".join(value.split())} if isinstance(value, str) else value)


_AS_LIST = BeforeValidator(lambda value: value if isinstance(value, list) else [value])
_Stored = Annotated[StoredFields, BeforeValidator(lambda value: {"text": value} if isinstance(value, str) else value)]
_Expectations = Annotated[list[Annotated[Expected, _wrap("words")]], _AS_LIST]
_Limit = Annotated[int, Field(ge=1, le=1000)]


class RecipeStep(_Model):
    """One of the verbs with its options; `name` is that of the stored memory for later steps."""

    store: _Stored | None = None
    remember: Annotated[list[RecipeMessage], _AS_LIST, Field(min_length=1)] | None = None
    correct: StoredFields | None = None
    forget: Annotated[ForgetTarget, _wrap("memory")] | None = None
    ask: _Text | None = None
    must: _Expectations = []
    must_not: _Expectations = []
    as_of: str | None = None
    limit: _Limit | None = None
    name: str = Field("", alias="as")
    user: _Text | None = None
    project: str | None = None
    session: str | None = None

    @model_validator(mode="after")
    def _check(self) -> RecipeStep:
        verbs = [verb for verb in _VERBS if verb in self.model_fields_set]
        if len(verbs) != 1:
            present = " and ".join(verbs) or "none"
            raise ValueError(f"a step has exactly one of {', '.join(_VERBS)}; this one has {present}")
        for option, allowed in _OPTIONS.items():
            if option in self.model_fields_set and verbs[0] not in allowed:
                raise ValueError(f"{'as' if option == 'name' else option} goes with {' or '.join(allowed)}")
        if self.ask and not (self.must or self.must_not):
            raise ValueError("nothing is expected; add must or must_not with words of a memory")
        return self


class Recipe(_Model):
    """The steps of a file, in order, and the defaults of their scopes and limits."""

    name: _Text
    steps: Annotated[list[RecipeStep], Field(min_length=1)]
    user: _Text = "someone"
    project: str | None = None
    session: str | None = None
    limit: _Limit = 10
    file: Path


class _Loader(yaml.BaseLoader):
    """Reads every value as text; a name that occurs twice in a mapping is an error."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        mapping = super().construct_mapping(node, deep)
        if len(mapping) < len(node.value):
            raise yaml.MarkedYAMLError(problem="a name is used twice", problem_mark=node.start_mark)
        return mapping


def read_recipe(path: Path) -> Recipe:
    """Return the recipe of a file; errors name the step."""
    try:
        document = yaml.load(path.read_text(encoding="utf-8-sig"), Loader=_Loader)  # noqa: S506 - it makes texts only
        head = document if isinstance(document, dict) else {"steps": document}
        recipe = Recipe.model_validate({"name": path.stem, **head, "file": path})
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror or error}; it should be {_SHAPE}") from None
    except ValidationError as error:
        raise InvalidInput(f"{path}{_describe_error(error)}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not YAML: {error}; it should be {_SHAPE}") from None
    if not any(step.ask for step in recipe.steps):
        raise InvalidInput(f"{path} asks nothing, so nothing can fail; add a step with ask and must or must_not")
    return recipe


_REASONS = {"extra_forbidden": "this name is not known", "model_type": "it should be a mapping"}


def _describe_error(error: ValidationError) -> str:
    """Return the place and the reason of the first error."""
    first = error.errors()[0]
    place = list(first["loc"])
    in_step = place[:1] == ["steps"] and len(place) > 1
    where = f", step {int(place[1]) + 1}" if in_step else ""
    names = [str(part) for part in place[2 if in_step else 0 :] if not isinstance(part, int)]
    reason = _REASONS.get(first["type"], first["msg"])
    return f"{where}: {': '.join((*names, reason.removeprefix('Value error, ')))}"


@frozen_dataclass(kw_only=True)
class RecipeCheck:
    """The result of an expectation; `rank` is that of the memory it is about, from 1, or 0 if it is missing."""

    step: int
    question: str
    must: bool
    expected: Expected
    rank: int
    recalled: tuple[Hit, ...]
    notes: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether the expectation holds."""
        return bool(self.rank) is self.must

    def __str__(self) -> str:
        return f'"{self.question}" {"must recall" if self.must else "must not recall"} {self.expected}'

    def describe_failure(self) -> str:
        """Return why the check failed."""
        if not self.recalled:
            return "nothing was recalled"
        if len(self.recalled) == 1:
            return f"{self.expected} is {'' if self.rank else 'not '}the one that was recalled"
        place = f"number {self.rank} of" if self.rank else "not among"
        return f"{self.expected} is {place} the {len(self.recalled)} recalled"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "step": self.step,
            "question": self.question,
            "expected": "must" if self.must else "must_not",
            "words": self.expected.words or None,
            "memory": self.expected.id or None,
            "held": self.passed,
            "at": self.rank or None,
            "notes": list(self.notes),
            "recalled": [{"id": h.id, "memory": h.memory, "score": round(h.score, 6)} for h in self.recalled],
        }


@frozen_dataclass
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
        checks = [check.to_dict() for check in self.checks]
        return {"file": str(self.recipe.file), "name": self.recipe.name, "failed": self.failed, "checks": checks}


@asynccontextmanager
async def shared_embedder(settings: Settings) -> AsyncIterator[Embedder]:
    """Open the embedder of the settings once for many ledgers, each of which has its own cache."""
    embedder = await wiring.open_embedder(settings.model_copy(update={"embedding_cache_mb": 0}))
    try:
        yield embedder
    finally:
        await embedder.close()


@asynccontextmanager
async def temporary_memory(settings: Settings, embedder: Embedder) -> AsyncIterator[AsyncMemory]:
    """Open an empty memory with these settings in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="recollect-eval-") as home:
        # Sessions of old conversations would end at once, at a time that no test controls.
        own = settings.model_copy(update={"home": Path(home), "database": "", "session_idle_s": 0.0})
        async with AsyncMemory(settings=own, embedder=embedder) as memory:
            yield memory


async def run_recipes(
    recipes: Sequence[Recipe], settings: Settings, *, on_report: Callable[[RecipeReport], None] = lambda report: None
) -> list[RecipeReport]:
    """Run the recipes in order, each on an empty memory; `on_report` is called after each."""
    reports = []
    async with shared_embedder(settings) as embedder:
        for recipe in recipes:
            async with temporary_memory(settings, embedder) as memory:
                report = RecipeReport(recipe, tuple(await _RecipeRun(memory, recipe).run()))
            reports.append(report)
            on_report(report)
    return reports


class _RecipeRun:
    """The run of a recipe, with the ids of its named memories."""

    def __init__(self, memory: AsyncMemory, recipe: Recipe) -> None:
        self._memory = memory
        self._recipe = recipe
        self._ids: dict[str, str] = {}

    async def run(self) -> list[RecipeCheck]:
        checks = []
        for number, step in enumerate(self._recipe.steps, 1):
            try:
                checks += await self._run_step(number, step)
            except (InvalidInput, NotFound) as error:
                raise InvalidInput(f"{self._recipe.file}, step {number}: {error}") from error
        return checks

    async def _run_step(self, number: int, step: RecipeStep) -> list[RecipeCheck]:
        names = ("user", "project", "session")
        scope: Any = {f"{name}_id": getattr(step, name) or getattr(self._recipe, name) for name in names}
        if step.remember:
            messages = [each.model_dump(mode="json", exclude_none=True) for each in step.remember]
            turns = await self._memory.remember(messages, **scope, wait=True)
            self._name(step, [turn.id for turn in turns])
        elif step.forget:
            await self._forget(step.forget, scope)
        elif step.ask:
            return await self._ask(number, step, scope)
        else:
            await self._store(step, scope)
        return []

    async def _store(self, step: RecipeStep, scope: dict[str, Any]) -> None:
        stored = step.store or step.correct
        assert stored is not None
        fields: Any = stored.model_dump(exclude_unset=True)
        text = fields.pop("text", None)
        if step.correct and "memory" in fields:
            id = self._id_of(fields.pop("memory"))
            await self._memory.update(id, text, user_id=scope["user_id"], **fields)
            return
        if step.correct and "key" not in fields:
            raise InvalidInput("correct takes memory and text, or key and value")
        outcome = await self._memory.add(text, correction=step.correct is not None, **scope, **fields)
        self._name(step, [outcome.record.id])

    def _name(self, step: RecipeStep, ids: Sequence[str]) -> None:
        """Register the name of a stored memory; several messages are named NAME.1, NAME.2 and so on."""
        if not step.name:
            return
        names = [step.name] if len(ids) == 1 else [f"{step.name}.{number}" for number in range(1, len(ids) + 1)]
        if taken := self._ids.keys() & set(names):
            raise InvalidInput(f"an earlier step is called {min(taken)!r}")
        self._ids |= zip(names, ids, strict=True)

    def _id_of(self, name: str) -> str:
        if name not in self._ids:
            named = f"named are {', '.join(self._ids)}" if self._ids else "name one with as: NAME"
            raise InvalidInput(f"no earlier step names a memory {name!r}; {named}")
        return self._ids[name]

    async def _forget(self, target: ForgetTarget, scope: dict[str, Any]) -> None:
        if target.all:
            await self._memory.delete_all(**scope)
            return
        ids = [self._id_of(target.memory)] if target.memory else []
        if target.key:
            ids = [each.id for each in await self._memory.get_all(**scope, filters={"key": target.key}, limit=1000)]
            if not ids:
                raise NotFound(f"no memory has the key {target.key!r}")
        for id in ids:
            await self._memory.delete(id, user_id=scope["user_id"])

    async def _ask(self, number: int, step: RecipeStep, scope: dict[str, Any]) -> list[RecipeCheck]:
        assert step.ask
        limit = step.limit or self._recipe.limit
        result = await self._memory.search(step.ask, **scope, limit=limit, as_of=step.as_of)
        return [
            RecipeCheck(
                step=number,
                question=step.ask,
                must=must,
                expected=expected,
                rank=self._rank(expected, result.hits),
                recalled=tuple(result.hits),
                notes=result.notes,
            )
            for must, expectations in ((True, step.must), (False, step.must_not))
            for expected in expectations
        ]

    def _rank(self, expected: Expected, recalled: Sequence[Hit]) -> int:
        """Return the rank of the first memory that matches, from 1; 0 if there is none."""
        id, words = self._id_of(expected.id) if expected.id else "", expected.words.casefold()
        for rank, each in enumerate(recalled, 1):
            if each.id == id or (words and words in " ".join(each.memory.casefold().split())):
                return rank
        return 0


# Not allowed in XML 1.0.
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def junit_xml(reports: Sequence[RecipeReport]) -> str:
    """Return JUnit XML with a suite for each recipe and a case for each expectation."""
    root = ElementTree.Element("testsuites", {"name": "recollect recipes", **_counts(reports)})
    for report in reports:
        name = f"{report.recipe.name} ({report.recipe.file})"
        suite = ElementTree.SubElement(root, "testsuite", {"name": name, **_counts([report])})
        for check in report.checks:
            attributes = {"classname": report.recipe.name, "name": f"step {check.step}: {check}"}
            case = ElementTree.SubElement(suite, "testcase", attributes)
            if not check.passed:
                failure = ElementTree.SubElement(case, "failure", message=check.describe_failure(), type="Recall")
                lines = [f"{rank}. {each.score:.2f}  {each.memory}" for rank, each in enumerate(check.recalled, 1)]
                failure.text = "\n".join(lines)
    ElementTree.indent(root)
    xml = ElementTree.tostring(root, encoding="unicode")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + _UNWRITABLE.sub("\ufffd", xml) + "\n"


def _counts(reports: Sequence[RecipeReport]) -> dict[str, str]:
    tests, failures = sum(len(report.checks) for report in reports), sum(report.failed for report in reports)
    return {"tests": str(tests), "failures": str(failures), "errors": "0"}
