"""Rewrite a question from the middle of a conversation so that it can be searched for on its own."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from recollect.errors import ModelUnavailable
from recollect.frozen_dataclass import frozen_dataclass
from recollect.lazy_pattern import lazy_pattern
from recollect.model.messages import message_role, message_text
from recollect.prompts import prompt
from recollect.prompts.rendering import new_delimiter
from recollect.read.question_context import context_terms, needs_context, picks_earlier_item
from recollect.read.strip_context import is_context, strip_context

if TYPE_CHECKING:
    from recollect.read.llm_budget import MeteredChat


RewriteMode: TypeAlias = Literal["auto", "off", "terms", "llm", "hyde"]
RewriteMethod: TypeAlias = Literal["as-is", "terms", "llm", "hyde"]
_Message: TypeAlias = tuple[str, str]

# How far back terms are taken from, and how much of the talk the LLM reads.
USER_MESSAGES = 3
# The assistant is wordy: of what it said, only the heaviest words.
ASSISTANT_TERMS = 4
LLM_MESSAGES = 6
LLM_MESSAGE_CHARS = 500

# What is longer is no question. The tokens leave room for a short thought before it.
MAX_ANSWER_CHARS = 512
MAX_ANSWER_TOKENS = 512
_MAX_NOTE_CHARS = 200

_LABEL = lazy_pattern(
    r"(?:(?:rewritten|standalone|self-contained|search|stored|hypothetical) ){0,4}"
    r"(?:question|query|statement|sentence|answer|memory):\s+",
    re.IGNORECASE,
)
_SURROUNDING_MARKS = " \t\"'“”„«»「」*`"
_NO_SENTENCE = ("{", "[", "<")
# "I cannot eat nuts" is a memory: only what a model says of its own duty is a refusal.
_REFUSAL = lazy_pattern(
    "(?:i'm|i am) (?:very )?sorry|sorry[, ]|i apologi[sz]e|as an ai|unfortunately, i"
    "|i (?:can't|cannot|can not|am unable to|am not able to|won't)"
    " (?:help|assist|provide|answer|do that|comply|rewrite|determine|fulfil|generate|create|write)"
    "|(?:es )?tut mir leid|(?:je suis )?désolé|lo siento|mi dispiace|desculpe|het spijt me|извините|к сожалению, я"
    "|很?抱歉|对不起|申し訳|すみません|죄송"
)


@frozen_dataclass(kw_only=True)
class RewrittenQuery:
    """The query to search by words, and `hypothetical`, an imagined answer to search by vector.

    `inferred_terms` are the words of the query that were taken from earlier messages. `llm_failed` says that the LLM
    was needed and failed, so that the result must not be cached.
    """

    query: str
    inferred_terms: tuple[str, ...] = ()
    hypothetical: str = ""
    method: RewriteMethod = "as-is"
    note: str = ""
    needs_context: bool = False
    llm_failed: bool = False


async def rewrite(
    conversation: str | Sequence[Mapping[str, object] | str],
    *,
    mode: RewriteMode,
    llm: MeteredChat | None,
    timeout_s: float,
) -> RewrittenQuery:
    """Return the last question, completed from earlier messages; failures become notes, not errors.

    `conversation` is a question or OpenAI-style messages; those of tools and system are ignored. A complete question
    is unchanged, except in mode `hyde`, where an imagined answer is added. `auto` adds terms, and calls the LLM only
    if terms cannot help: the user's messages have none, or the question chooses among earlier items. If the LLM
    fails, is late, returns nonsense or has used up its quota, terms are added.
    """
    question, before = _split_question(conversation)
    is_incomplete = needs_context(question)
    if mode == "off":
        return RewrittenQuery(query=question, needs_context=is_incomplete)
    fallback = (
        _with_terms(question, before)
        if is_incomplete
        else RewrittenQuery(query=question, note="the question stands alone")
    )
    name = _choose_prompt(mode, fallback, before, question=question)
    if name is None:
        return fallback
    if llm is None:
        return fallback if mode == "auto" else _with_failure(fallback, "no LLM is set up")
    try:
        async with asyncio.timeout(timeout_s):
            if refusal := await llm.refusal():
                return _with_failure(fallback, refusal)
            answer = await _ask(llm, name, question, before, timeout_s)
    except TimeoutError:
        return _with_failure(fallback, f"the LLM did not answer in {timeout_s:g} s")
    except Exception as error:  # a rewrite is never worth the answer: a chat of the caller's own may raise anything
        return _with_failure(fallback, f"the LLM was of no help: {error}")
    note = f"by the LLM, prompt {name} {prompt(name).digest}"
    if name == "hyde":
        return replace(fallback, hypothetical=answer, method="hyde", note=f"an answer imagined {note}")
    return replace(fallback, query=answer, inferred_terms=(), method="llm", note=f"completed {note}")


def last_question(conversation: str | Sequence[Mapping[str, object] | str]) -> str:
    """Return the text of the last user message."""
    return _split_question(conversation)[0]


def _split_question(conversation: str | Sequence[Mapping[str, object] | str]) -> tuple[str, list[_Message]]:
    """Return the question and the earlier messages of user and assistant."""
    messages = [conversation] if isinstance(conversation, str | Mapping) else conversation
    # What recall put in earlier was not said by anyone.
    turns = [_parse_message(message) for message in messages if not is_context(message)]
    question_index = max((at for at, (role, _) in enumerate(turns) if role == "user"), default=None)
    if question_index is None:
        return "", []
    before = [(role, text) for role, text in turns[:question_index] if role in ("user", "assistant") and text.strip()]
    return turns[question_index][1].strip(), before


def _parse_message(message: object) -> _Message:
    if isinstance(message, str):
        return "user", message
    text = message_text(message.get("content") if isinstance(message, Mapping) else None)
    return message_role(message), strip_context(text)


def _with_terms(question: str, before: Sequence[_Message]) -> RewrittenQuery:
    """Return the question with the main terms of the user's last messages, or of the assistant's last one."""
    terms, note = _user_terms(question, before), "terms of the user's last messages added"
    if not terms:
        last = [text for role, text in before if role == "assistant"][-1:]
        terms = context_terms(last, question=question, limit=ASSISTANT_TERMS)
        note = "terms of the assistant's last message added"
    if not terms:
        return RewrittenQuery(
            query=question, needs_context=True, note="vague, and the last messages hold no term to add"
        )
    query = " ".join([question, *terms]).strip()
    return RewrittenQuery(query=query, inferred_terms=tuple(terms), method="terms", needs_context=True, note=note)


def _user_terms(question: str, before: Sequence[_Message]) -> list[str]:
    return context_terms([text for role, text in before if role == "user"][-USER_MESSAGES:], question=question)


def _choose_prompt(
    mode: RewriteMode, fallback: RewrittenQuery, before: Sequence[_Message], *, question: str
) -> str | None:
    """Return the prompt for the LLM, if it could improve on the terms."""
    if fallback.needs_context and not before:
        # There is nothing the LLM could know either.
        return None
    if mode == "hyde" and question:
        return "hyde"
    if not fallback.needs_context or not question:
        return None
    if mode == "auto":
        # What the assistant said may be beside the point: its terms are better than none, and no better than asking.
        return "rewrite" if picks_earlier_item(question) or not _user_terms(question, before) else None
    return "rewrite" if mode == "llm" else None


async def _ask(llm: MeteredChat, name: str, question: str, before: Sequence[_Message], timeout_s: float) -> str:
    # A fresh secret each time, and one line of JSON a message: nothing that was said can end the fence.
    fence = new_delimiter()
    lines = [_line(role, text) for role, text in before[-LLM_MESSAGES:]]
    text = prompt(name).fill(fence=fence, conversation="\n".join(lines), question=_line("user", question))
    # The step is called what its prompt is.
    answer = await llm.ask(
        name, [{"role": "user", "content": text}], max_tokens=MAX_ANSWER_TOKENS, timeout_s=timeout_s
    )
    if fence in answer:
        raise ModelUnavailable("it repeats what it was asked")
    cleaned = _clean_answer(answer)
    if cleaned.casefold() == question.casefold():
        raise ModelUnavailable("it left the question as it is")
    return cleaned


def _line(role: str, text: str) -> str:
    return json.dumps({"role": role, "said": text[:LLM_MESSAGE_CHARS]}, ensure_ascii=False)


def _clean_answer(answer: str) -> str:
    """Return the sentence of an answer without decoration; raise `ModelUnavailable` if there is none."""
    lines = [line.strip() for line in answer[: MAX_ANSWER_CHARS * 8].splitlines()]
    lines = [line for line in lines if line and not line.startswith("```")]
    if len(lines) > 1 and lines[0].endswith(":"):
        del lines[0]
    sentence = lines[0] if lines else ""
    label = _LABEL.match(sentence)
    sentence = " ".join(sentence[label.end() if label else 0 :].strip(_SURROUNDING_MARKS).split())
    if not any(char.isalnum() for char in sentence) or sentence.casefold() in ("null", "none", "n/a"):
        raise ModelUnavailable("it answered nothing")
    if len(sentence) > MAX_ANSWER_CHARS:
        raise ModelUnavailable(f"it answered more than {MAX_ANSWER_CHARS} characters")
    if sentence.startswith(_NO_SENTENCE):
        raise ModelUnavailable("it answered no sentence")
    if _REFUSAL.match(sentence.casefold().replace("’", "'")):
        raise ModelUnavailable("it refused")
    return sentence


def _with_failure(fallback: RewrittenQuery, reason: str) -> RewrittenQuery:
    return replace(fallback, note=f"{' '.join(reason.split())[:_MAX_NOTE_CHARS]}; {fallback.note}", llm_failed=True)
