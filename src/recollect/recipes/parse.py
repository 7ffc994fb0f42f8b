"""What a recipe is made of: steps that fill a memory, and questions with what must and must not be recalled."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from recollect.errors import InvalidInput
from recollect.model.arguments import RecordFields, parse_limit, parse_scope
from recollect.model.text import validate_text
from recollect.model.times import as_utc
from recollect.recipes.files import read_text


@dataclass(frozen=True, slots=True)
class RecipeScope:
    """Whose memory a step is about."""

    user: str
    project: str | None = None
    session: str | None = None

    @property
    def ids(self) -> dict[str, Any]:
        """The place as the Python API names it."""
        return {"user_id": self.user, "project_id": self.project, "session_id": self.session}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStep:
    """Keep a memory; a `correction` replaces the value of its key however sure that is."""

    text: str | None
    fields: Mapping[str, Any] = field(default_factory=dict)
    correction: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberStep:
    """Keep what was said."""

    messages: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectStep:
    """Change the words of a memory that an earlier step named."""

    memory: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetStep:
    """Forget a named memory, or what has a key, or everything in the place."""

    memory: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """Something that must be recalled, or must not be: words of it, or a memory that an earlier step named."""

    must: bool
    words: str = ""
    memory: str = ""

    def __str__(self) -> str:
        return f'"{self.words}"' if self.words else f"the memory {self.memory}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskStep:
    """A question, and what is expected of what is recalled for it."""

    question: str
    expected: tuple[Expected, ...]
    limit: int
    as_of: str | None = None


Action: TypeAlias = StoreStep | RememberStep | CorrectStep | ForgetStep | AskStep


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeStep:
    """An action, where it takes place, and what later steps call what it kept."""

    number: int
    place: RecipeScope
    action: Action
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The steps of one file, in order."""

    file: Path
    name: str
    steps: tuple[RecipeStep, ...]


MAX_BYTES = 4 << 20


