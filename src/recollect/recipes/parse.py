"""Parse recipes: steps that fill a memory, and questions with expectations of the recalled memories."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
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

MAX_CHARS = 4 << 20


@dataclass(frozen=True, slots=True)
class RecipeScope:
    """The scope of a step."""

    user: str
    project: str | None = None
    session: str | None = None

    @property
    def ids(self) -> dict[str, Any]:
        """The scope as arguments of the Python API."""
        return {"user_id": self.user, "project_id": self.project, "session_id": self.session}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStep:
    """Store a memory; a `correction` replaces the value of its key, whatever its confidence."""

    text: str | None
    fields: Mapping[str, Any] = field(default_factory=dict)
    correction: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberStep:
    """Store turns."""

    messages: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectStep:
    """Change the text of a memory that an earlier step named."""

    memory: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetStep:
    """Forget a named memory, or the memories with a key, or all of the scope."""

    memory: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """A memory that must be recalled, or must not be: one with these words, or one that an earlier step named."""

    must: bool
    words: str = ""
    memory: str = ""

    def __str__(self) -> str:
        return f'"{self.words}"' if self.words else f"the memory {self.memory}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskStep:
    """A question, and the expectations of the recalled memories."""

    question: str
    expected: tuple[Expected, ...]
    limit: int
    as_of: str | None = None


Action: TypeAlias = StoreStep | RememberStep | CorrectStep | ForgetStep | AskStep


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeStep:
    """An action, its scope, and the name of the stored memory for later steps."""

    number: int
    place: RecipeScope
    action: Action
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The steps of a file, in order."""

    file: Path
    name: str
    steps: tuple[RecipeStep, ...]


class _Loader(yaml.SafeLoader):
    """Loads plain values; words such as no, off and 2026-03-15, which YAML 1.1 interprets, stay text."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        # Nested aliases can expand to more than fits into memory.
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not allowed; write it out", problem_mark=mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for name, _ in node.value:
            problem = "a name must be plain text" if not isinstance(name, yaml.ScalarNode) else ""
            if not problem and name.value in seen:
                problem = f"the name {name.value!r} is used twice"
            if problem:
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=name.start_mark)
            seen.add(name.value)
        return super().construct_mapping(node, deep)


_TEXT_TAGS = {"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:bool", "tag:yaml.org,2002:merge"}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _TEXT_TAGS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(?:true|false)$"), list("tf"))


def _load_yaml(path: Path) -> Any:
    text = read_text(path, shape=_SHAPE)
    if len(text) > MAX_CHARS:
        raise InvalidInput(f"{path} is larger than {MAX_CHARS >> 20} MB; split it into several recipes")
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
        raise InvalidInput(f"{path} is nested too deeply; it should be {_SHAPE}") from None


_SHAPE = "a YAML list of steps, or a mapping with name, user, project, session, limit and steps"
_SCOPE_NAMES = ("user", "project", "session")
# The verbs, and the options that each allows.
_VERBS = {
    "store": ("as",),
    "remember": ("as",),
    "correct": (),
    "forget": (),
    "ask": ("must", "must_not", "as_of", "limit"),
}
_DEFAULT_USER = "someone"
_DEFAULT_LIMIT = 10


@contextmanager
def _errors_at(where: str) -> Iterator[None]:
    """Prefix the messages of errors with their place."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}") from None


def read_recipe(path: Path) -> Recipe:
    """Return the recipe of a file; errors name the step and what is allowed."""
    document = _load_yaml(path)
    head: Mapping[str, Any] = document if isinstance(document, dict) else {}
    with _errors_at(str(path)):
        _check_names(head, ("name", "limit", "steps", *_SCOPE_NAMES))
        name = _text(head, "name", default=path.stem)
        scope = RecipeScope(**{"user": _DEFAULT_USER, **_scope_values(head)})
        limit = parse_limit(head.get("limit", _DEFAULT_LIMIT))
    steps = head.get("steps") if head else document
    if not isinstance(steps, list) or not steps:
        raise InvalidInput(f"{path} has no steps; it should be {_SHAPE}")
    parser = _StepParser(scope, limit)
    parsed = tuple(parser.parse(number, each, path) for number, each in enumerate(steps, 1))
    if not any(isinstance(step.action, AskStep) for step in parsed):
        raise InvalidInput(f"{path} asks nothing, so nothing can fail; add a step with ask and must or must_not")
    return Recipe(file=path, name=name, steps=parsed)


