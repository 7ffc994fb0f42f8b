"""Put a talk to a model as data and get back a text that was judged; what it cost is told in any case."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from recollect.conversation.written import Cost
from recollect.errors import BrokenAnswer, InvalidInput, InvalidSettings, ModelUnavailable
from recollect.model.invisible import normalise_invisible
from recollect.model.turn import Turn
from recollect.models.chat import AnsweringChat, Chat, ChatMessage, ModelAnswer
from recollect.prompts.data import json_line, max_chars_per_turn, shorten
from recollect.write.screening.redact import redact

# Something of each turn is shown, however many there are; so there may not be too many.
MAX_TURNS = 80
# Room for a model that thinks before it writes; one that still ran out gets so many times as much.
MAX_TOKENS = 1_024
RETRY_TOKENS_FACTOR = 4

_MAX_REPEATED_CHARS = 2_000
_RETRY_PROMPT = "That cannot be used: {why}. Write it once more, and nothing else."
_LABEL = re.compile(r"\A[#*_ ]{0,6}(?:updated |new )?summary(?:[*_ ]{0,4}:[*_ ]{0,4}|[*_ ]{0,4}\n)", re.IGNORECASE)
_FENCE = re.compile(r"\A```[a-z]{0,20}\n|\n```\Z")


@dataclass(frozen=True, slots=True)
class LlmText:
    """What a model wrote; `text` is empty if none of it was good enough, and `why` says what was wrong."""

    text: str
    why: str
    cost: Cost


def shorten_turns(turns: Sequence[Turn]) -> list[Turn]:
    """The turns as a model is shown them: of long ones the beginning and the end."""
    share = max_chars_per_turn(len(turns))
    return [
        turn if len(turn.content) <= share else replace(turn, content=shorten(turn.content, share)) for turn in turns
    ]


def turns_as_json(turns: Sequence[Turn]) -> str:
    """The turns as a line of JSON each."""
    return "\n".join(json_line(_turn_row(turn)) for turn in shorten_turns(turns))


def sample_turns(turns: Sequence[Turn]) -> Sequence[Turn]:
    """As many turns as a model is shown: of too many the first quarter and the last three."""
    quarter = MAX_TURNS // 4
    return turns if len(turns) <= MAX_TURNS else [*turns[:quarter], *turns[-(MAX_TURNS - quarter) :]]


async def ask_text(chat: Chat, question: str, *, judge: Callable[[str], str], timeout_s: float | None) -> LlmText:
    """What the model writes, after at most one corrective question; an empty text if nothing of it was good enough.

    `judge` says what is wrong with a text, or nothing. A model that cannot be reached is a ModelUnavailable.
    """
    messages: list[ChatMessage] = [{"role": "user", "content": question}]
    cost, why, tokens = Cost(model=chat.model), "", MAX_TOKENS
    for attempt in range(2):
        try:
            answer = await _answer(chat, messages, max_tokens=tokens, timeout_s=timeout_s)
        except BrokenAnswer as error:
            cost += Cost(error.calls, error.tokens_in, error.tokens_out)
            answer = ModelAnswer(text="", cut_off=error.cut_off)
        except InvalidSettings:
            raise
        except InvalidInput as error:
            # The server will not read this, now or ever: asking again cannot help, doing without can.
            return LlmText("", f"the model refuses what it is asked: {error}", cost)
        except ModelUnavailable:
            if not attempt:
                raise
            break
        else:
            cost += Cost(1, answer.tokens_in, answer.tokens_out)
        text = clean_answer(answer.text)
        why = "it was cut off" if answer.cut_off else judge(text)
        if not why:
            return LlmText(text, "", cost)
        tokens = MAX_TOKENS * RETRY_TOKENS_FACTOR if answer.cut_off else MAX_TOKENS
        previous_answer = answer.text[:_MAX_REPEATED_CHARS].strip() or "(no answer)"
        messages = [
            messages[0],
            {"role": "assistant", "content": previous_answer},
            {"role": "user", "content": _RETRY_PROMPT.format(why=why)},
        ]
    return LlmText("", why, cost)


async def _answer(
    chat: Chat, messages: Sequence[ChatMessage], *, max_tokens: int, timeout_s: float | None
) -> ModelAnswer:
    if isinstance(chat, AnsweringChat):
        return await chat.answer(messages, max_tokens=max_tokens, timeout_s=timeout_s)
    return ModelAnswer(text=await chat.complete(messages, max_tokens=max_tokens, timeout_s=timeout_s))


def clean_answer(text: str) -> str:
    """The text without secrets, and without what models put around it: a fence, a heading, quotation marks."""
    text = _FENCE.sub("", normalise_invisible(text).strip()).strip()
    text = _LABEL.sub("", text, count=1).strip()
    if len(text) > 1 and text[0] == text[-1] == '"' and '"' not in text[1:-1]:
        text = text[1:-1].strip()
    return redact(text).text


def _turn_row(turn: Turn) -> dict[str, object]:
    line: dict[str, object] = {"day": f"{turn.said_at:%Y-%m-%d %A}", "who": str(turn.role)}
    if turn.name:
        line["name"] = turn.name
    return {**line, "said": turn.content}