class _Loader(yaml.SafeLoader):
    """Plain values; what YAML 1.1 reads into words such as no, off and 2026-03-15 stays text."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        # A few aliases of aliases can stand for more than fits into memory.
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not allowed; write it out", problem_mark=mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for name, _ in node.value:
            if not isinstance(name, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a name must be plain text", problem_mark=name.start_mark)
            if name.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the name {name.value!r} stands there twice", problem_mark=name.start_mark
                )
            seen.add(name.value)
        return super().construct_mapping(node, deep)


_TEXTS = {"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:bool", "tag:yaml.org,2002:merge"}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _TEXTS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(?:true|false)$"), list("tf"))


def load_yaml(path: Path, *, shape: str) -> Any:
    """The document in a file, or an InvalidInput that names the line."""
    text = read_text(path, shape=shape)
    if len(text) > MAX_BYTES:
        raise InvalidInput(f"{path} is larger than {MAX_BYTES >> 20} MB; split it into several recipes")
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - it is a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = ", ".join(each for each in (error.context, error.problem) if each)
        raise InvalidInput(f"{path}{where}: {problem}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise InvalidInput(f"{path} is not YAML: {error}") from None
    except RecursionError:
        raise InvalidInput(f"{path} is nested too deeply; it should be {shape}") from None


SHAPE = "a YAML list of steps, or a mapping with name, user, project, session, limit and steps"
_VERBS = ("store", "remember", "correct", "forget", "ask")
_PLACES = ("user", "project", "session")
_OPTIONS_BY_VERB = {"store": ("as",), "remember": ("as",), "ask": ("must", "must_not", "as_of", "limit")}
_FIELDS = tuple(RecordFields.__annotations__)
_DEFAULT_USER = "someone"
_DEFAULT_LIMIT = 10


def read_recipe(path: Path) -> Recipe:
    """The recipe in a file, or an InvalidInput that says where it is wrong and what is allowed."""
    document = load_yaml(path, shape=SHAPE)
    head: Mapping[str, Any] = {}
    if isinstance(document, dict):
        head = document
        _check_names(head, ("name", "limit", "steps", *_PLACES), str(path))
        document = head.get("steps")
    if not isinstance(document, list) or not document:
        raise InvalidInput(f"{path} has no steps; it should be {SHAPE}")
    reader = _Reader(
        path,
        RecipeScope(
            _text(head, "user", str(path), default=_DEFAULT_USER), *(_optional(head, n, path) for n in _PLACES[1:])
        ),
        _limit(head, _DEFAULT_LIMIT, str(path)),
    )
    steps = tuple(reader.step(number, each) for number, each in enumerate(document, 1))
    if not any(isinstance(step.action, AskStep) for step in steps):
        raise InvalidInput(f"{path} asks nothing, so nothing can fail; add a step with ask and must or must_not")
    return Recipe(file=path, name=_text(head, "name", str(path), default=path.stem), steps=steps)


@dataclass(slots=True)
class _Reader:
    """Reads one step after the other, and knows what earlier ones named."""

    path: Path
    place: RecipeScope
    limit: int
    named: dict[str, int] = field(default_factory=dict)

    def step(self, number: int, source: Any) -> RecipeStep:
        """One step, from plain values."""
        where = f"{self.path}, step {number}"
        verbs = [verb for verb in _VERBS if isinstance(source, dict) and verb in source]
        if len(verbs) != 1:
            verbs_present = f"this one has {' and '.join(verbs)}" if verbs else "this one has none"
            raise InvalidInput(f"{where}: a step has exactly one of {', '.join(_VERBS)}; {verbs_present}")
        verb = verbs[0]
        where += f" ({verb})"
        _check_names(source, (verb, *_OPTIONS_BY_VERB.get(verb, ()), *_PLACES), where)
        read: Mapping[str, Callable[[dict[str, Any], str], Action]] = {
            "store": self._store,
            "remember": self._remember,
            "correct": self._correct,
            "forget": self._forget,
            "ask": self._ask,
        }
        place = replace(self.place, **{each: _text(source, each, where) for each in _PLACES if each in source})
        try:
            parse_scope(place.user, place.project, place.session)
            action = read[verb](source, where)
        except InvalidInput as error:
            raise error if str(error).startswith(where) else InvalidInput(f"{where}: {error}") from None
        name = self._name(source, action, number, where)
        return RecipeStep(number=number, place=place, action=action, name=name)

    def _store(self, source: dict[str, Any], where: str) -> StoreStep:
        return _stored(source["store"], "store", where, correction=False)

    def _correct(self, source: dict[str, Any], where: str) -> StoreStep | CorrectStep:
        what = source["correct"]
        if isinstance(what, dict) and "memory" in what:
            _check_names(what, ("memory", "text"), where)
            return CorrectStep(memory=self._named_memory(what["memory"], where), text=_text(what, "text", where))
        if not isinstance(what, dict) or "key" not in what:
            raise InvalidInput(f"{where}: correct takes memory and text, or key and value")
        return _stored(what, "correct", where, correction=True)

    def _remember(self, source: dict[str, Any], where: str) -> RememberStep:
        items = source["remember"]
        if not isinstance(items, list):
            items = [items]
        messages = tuple(_message(each, where) for each in items)
        if not messages:
            raise InvalidInput(f"{where}: there are no messages; write - user: I moved to Lisbon")
        return RememberStep(messages=messages)

    def _forget(self, source: dict[str, Any], where: str) -> ForgetStep:
        what = source["forget"]
        if isinstance(what, str):
            return ForgetStep(memory=self._named_memory(what, where))
        if isinstance(what, dict) and len(what) == 1:
            if "memory" in what:
                return ForgetStep(memory=self._named_memory(what["memory"], where))
            if "key" in what:
                return ForgetStep(key=_text(what, "key", where))
            if what.get("all") is True:
                return ForgetStep()
        raise InvalidInput(f"{where}: forget takes the name of a memory, {{key: NAME}} or {{all: true}}")

    def _ask(self, source: dict[str, Any], where: str) -> AskStep:
        expected = [
            self._expected(each, must=name == "must", where=where)
            for name in ("must", "must_not")
            for each in _listed(source.get(name, []))
        ]
        if not expected:
            raise InvalidInput(f"{where}: nothing is expected; add must or must_not with words of a memory")
        as_of = _text(source, "as_of", where) if "as_of" in source else None
        if as_of is not None:
            as_utc(as_of, name="as_of")
        return AskStep(
            question=_text(source, "ask", where),
            expected=tuple(expected),
            limit=_limit(source, self.limit, where),
            as_of=as_of,
        )

    def _expected(self, source: Any, *, must: bool, where: str) -> Expected:
        if isinstance(source, dict) and set(source) == {"id"}:
            return Expected(must, memory=self._named_memory(source["id"], where))
        if not isinstance(source, str) or not source.strip():
            name = "must" if must else "must_not"
            quotes = "; put it in quotes" if isinstance(source, (int, float)) else ""
            raise InvalidInput(
                f"{where}: {name} takes words of a memory or {{id: NAME}}, or a list of them, not "
                f"{_kind(source)}{quotes}"
            )
        return Expected(must, words=" ".join(source.split()))

    def _named_memory(self, name: Any, where: str) -> str:
        if isinstance(name, str) and name in self.named:
            return name
        names = f"; named are {', '.join(self.named)}" if self.named else "; name one with as: NAME"
        quoted = repr(name) if isinstance(name, str) else _kind(name)
        raise InvalidInput(f"{where}: no step before it names a memory {quoted}{names}")

    def _name(self, source: dict[str, Any], action: Action, number: int, where: str) -> str:
        """What the step calls what it keeps; several messages are called NAME.1, NAME.2 and so on."""
        if "as" not in source:
            return ""
        name = _text(source, "as", where)
        names = [name]
        if isinstance(action, RememberStep) and len(action.messages) > 1:
            names = [f"{name}.{each}" for each in range(1, len(action.messages) + 1)]
        for each in names:
            if each in self.named:
                raise InvalidInput(f"{where}: step {self.named[each]} is called {each!r} already")
            self.named[each] = number
        return name


def _stored(what: Any, verb: str, where: str, *, correction: bool) -> StoreStep:
    if isinstance(what, str):
        return StoreStep(text=validate_text(what, name=verb))
    if not isinstance(what, dict):
        raise InvalidInput(f"{where}: {verb} takes a text, or text, key, value and other fields, not {_kind(what)}")
    _check_names(what, ("text", *_FIELDS), where)
    fields = {name: value for name, value in what.items() if name != "text"}
    for name in ("key", "value"):
        if name in fields:
            _text(fields, name, where)
    text = _text(what, "text", where) if "text" in what else None
    if ("key" in fields) != ("value" in fields) or (text is None and "key" not in fields):
        raise InvalidInput(f"{where}: give a text, or a key and its value, or all three")
    return StoreStep(text=text, fields=fields, correction=correction)


def _message(source: Any, where: str) -> dict[str, Any]:
    """A chat message from a text, from {user: TEXT} or {assistant: TEXT}, or as chat clients have it."""
    if isinstance(source, str):
        return {"role": "user", "content": validate_text(source, name="remember")}
    roles = [role for role in ("user", "assistant", "role") if isinstance(source, dict) and role in source]
    if len(roles) != 1:
        raise InvalidInput(
            f"{where}: a message is a text, {{user: TEXT}} or {{assistant: TEXT}}, not {_kind(source)}"
        )
    spoken = roles[0] if roles != ["role"] else "content"
    role = roles[0] if roles != ["role"] else _text(source, "role", where)
    if role not in ("user", "assistant"):
        raise InvalidInput(f"{where}: role is user or assistant, not {role!r}")
    _check_names(source, (*dict.fromkeys((*roles, spoken)), "name", "at"), where)
    message = {"role": role, "content": _text(source, spoken, where)}
    if "name" in source:
        message["name"] = _text(source, "name", where)
    if "at" in source:
        message["timestamp"] = as_utc(_text(source, "at", where), name="at").isoformat()
    return message


def _check_names(source: Mapping[Any, Any], allowed: Collection[str], where: str) -> None:
    for name in source:
        if name not in allowed:
            near = get_close_matches(str(name), allowed, n=1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            # {text: 10,000 dollars} is how most names without a value come about.
            if source[name] is None:
                hint += "; within { } and [ ] a text with a comma in it needs quotes"
            raise InvalidInput(f"{where}: {str(name)!r} is not known{hint}; allowed are {', '.join(allowed)}")


def _text(source: Mapping[str, Any], name: str, where: str, *, default: str | None = None) -> str:
    if name not in source and default is not None:
        return default
    value = source.get(name)
    if isinstance(value, (int, float)):
        raise InvalidInput(f"{where}: {name} is text, not {_kind(value)}; put it in quotes")
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"{where}: {name} is text, and must be there, not {_kind(value)}")
    return validate_text(value, name=name)


def _optional(source: Mapping[str, Any], name: str, path: Path) -> str | None:
    return _text(source, name, str(path)) if name in source else None


def _limit(source: Mapping[str, Any], default: int, where: str) -> int:
    try:
        return parse_limit(source.get("limit", default))
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}") from None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _kind(value: Any) -> str:
    kinds = {dict: "a mapping", list: "a list", type(None): "nothing", bool: "true or false", str: "an empty text"}
    return kinds.get(type(value), "a number")