@dataclass(slots=True)
class _StepParser:
    """Parses the steps in order; `names` are those of earlier steps with their numbers."""

    scope: RecipeScope
    limit: int
    names: dict[str, int] = field(default_factory=dict)

    def parse(self, number: int, source: Any, path: Path) -> RecipeStep:
        verbs = [verb for verb in _VERBS if isinstance(source, dict) and verb in source]
        with _errors_at(f"{path}, step {number}"):
            if len(verbs) != 1:
                present = f"this one has {' and '.join(verbs) or 'none'}"
                raise InvalidInput(f"a step has exactly one of {', '.join(_VERBS)}; {present}")
        verb = verbs[0]
        with _errors_at(f"{path}, step {number} ({verb})"):
            _check_names(source, (verb, *_VERBS[verb], *_SCOPE_NAMES))
            place = replace(self.scope, **_scope_values(source))
            parse_scope(place.user, place.project, place.session)
            action = self._action(verb, source)
            name = self._name(source, action, number) if "as" in source else ""
        return RecipeStep(number=number, place=place, action=action, name=name)

    def _action(self, verb: str, source: dict[str, Any]) -> Action:
        match verb:
            case "store":
                return _store(source["store"], "store", correction=False)
            case "remember":
                messages = tuple(_message(each) for each in _as_list(source["remember"]))
                if not messages:
                    raise InvalidInput("there are no messages; write - user: I moved to Lisbon")
                return RememberStep(messages=messages)
            case "correct":
                return self._correct(source["correct"])
            case "forget":
                return self._forget(source["forget"])
            case _:
                return self._ask(source)

    def _correct(self, what: Any) -> StoreStep | CorrectStep:
        if isinstance(what, dict) and "memory" in what:
            _check_names(what, ("memory", "text"))
            return CorrectStep(memory=self._named_memory(what["memory"]), text=_text(what, "text"))
        if not isinstance(what, dict) or "key" not in what:
            raise InvalidInput("correct takes memory and text, or key and value")
        return _store(what, "correct", correction=True)

    def _forget(self, what: Any) -> ForgetStep:
        match what:
            case str() as name:
                return ForgetStep(memory=self._named_memory(name))
            case {"memory": name, **rest} if not rest:
                return ForgetStep(memory=self._named_memory(name))
            case {"key": _, **rest} if not rest:
                return ForgetStep(key=_text(what, "key"))
            case {"all": True, **rest} if not rest:
                return ForgetStep()
        raise InvalidInput("forget takes the name of a memory, {key: NAME} or {all: true}")

    def _ask(self, source: dict[str, Any]) -> AskStep:
        expected = [
            self._expected(each, must=name == "must")
            for name in ("must", "must_not")
            for each in _as_list(source.get(name, []))
        ]
        if not expected:
            raise InvalidInput("nothing is expected; add must or must_not with words of a memory")
        as_of = _text(source, "as_of") if "as_of" in source else None
        if as_of is not None:
            as_utc(as_of, name="as_of")
        limit = parse_limit(source.get("limit", self.limit))
        return AskStep(question=_text(source, "ask"), expected=tuple(expected), limit=limit, as_of=as_of)

    def _expected(self, source: Any, *, must: bool) -> Expected:
        if isinstance(source, dict) and set(source) == {"id"}:
            return Expected(must, memory=self._named_memory(source["id"]))
        if not isinstance(source, str) or not source.strip():
            name = "must" if must else "must_not"
            quotes = "; put it in quotes" if isinstance(source, (int, float)) else ""
            allowed = f"{name} takes words of a memory or {{id: NAME}}, or a list of them"
            raise InvalidInput(f"{allowed}, not {_kind(source)}{quotes}")
        return Expected(must, words=" ".join(source.split()))

    def _named_memory(self, name: Any) -> str:
        if isinstance(name, str) and name in self.names:
            return name
        names = f"; named are {', '.join(self.names)}" if self.names else "; name one with as: NAME"
        raise InvalidInput(
            f"no step before it names a memory {repr(name) if isinstance(name, str) else _kind(name)}{names}"
        )

    def _name(self, source: dict[str, Any], action: Action, number: int) -> str:
        """Register the name of the stored memory; several messages are named NAME.1, NAME.2 and so on."""
        name = _text(source, "as")
        names = [name]
        if isinstance(action, RememberStep) and len(action.messages) > 1:
            names = [f"{name}.{each}" for each in range(1, len(action.messages) + 1)]
        for each in names:
            if each in self.names:
                raise InvalidInput(f"step {self.names[each]} is called {each!r} already")
            self.names[each] = number
        return name


