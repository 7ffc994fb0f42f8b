"""Get JSON that passes a check from a model, in whatever form the model wraps it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from recollect.errors import BrokenAnswer, InvalidInput, InvalidSettings, ModelUnavailable
from recollect.frozen_dataclass import frozen_dataclass
from recollect.models.chat import AnsweringChat, Chat, ChatMessage, Form, ModelAnswer
from recollect.models.loose_json import ParsedJson, parse_json_values
from recollect.models.server_errors import describe_parse_error

# A wrapper in a wrapper is seen; more than that is no answer.
MAX_WRAPPERS = 3
# What a server or a model complains of is no answer, whatever it holds.
_ERROR_KEYS = frozenset(["error", "errors"])


def parse_json_lines(text: str) -> ParsedJson | None:
    """Return the objects of a text with one object per line; None for other texts."""
    objects: list[Any] = []
    is_incomplete = False
    for line in text.splitlines():
        part = line.strip().removesuffix(",")
        if not part.startswith("{"):
            continue
        try:
            objects.append(json.loads(part))
        except (ValueError, RecursionError):
            is_incomplete = True
    # Read as any other answer is, without what nobody can store.
    return ParsedJson(next(parse_json_values(json.dumps(objects))).value, is_incomplete) if len(objects) > 1 else None


def unwrap(value: object) -> Iterator[object]:
    """Yield the parts of an object that may be the wrapped answer: objects, lists, JSON strings."""
    if not isinstance(value, Mapping):
        return
    for name, item in value.items():
        if str(name).casefold() in _ERROR_KEYS:
            continue
        if isinstance(item, str) and item.lstrip()[:1] in ("{", "["):
            item = next((read.value for read in parse_json_values(item) if not read.is_incomplete), None)
        if (isinstance(item, Mapping) and item) or _is_list_of_objects(item):
            yield item


def _is_list_of_objects(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, Mapping) for each in value)


T = TypeVar("T")

# A thinking model that ran out of tokens gets so many times as many, within reason.
TOKEN_FACTOR = 4
MAX_TOKENS = 32_768

# Reading more than this holds up others: it is done in a thread.
_LONG_CHARS = 1 << 15
_MAX_REPEATED_CHARS = 2_000
_MAX_COMPLAINTS = 5

_FALLBACK_FORM: Mapping[Form, Form] = {"schema": "tool", "tool": "prompt"}
# By these a 404 speaks of what was asked for, and not of the address.
_ABOUT_FORM = ("tool", "response_format", "parameters")

_SCHEMA_PROMPT = "Answer with JSON that keeps to this schema, and with nothing else:\n{schema}"
_RETRY_PROMPT = (
    "That answer cannot be used: {complaint}. Answer once more, the whole JSON and nothing else.\n{schema}"
)


class InvalidAnswer(ValueError):
    """The JSON is not as requested; the message is sent to the model."""


@frozen_dataclass
class Partial(Generic[T]):
    """The usable part of an answer, the problems of the rest, and the value of the usable part."""

    value: T
    complaints: tuple[str, ...] = ()
    score: int = 1


@frozen_dataclass(kw_only=True)
class Structured(Generic[T]):
    """A checked answer, how it was obtained and its cost; tokens are 0 if not counted."""

    value: T
    model: str
    how: Form
    calls: int
    tokens_in: int
    tokens_out: int
    salvaged: bool = False
    complaints: tuple[str, ...] = ()


@dataclass(slots=True)
class _Cost:
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    def add(self, answer: ModelAnswer | BrokenAnswer) -> None:
        self.calls += 1
        self.tokens_in += answer.tokens_in
        self.tokens_out += answer.tokens_out


@dataclass(slots=True)
class _Attempt(Generic[T]):
    """One call of the model and its result."""

    how: Form
    text: str = ""
    cut_off: bool = False
    partial: Partial[T] | None = None
    complaints: list[str] = field(default_factory=list)

    @property
    def is_valid(self) -> bool:
        return self.partial is not None and not self.complaints


async def ask_json(
    chat: Chat,
    messages: Sequence[ChatMessage],
    *,
    schema: Mapping[str, Any],
    max_tokens: int,
    timeout_s: float | None,
    check: Callable[[object], T | Partial[T]],
) -> Structured[T]:
    """Return the result of `check`, after at most one correction; raise `BrokenAnswer` if none is usable.

    `check` is handed plain JSON values and raises an InvalidAnswer, or returns a Partial where only some is usable.
    `timeout_s` is for both questions together.
    """
    started = asyncio.get_running_loop().time()
    cost = _Cost()
    request = _JsonRequest(chat, schema, cost, check)
    first: _Attempt[T] = await request.ask(messages, max_tokens=max_tokens, timeout_s=timeout_s)
    attempts = [first]
    if not first.is_valid:
        left_s = None if timeout_s is None else timeout_s - (asyncio.get_running_loop().time() - started)
        retry_tokens = min(max(MAX_TOKENS, max_tokens), max_tokens * TOKEN_FACTOR) if first.cut_off else max_tokens
        try:
            if left_s is not None and left_s <= 0:
                raise ModelUnavailable("no time was left")
            attempts.append(
                await request.ask(_retry_messages(messages, first, schema), max_tokens=retry_tokens, timeout_s=left_s)
            )
        except (ModelUnavailable, InvalidInput) as error:
            # The second question is a kindness: what the first gave stands.
            first.complaints.append(f"asking once more failed: {error}")
    return _best(attempts, chat.model, cost)


def _best(attempts: Sequence[_Attempt[T]], model: str, cost: _Cost) -> Structured[T]:
    usable = [
        (each.is_valid, each.partial.score, -at) for at, each in enumerate(attempts) if each.partial is not None
    ]
    best = attempts[-max(usable)[2]] if usable else attempts[-1]
    if best.partial is None:
        raise BrokenAnswer(
            f"{model} gave no answer that can be used: {_join_complaints(best.complaints)}",
            calls=cost.calls,
            tokens_in=cost.tokens_in,
            tokens_out=cost.tokens_out,
        )
    return Structured(
        value=best.partial.value,
        model=model,
        how=best.how,
        calls=cost.calls,
        tokens_in=cost.tokens_in,
        tokens_out=cost.tokens_out,
        salvaged=not best.is_valid,
        complaints=tuple(best.complaints),
    )


@frozen_dataclass
class _JsonRequest(Generic[T]):
    """The model, the check and the cost account of one question."""

    chat: Chat
    schema: Mapping[str, Any]
    cost: _Cost
    check: Callable[[object], T | Partial[T]]

    async def ask(self, messages: Sequence[ChatMessage], *, max_tokens: int, timeout_s: float | None) -> _Attempt[T]:
        """Call the model once in the best format of the endpoint; an unusable answer is not an error here."""
        chat = self.chat
        form: Form = chat.form if isinstance(chat, AnsweringChat) else "schema"
        refusal: InvalidInput | None = None
        while True:
            try:
                answer = await self._answer(messages, form, max_tokens=max_tokens, timeout_s=timeout_s)
            except InvalidInput as error:
                refusal = refusal or error
                if form == "prompt" or not _may_be_about_form(error):
                    raise refusal from None
                form = _FALLBACK_FORM[form]
                continue
            except BrokenAnswer as error:
                self.cost.add(error)
                return _Attempt(form, cut_off=error.cut_off, complaints=[str(error)])
            self.cost.add(answer)
            if isinstance(chat, AnsweringChat) and refusal is not None:
                # Only now: a request that is refused in every form says nothing about forms.
                chat.form = form
            return await self._check_attempt(_Attempt(form, answer.text, answer.cut_off))

    async def _answer(
        self, messages: Sequence[ChatMessage], form: Form, *, max_tokens: int, timeout_s: float | None
    ) -> ModelAnswer:
        schema = None if form == "prompt" else self.schema
        if form == "prompt":
            messages = _with_schema(messages, self.schema)
        if isinstance(self.chat, AnsweringChat):
            return await self.chat.answer(
                messages, max_tokens=max_tokens, timeout_s=timeout_s, schema=schema, form=form
            )
        if form == "tool":
            raise InvalidInput("this chat knows no tools")
        text = await self.chat.complete(messages, max_tokens=max_tokens, timeout_s=timeout_s, schema=schema)
        return ModelAnswer(text=text)

    async def _check_attempt(self, attempt: _Attempt[T]) -> _Attempt[T]:
        """Return the attempt with the best value in its text."""
        if len(attempt.text) > _LONG_CHARS:
            values = await asyncio.to_thread(_parse_values, attempt.text)
        else:
            values = _parse_values(attempt.text)
        if not values:
            attempt.complaints = ["it was cut off" if attempt.cut_off else "it holds no JSON"]
            return attempt
        best: tuple[bool, int] | None = None
        for each in values:
            partial, complaints = self._check_value(each)
            rank = (partial is not None and not complaints, partial.score if partial else -1)
            # A model that says it twice means the last.
            if best is None or rank >= best:
                best, attempt.partial, attempt.complaints = rank, partial, complaints
        return attempt

    def _check_value(self, parsed: ParsedJson, wrappers: int = 0) -> tuple[Partial[T] | None, list[str]]:
        """Return the result of the check for a value, or for the first usable value inside it."""
        partial, complaints = self._check_unwrapped(parsed)
        if partial is None and wrappers < MAX_WRAPPERS:
            for value in unwrap(parsed.value):
                within, wrong = self._check_value(ParsedJson(value, parsed.is_incomplete), wrappers + 1)
                if within is not None:
                    return within, wrong
        return partial, complaints

    def _check_unwrapped(self, parsed: ParsedJson) -> tuple[Partial[T] | None, list[str]]:
        lost = ["it was cut off or broken, and a part of it is lost"] if parsed.is_incomplete else []
        try:
            value = self.check(parsed.value)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            wrong = str(error) if isinstance(error, InvalidAnswer) else describe_parse_error(error)
            return None, [*lost, wrong]
        partial: Partial[T] = value if isinstance(value, Partial) else Partial(value)
        return partial, [*lost, *partial.complaints]


def _parse_values(text: str) -> list[ParsedJson]:
    """Return all values that may be the answer: each value of the text, then its lines combined."""
    read = list(parse_json_values(text))
    lines = parse_json_lines(text) if len(read) > 1 else None
    if lines is None:
        return read
    # One whole line is not a whole answer where another is broken.
    return [*(replace(each, is_incomplete=each.is_incomplete or lines.is_incomplete) for each in read), lines]


def _may_be_about_form(error: InvalidInput) -> bool:
    """Return whether another format could help; servers report this in many ways."""
    return not isinstance(error, InvalidSettings) or any(word in str(error) for word in _ABOUT_FORM)


def _with_schema(messages: Sequence[ChatMessage], schema: Mapping[str, Any]) -> list[ChatMessage]:
    """Return the messages with the schema at the end, so that the beginning stays cacheable."""
    *before, last = messages
    instruction = _SCHEMA_PROMPT.format(schema=json.dumps(schema, ensure_ascii=False))
    return [*before, {**last, "content": f"{last['content']}\n\n{instruction}"}]


def _retry_messages(
    messages: Sequence[ChatMessage], broken: _Attempt[T], schema: Mapping[str, Any]
) -> list[ChatMessage]:
    """Return the question, the answer and its problems as messages."""
    # A server that took the schema may not have shown it to the model; asked in words it is shown anyway.
    schema_text = "" if broken.how == "prompt" else json.dumps(schema, ensure_ascii=False)
    # What the server is called and how it failed is nothing to the model.
    wrong = _join_complaints(broken.complaints) if broken.text else "it is empty"
    complaint = _RETRY_PROMPT.format(complaint=wrong, schema=schema_text).strip()
    answer = broken.text[:_MAX_REPEATED_CHARS].strip() or "(no answer)"
    return [*messages, {"role": "assistant", "content": answer}, {"role": "user", "content": complaint}]


def _join_complaints(complaints: Sequence[str]) -> str:
    return "; ".join(complaints[:_MAX_COMPLAINTS]) or "it says nothing"
