"""Ask a model for JSON and get a checked value, whatever the endpoint can do and however the model spells it.

The server holds the model to the schema where it can. Where it refuses to, the answer is asked for as the arguments
of a function, and where it refuses that too, in words. What comes back is read loosely and checked; a broken answer
is asked for once more, with what was wrong with it; of two broken answers the better part is kept.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from recollect.errors import BrokenAnswer, InvalidInput, InvalidSettings, ModelUnavailable
from recollect.models.chat import Answer, AnsweringChat, Chat, ChatMessage, Form
from recollect.models.loose_json import Read, json_values
from recollect.models.unreadable import what_is_wrong
from recollect.models.wrapped import MAX_WRAPPERS, as_lines, inside

T = TypeVar("T")

# A thinking model that ran out of tokens gets so many times as many, within reason.
MORE_TOKENS = 4
MOST_TOKENS = 32_768

# Reading more than this holds up others: it is done in a thread.
_LONG_CHARS = 1 << 15
_MAX_REPEATED_CHARS = 2_000
_MAX_COMPLAINTS = 5

_NEXT: Mapping[Form, Form] = {"schema": "tool", "tool": "prompt"}
# By these a 404 speaks of what was asked for, and not of the address.
_ABOUT_FORM = ("tool", "response_format", "parameters")

_IN_WORDS = "Answer with JSON that keeps to this schema, and with nothing else:\n{schema}"
_AGAIN = "That answer cannot be used: {complaint}. Answer once more, the whole JSON and nothing else.\n{schema}"


class InvalidAnswer(ValueError):
    """The JSON is not what was asked for; the message is told to the model."""


@dataclass(frozen=True, slots=True)
class Partial(Generic[T]):
    """What a check could use of an answer, what is wrong with the rest, and how much the usable part is worth."""

    value: T
    complaints: tuple[str, ...] = ()
    worth: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Structured(Generic[T]):
    """A checked answer, how it was had and what it cost; tokens are 0 where the server does not count them."""

    value: T
    model: str
    how: Form
    calls: int
    tokens_in: int
    tokens_out: int
    salvaged: bool = False
    complaints: tuple[str, ...] = ()


@dataclass(slots=True)
class _Spent:
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    def add(self, answer: Answer | BrokenAnswer) -> None:
        self.calls += 1
        self.tokens_in += answer.tokens_in
        self.tokens_out += answer.tokens_out


@dataclass(slots=True)
class _Try(Generic[T]):
    """One question to the model, and what came of it."""

    how: Form
    text: str = ""
    cut_off: bool = False
    found: Partial[T] | None = None
    complaints: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return self.found is not None and not self.complaints


async def ask_json(
    chat: Chat,
    messages: Sequence[ChatMessage],
    *,
    schema: Mapping[str, Any],
    max_tokens: int,
    timeout_s: float | None,
    check: Callable[[object], T | Partial[T]],
) -> Structured[T]:
    """The answer as `check` gives it, after at most one corrective question; a BrokenAnswer if none can be used.

    `check` is handed plain JSON values and raises an InvalidAnswer, or returns a Partial where only some is usable.
    `timeout_s` is for both questions together.
    """
    started = asyncio.get_running_loop().time()
    spent = _Spent()
    asking = _Asking(chat, schema, spent, check)
    first: _Try[T] = await asking.ask(messages, max_tokens=max_tokens, timeout_s=timeout_s)
    tries = [first]
    if not first.good:
        left_s = None if timeout_s is None else timeout_s - (asyncio.get_running_loop().time() - started)
        more = min(max(MOST_TOKENS, max_tokens), max_tokens * MORE_TOKENS) if first.cut_off else max_tokens
        try:
            if left_s is not None and left_s <= 0:
                raise ModelUnavailable("no time was left")
            tries.append(await asking.ask(_corrected(messages, first, schema), max_tokens=more, timeout_s=left_s))
        except (ModelUnavailable, InvalidInput) as error:
            # The second question is a kindness: what the first gave stands.
            first.complaints.append(f"asking once more failed: {error}")
    return _best(tries, chat.model, spent)


def _best(tries: Sequence[_Try[T]], model: str, spent: _Spent) -> Structured[T]:
    usable = [(each.good, each.found.worth, -at) for at, each in enumerate(tries) if each.found is not None]
    best = tries[-max(usable)[2]] if usable else tries[-1]
    if best.found is None:
        raise BrokenAnswer(
            f"{model} gave no answer that can be used: {_told(best.complaints)}",
            calls=spent.calls,
            tokens_in=spent.tokens_in,
            tokens_out=spent.tokens_out,
        )
    return Structured(
        value=best.found.value,
        model=model,
        how=best.how,
        calls=spent.calls,
        tokens_in=spent.tokens_in,
        tokens_out=spent.tokens_out,
        salvaged=not best.good,
        complaints=tuple(best.complaints),
    )


@dataclass(frozen=True, slots=True)
class _Asking(Generic[T]):
    """Whom to ask, for what, and who pays."""

    chat: Chat
    schema: Mapping[str, Any]
    spent: _Spent
    check: Callable[[object], T | Partial[T]]

    async def ask(self, messages: Sequence[ChatMessage], *, max_tokens: int, timeout_s: float | None) -> _Try[T]:
        """One question in the best form the endpoint takes; an answer that cannot be used is no error here."""
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
                form = _NEXT[form]
                continue
            except BrokenAnswer as error:
                self.spent.add(error)
                return _Try(form, cut_off=error.cut_off, complaints=[str(error)])
            self.spent.add(answer)
            if isinstance(chat, AnsweringChat) and refusal is not None:
                # Only now: a request that is refused in every form says nothing about forms.
                chat.form = form
            return await self._judged(_Try(form, answer.text, answer.cut_off))

    async def _answer(
        self, messages: Sequence[ChatMessage], form: Form, *, max_tokens: int, timeout_s: float | None
    ) -> Answer:
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
        return Answer(text=text)

    async def _judged(self, asked: _Try[T]) -> _Try[T]:
        """The try with the best of the values that its text holds."""
        if len(asked.text) > _LONG_CHARS:
            read = await asyncio.to_thread(_values_of, asked.text)
        else:
            read = _values_of(asked.text)
        if not read:
            asked.complaints = ["it was cut off" if asked.cut_off else "it holds no JSON"]
            return asked
        best: tuple[bool, int] | None = None
        for each in read:
            found, complaints = self._checked(each)
            rank = (found is not None and not complaints, found.worth if found else -1)
            # A model that says it twice means the last.
            if best is None or rank >= best:
                best, asked.found, asked.complaints = rank, found, complaints
        return asked

    def _checked(self, read: Read, wrappers: int = 0) -> tuple[Partial[T] | None, list[str]]:
        """What the check makes of a value, or of the first that it wraps and that can be used."""
        found, complaints = self._checked_as_is(read)
        if found is None and wrappers < MAX_WRAPPERS:
            for value in inside(read.value):
                within, wrong = self._checked(Read(value, read.lost), wrappers + 1)
                if within is not None:
                    return within, wrong
        return found, complaints

    def _checked_as_is(self, read: Read) -> tuple[Partial[T] | None, list[str]]:
        lost = ["it was cut off or broken, and a part of it is lost"] if read.lost else []
        try:
            value = self.check(read.value)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            wrong = str(error) if isinstance(error, InvalidAnswer) else what_is_wrong(error)
            return None, [*lost, wrong]
        partial: Partial[T] = value if isinstance(value, Partial) else Partial(value)
        return partial, [*lost, *partial.complaints]


def _values_of(text: str) -> list[Read]:
    """All that may be the answer: each value of the text, and last what its lines come to together."""
    read = list(json_values(text))
    lines = as_lines(text) if len(read) > 1 else None
    if lines is None:
        return read
    # One whole line is not a whole answer where another is broken.
    return [*(replace(each, lost=each.lost or lines.lost) for each in read), lines]


def _may_be_about_form(error: InvalidInput) -> bool:
    """Whether another form could help; servers say so in many ways, and some do not say what they refuse."""
    return not isinstance(error, InvalidSettings) or any(word in str(error) for word in _ABOUT_FORM)


def _with_schema(messages: Sequence[ChatMessage], schema: Mapping[str, Any]) -> list[ChatMessage]:
    """The messages with the schema in words at their end, so that what comes before stays the same for caches."""
    *before, last = messages
    asked = _IN_WORDS.format(schema=json.dumps(schema, ensure_ascii=False))
    return [*before, {**last, "content": f"{last['content']}\n\n{asked}"}]


def _corrected(messages: Sequence[ChatMessage], broken: _Try[T], schema: Mapping[str, Any]) -> list[ChatMessage]:
    """The question, what was answered, and what is wrong with it."""
    # A server that took the schema may not have shown it to the model; asked in words it is shown anyway.
    shown = "" if broken.how == "prompt" else json.dumps(schema, ensure_ascii=False)
    # What the server is called and how it failed is nothing to the model.
    wrong = _told(broken.complaints) if broken.text else "it is empty"
    complaint = _AGAIN.format(complaint=wrong, schema=shown).strip()
    said = broken.text[:_MAX_REPEATED_CHARS].strip() or "(no answer)"
    return [*messages, {"role": "assistant", "content": said}, {"role": "user", "content": complaint}]


def _told(complaints: Sequence[str]) -> str:
    return "; ".join(complaints[:_MAX_COMPLAINTS]) or "it says nothing"