def _store(what: Any, verb: str, *, correction: bool) -> StoreStep:
    if isinstance(what, str):
        return StoreStep(text=validate_text(what, name=verb))
    if not isinstance(what, dict):
        raise InvalidInput(f"{verb} takes a text, or text, key, value and other fields, not {_kind(what)}")
    _check_names(what, ("text", *RecordFields.__annotations__))
    fields = {name: value for name, value in what.items() if name != "text"}
    for name in ("key", "value"):
        if name in fields:
            _text(fields, name)
    text = _text(what, "text") if "text" in what else None
    if ("key" in fields) != ("value" in fields) or (text is None and "key" not in fields):
        raise InvalidInput("give a text, or a key and its value, or all three")
    return StoreStep(text=text, fields=fields, correction=correction)


def _message(source: Any) -> dict[str, Any]:
    """Return a chat message from a text, {user: TEXT}, {assistant: TEXT}, or {role: ROLE, content: TEXT}."""
    if isinstance(source, str):
        return {"role": "user", "content": validate_text(source, name="remember")}
    roles = [role for role in ("user", "assistant", "role") if isinstance(source, dict) and role in source]
    if len(roles) != 1:
        raise InvalidInput(f"a message is a text, {{user: TEXT}} or {{assistant: TEXT}}, not {_kind(source)}")
    role, content = (_text(source, "role"), "content") if roles == ["role"] else (roles[0], roles[0])
    if role not in ("user", "assistant"):
        raise InvalidInput(f"role is user or assistant, not {role!r}")
    _check_names(source, (*dict.fromkeys((*roles, content)), "name", "at"))
    message = {"role": role, "content": _text(source, content)}
    if "name" in source:
        message["name"] = _text(source, "name")
    if "at" in source:
        message["timestamp"] = as_utc(_text(source, "at"), name="at").isoformat()
    return message


def _scope_values(source: Mapping[str, Any]) -> dict[str, str]:
    return {name: _text(source, name) for name in _SCOPE_NAMES if name in source}


def _check_names(source: Mapping[Any, Any], allowed: Collection[str]) -> None:
    for name in source:
        if name not in allowed:
            near = get_close_matches(str(name), allowed, n=1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            # {text: 10,000 dollars} parses as a second name without a value.
            if source[name] is None:
                hint += "; within { } and [ ] a text with a comma in it needs quotes"
            raise InvalidInput(f"{str(name)!r} is not known{hint}; allowed are {', '.join(allowed)}")


def _text(source: Mapping[str, Any], name: str, *, default: str | None = None) -> str:
    if name not in source and default is not None:
        return default
    value = source.get(name)
    if isinstance(value, (int, float)):
        raise InvalidInput(f"{name} is text, not {_kind(value)}; put it in quotes")
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"{name} is text and required, not {_kind(value)}")
    return validate_text(value, name=name)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _kind(value: Any) -> str:
    kinds = {dict: "a mapping", list: "a list", type(None): "nothing", bool: "true or false", str: "an empty text"}
    return kinds.get(type(value), "a number")
