"""Put a talk to a model as data and get back a text that was judged; what it cost is told in any case."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from recollect.conversation.written import Cost
from recollect.errors import BrokenAnswer, InvalidInput, InvalidSettings, ModelUnavailable
from recollect.model.invisible import normalise_invisible
from recollect.model.turn import Turn
from recollect.models.chat import Answer, AnsweringChat, Chat, ChatMessage

# What small models with a context of 8,192 tokens can read, the answer included.
MAX_TALK_CHARS = 16_000
# However many turns there are, so much of each is shown; so there may not be too many.
LEAST_TURN_CHARS = 200
MAX_TURNS = 80
# Room for a model that thinks before it writes; one that still ran out gets so many times as much.
MAX_TOKENS = 1_024
MORE_TOKENS = 4

_MAX_REPEATED_CHARS = 2_000
_AGAIN = "That cannot be used: {why}. Write it once more, and nothing else."
_LABEL = re.compile(r"\A[#*_ ]{0,6}(?:updated |new )?summary(?:[*_ ]{0,4}:[*_ ]{0,4}|[*_ ]{0,4}\n)", re.IGNORECASE)
_FENCE = re.compile(r"\A```[a-z]{0,20}\n|\n```\Z")


@dataclass(frozen=True, slots=True)
class Told:
    """What a model wrote; `text` is empty if none of it was good enough, and `why` says what was wrong."""

    text: str
    why: str
    cost: Cost


def new_fence() -> str:
    """A line that nothing which was said can end: fresh, and never known to anyone before."""
    return f"=== {secrets.token_hex(16)} ==="


def shown(turns: Sequence[Turn]) -> list[Turn]:
    """The turns as a model is shown them: of long ones the beginning and the end."""
    share = max(LEAST_TURN_CHARS, MAX_TALK_CHARS // max(1, len(turns)))
    return [
        turn if len(turn.content) <= share else replace(turn, content=shortened(turn.content, share))
        for turn in turns
    ]


def talk_lines(turns: Sequence[Turn]) -> str:
    """The turns as a line of JSON each."""
    return "\n".join(json_line(_plain(turn)) for turn in shown(turns))


def json_line(values: Mapping[str, object]) -> str:
    """One line of JSON, readable in every language."""
    return json.dumps(values, ensure_ascii=False)


def shortened(text: str, chars: int) -> str:
    """The beginning and the end of a long text: what matters is rarely in the middle."""
    if len(text) <= chars:
        return text
    half = max(1, chars // 2 - 2)
    return f"{text[:half]} […] {text[-half:]}"


def spread(turns: Sequence[Turn]) -> Sequence[Turn]:
    """As many turns as a model is shown: of too many the first quarter and the last three."""
    quarter = MAX_TURNS // 4
    return turns if len(turns) <= MAX_TURNS else [*turns[:quarter], *turns[-(MAX_TURNS - quarter) :]]


async def ask_text(chat: Chat, question: str, *, judge: Callable[[str], str], timeout_s: float | None) -> Told:
    """What the model writes, after at most one corrective question; an empty text if nothing of it was good enough.

    `judge` says what is wrong with a text, or nothing. A model that cannot be reached is a ModelUnavailable.
    """
    asked: list[ChatMessage] = [{"role": "user", "content": question}]
    cost, why, tokens = Cost(model=chat.model), "", MAX_TOKENS
    for attempt in range(2):
        try:
            answer = await _answer(chat, asked, max_tokens=tokens, timeout_s=timeout_s)
        except BrokenAnswer as error:
            cost += Cost(error.calls, error.tokens_in, error.tokens_out)
            answer = Answer(text="", cut_off=error.cut_off)
        except InvalidSettings:
            raise
        except InvalidInput as error:
            # The server will not read this, now or ever: asking again cannot help, doing without can.
            return Told("", f"the model refuses what it is asked: {error}", cost)
        except ModelUnavailable:
            if not attempt:
                raise
            break
        else:
            cost += Cost(1, answer.tokens_in, answer.tokens_out)
        text = tidied(answer.text)
        why = "it was cut off" if answer.cut_off else judge(text)
        if not why:
            return Told(text, "", cost)
        tokens = MAX_TOKENS * MORE_TOKENS if answer.cut_off else MAX_TOKENS
        said = answer.text[:_MAX_REPEATED_CHARS].strip() or "(no answer)"
        asked = [
            asked[0],
            {"role": "assistant", "content": said},
            {"role": "user", "content": _AGAIN.format(why=why)},
        ]
    return Told("", why, cost)


async def _answer(chat: Chat, asked: Sequence[ChatMessage], *, max_tokens: int, timeout_s: float | None) -> Answer:
    if isinstance(chat, AnsweringChat):
        return await chat.answer(asked, max_tokens=max_tokens, timeout_s=timeout_s)
    return Answer(text=await chat.complete(asked, max_tokens=max_tokens, timeout_s=timeout_s))


def tidied(text: str) -> str:
    """The text without what models put around it: a fence, a heading, quotation marks."""
    text = _FENCE.sub("", normalise_invisible(text).strip()).strip()
    text = _LABEL.sub("", text, count=1).strip()
    if len(text) > 1 and text[0] == text[-1] == '"' and '"' not in text[1:-1]:
        text = text[1:-1].strip()
    return text


def _plain(turn: Turn) -> dict[str, object]:
    line: dict[str, object] = {"day": f"{turn.said_at:%Y-%m-%d %A}", "who": str(turn.role)}
    if turn.name:
        line["name"] = turn.name
    return {**line, "said": turn.content}
