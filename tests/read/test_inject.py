"""A block goes into the messages at its place, and nothing else changes."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.config.settings import Settings
from recollect.model.messages import new_fence, strip_injected
from recollect.read.inject import inject
from tests.support.linear_time import assert_linear

NOW = datetime(2026, 5, 9, tzinfo=UTC)
BLOCK = "User's context:\n- likes tea"
ADDED = {"role": "user", "content": BLOCK}
SYSTEM = {"role": "system", "content": "Be kind."}
DEVELOPER = {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}
QUESTION_MESSAGE = {"role": "user", "content": "What do I like?", "name": "alex"}
ANSWERED = {"role": "assistant", "content": "Hello!"}
CALLED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "4"}
IMAGE = {"type": "image_url", "image_url": {"url": "https://a.example/cat.png"}}


def block(*lines: str) -> str:
    head, foot = new_fence(NOW)
    return head + "\n".join(lines or ['{"date": "2026-05-07", "kind": "fact", "text": "likes tea"}']) + foot


BEFORE_QUESTION = {
    "a question": ([QUESTION_MESSAGE], [ADDED, QUESTION_MESSAGE]),
    "after the system message": ([SYSTEM, QUESTION_MESSAGE], [SYSTEM, ADDED, QUESTION_MESSAGE]),
    "in a conversation": (
        [SYSTEM, QUESTION_MESSAGE, ANSWERED, QUESTION_MESSAGE],
        [SYSTEM, QUESTION_MESSAGE, ANSWERED, ADDED, QUESTION_MESSAGE],
    ),
    "a tool result comes last": (
        [SYSTEM, QUESTION_MESSAGE, CALLED, RESULT],
        [SYSTEM, ADDED, QUESTION_MESSAGE, CALLED, RESULT],
    ),
    "a question after tool results": (
        [QUESTION_MESSAGE, CALLED, RESULT, QUESTION_MESSAGE],
        [QUESTION_MESSAGE, CALLED, RESULT, ADDED, QUESTION_MESSAGE],
    ),
    "the user breaks into a call": (
        [QUESTION_MESSAGE, CALLED, QUESTION_MESSAGE, RESULT],
        [QUESTION_MESSAGE, ADDED, CALLED, QUESTION_MESSAGE, RESULT],
    ),
    "two results, one late": (
        [CALLED, RESULT, QUESTION_MESSAGE, RESULT, ANSWERED],
        [ADDED, CALLED, RESULT, QUESTION_MESSAGE, RESULT, ANSWERED],
    ),
    "call ids are used again": (
        [QUESTION_MESSAGE, CALLED, RESULT, QUESTION_MESSAGE, CALLED, RESULT],
        [QUESTION_MESSAGE, CALLED, RESULT, ADDED, QUESTION_MESSAGE, CALLED, RESULT],
    ),
    "the answer is begun": ([QUESTION_MESSAGE, ANSWERED], [ADDED, QUESTION_MESSAGE, ANSWERED]),
    "nobody asks": ([SYSTEM, DEVELOPER, ANSWERED], [SYSTEM, DEVELOPER, ADDED, ANSWERED]),
    "only a system message": ([SYSTEM], [SYSTEM, ADDED]),
    "no messages": ([], []),
}


@pytest.mark.parametrize(("given", "expected"), BEFORE_QUESTION.values(), ids=BEFORE_QUESTION)
def test_the_block_is_a_user_message_before_the_last_question(given: list[Any], expected: list[Any]) -> None:
    assert inject(given, BLOCK) == expected


SYSTEM_PLACE = {
    "text": ([SYSTEM, QUESTION_MESSAGE], [{"role": "system", "content": f"Be kind.\n\n{BLOCK}"}, QUESTION_MESSAGE]),
    "parts": (
        [DEVELOPER, QUESTION_MESSAGE],
        [
            {
                "role": "developer",
                "content": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": BLOCK}],
            },
            QUESTION_MESSAGE,
        ],
    ),
    "nothing said": (
        [{"role": "system", "content": None}, QUESTION_MESSAGE],
        [{"role": "system", "content": BLOCK}, QUESTION_MESSAGE],
    ),
    "empty": (
        [{"role": "system", "content": ""}, QUESTION_MESSAGE],
        [{"role": "system", "content": BLOCK}, QUESTION_MESSAGE],
    ),
    "the last of the first": (
        [SYSTEM, {"role": "developer", "content": "x"}, QUESTION_MESSAGE],
        [SYSTEM, {"role": "developer", "content": f"x\n\n{BLOCK}"}, QUESTION_MESSAGE],
    ),
    "none": ([QUESTION_MESSAGE], [{"role": "system", "content": BLOCK}, QUESTION_MESSAGE]),
    "only later": ([QUESTION_MESSAGE, SYSTEM], [{"role": "system", "content": BLOCK}, QUESTION_MESSAGE, SYSTEM]),
    "strange content": (
        [{"role": "system", "content": 5}],
        [{"role": "system", "content": 5}, {"role": "system", "content": BLOCK}],
    ),
}


@pytest.mark.parametrize(("given", "expected"), SYSTEM_PLACE.values(), ids=SYSTEM_PLACE)
def test_the_block_can_go_to_the_end_of_the_system_message(given: list[Any], expected: list[Any]) -> None:
    assert inject(given, BLOCK, place="system") == expected


def test_the_markdown_proxy_document_rewrites_the_last_user_message() -> None:
    memories = "Long-term memory (most relevant first):\n[user] I like tea"
    assert inject([SYSTEM, QUESTION_MESSAGE, ANSWERED, QUESTION_MESSAGE], memories, place="question") == [
        SYSTEM,
        QUESTION_MESSAGE,
        ANSWERED,
        {
            "role": "user",
            "content": f"{memories}\n\nCurrent message: What do I like?",
            "name": "alex",
        },
    ]


QUESTION_PLACE = {
    "parts": ([IMAGE], [{"type": "text", "text": f"{BLOCK}\n\nCurrent message:"}, IMAGE]),
    "parts of the other API": (
        [{"type": "input_text", "text": "hi"}],
        [{"type": "input_text", "text": f"{BLOCK}\n\nCurrent message:"}, {"type": "input_text", "text": "hi"}],
    ),
    "nothing said": (None, BLOCK),
    "empty": ("", f"{BLOCK}\n\nCurrent message: "),
}


@pytest.mark.parametrize(("content", "expected"), QUESTION_PLACE.values(), ids=QUESTION_PLACE)
def test_a_question_of_any_shape_can_be_rewritten(content: Any, expected: Any) -> None:
    assert inject([{"role": "user", "content": content}, RESULT], BLOCK, place="question") == [
        {"role": "user", "content": expected},
        RESULT,
    ]


@pytest.mark.parametrize("given", [[SYSTEM, ANSWERED], [SYSTEM, {"role": "user", "content": 5}, ANSWERED]])
def test_where_no_question_can_be_rewritten_the_block_is_a_message_of_its_own(given: list[Any]) -> None:
    assert inject(given, BLOCK, place="question") == [SYSTEM, ADDED, *given[1:]]


def test_the_settings_know_every_place_and_no_other() -> None:
    places = Settings.model_fields["context_place"].annotation.__args__
    for place in places:
        assert len(inject([SYSTEM, QUESTION_MESSAGE], BLOCK, place=place)) in (2, 3)
    with pytest.raises(AssertionError):
        inject([QUESTION_MESSAGE], BLOCK, place="elsewhere")  # type: ignore[arg-type]


@pytest.mark.parametrize("empty", ["", " \n"])
def test_without_a_block_nothing_changes(empty: str) -> None:
    inputs = [SYSTEM, QUESTION_MESSAGE]
    assert inject(inputs, empty) == inputs


def test_what_is_no_message_is_passed_on_for_the_upstream_to_refuse() -> None:
    inputs: list[Any] = ["hello", None, {"role": 5}, {}, QUESTION_MESSAGE]
    assert inject(inputs, BLOCK) == [*inputs[:4], ADDED, QUESTION_MESSAGE]
    assert inject(inputs[:4], BLOCK) == [ADDED, *inputs[:4]]
    assert inject([MappingProxyType(QUESTION_MESSAGE)], BLOCK, place="question")[0]["content"].endswith(
        "What do I like?"
    )


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
EXTRAS = st.dictionaries(
    st.text(min_size=1, max_size=6), st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3)), max_size=3
)
PARTS = st.lists(
    st.sampled_from([IMAGE, {"type": "text", "text": "hi"}, {"type": "file", "file": {"file_id": "f"}}]), max_size=3
)


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Well-formed messages: every tool call is followed by all its results."""
    messages: list[dict[str, Any]] = []
    for role in draw(st.lists(st.sampled_from(["system", "developer", "user", "assistant", "tools"]), max_size=10)):
        content = draw(st.none() | st.text(max_size=12) | PARTS)
        if role != "tools":
            messages.append({**draw(EXTRAS), "role": role, "content": content})
            continue
        ids = [f"call_{at}" for at in range(draw(st.integers(1, 3)))]
        messages.append({"role": "assistant", "content": content, "tool_calls": [{"id": each} for each in ids]})
        messages += [{"role": "tool", "tool_call_id": each, "content": "4"} for each in ids]
    return messages


@given(messages=conversations(), place=st.sampled_from(["before-question", "system", "question"]))
def test_nothing_but_the_block_is_added_or_changed(messages: list[dict[str, Any]], place: Any) -> None:
    before = copy.deepcopy(messages)
    after = inject(messages, BLOCK, place=place)
    assert messages == before
    assert json.dumps(messages) == json.dumps(before)
    if not messages:
        assert after == []
        return
    own = [message for message in after if not any(message is each for each in messages)]
    assert len(own) == 1
    [message] = own
    rest = [each for each in after if each is not message]
    if len(after) == len(messages):
        [replaced] = [each for each in messages if not any(each is other for other in after)]
        assert list(message) == list(replaced)
        assert {**message, "content": 0} == {**replaced, "content": 0}
        assert [each is message or each for each in after] == [each is replaced or each for each in messages]
        if isinstance(replaced["content"], list):
            assert all(any(part is each for each in message["content"]) for part in replaced["content"])
    else:
        assert len(after) == len(messages) + 1
        assert all(one is two for one, two in zip(rest, messages, strict=True))
        assert message == {"role": "system" if place == "system" else "user", "content": BLOCK}
    if place != "system":
        at = next(at for at, each in enumerate(after) if each is message)
        assert at == 0 or not after[at - 1].get("tool_calls")
        assert at + 1 == len(after) or after[at + 1]["role"] != "tool"


@given(conversations())
def test_the_prefix_up_to_the_last_question_stays_as_it_was(messages: list[dict[str, Any]]) -> None:
    requests = [at for at, message in enumerate(messages) if message["role"] == "user"]
    if requests:
        after = inject(messages, BLOCK)
        assert after[: requests[-1]] == messages[: requests[-1]]
        assert after[requests[-1]] == ADDED
        assert after[requests[-1] + 1 :] == messages[requests[-1] :]


@pytest.mark.parametrize("place", ["before-question", "system", "question"])
@pytest.mark.parametrize("content", ["What do I like?", "two\n\nlines", ""])
def test_what_was_injected_is_known_again_and_left_out(place: Any, content: str) -> None:
    inputs = [SYSTEM, {"role": "user", "content": content}]
    after = inject(inputs, block(), place=place)
    left = [strip_injected(str(message["content"])) for message in after]
    assert [text for text in left if text] == ["Be kind.", *filter(None, [content])]


PLACES = ["before-question", "system", "question"]
MULTIPART_QUESTION = {"role": "user", "content": [{"type": "text", "text": "And tea?"}, IMAGE]}


@pytest.mark.parametrize("second", PLACES)
@pytest.mark.parametrize("first", PLACES)
@pytest.mark.parametrize("asked", [QUESTION_MESSAGE, MULTIPART_QUESTION], ids=["text", "parts"])
@pytest.mark.parametrize("told", [SYSTEM, DEVELOPER], ids=["text", "parts"])
def test_messages_that_are_handed_back_hold_one_block_the_newest(
    told: dict[str, Any], asked: dict[str, Any], first: Any, second: Any
) -> None:
    older, newer = block(), block()
    once = inject([told, asked], older, place=first)
    before = copy.deepcopy(once)
    repeated = inject([*once, ANSWERED, QUESTION_MESSAGE], newer, place=second)
    assert repeated == inject([told, asked, ANSWERED, QUESTION_MESSAGE], newer, place=second)
    assert json.dumps(repeated).count("</recalled-memories ") == 1
    assert once == before


def test_a_block_that_is_injected_twice_is_there_once() -> None:
    once = inject([SYSTEM, QUESTION_MESSAGE], block())
    assert len(inject(once, block())) == 3
    assert inject([{"role": "user", "content": block()}], newer := block()) == [{"role": "user", "content": newer}]


@pytest.mark.parametrize("place", PLACES)
def test_an_image_that_shares_a_message_with_an_older_block_stays(place: Any) -> None:
    visible = {"role": "user", "content": [IMAGE]}
    once = inject([visible], block(), place="question")
    assert inject(once, newer := block(), place=place) == inject([visible], newer, place=place)


def test_what_others_say_of_a_block_stays() -> None:
    quoted = {"role": "assistant", "content": f"You said:\n{block()}"}
    result = {"role": "tool", "tool_call_id": "call_1", "content": block()}
    after = inject([QUESTION_MESSAGE, CALLED, result, quoted, QUESTION_MESSAGE], block())
    assert after[2] is result
    assert after[3] is quoted


STRIPPED = {
    "none": ("just\ntext\n", "just\ntext\n"),
    "the name alone": ("I read <recalled-memories> today\n", "I read <recalled-memories> today\n"),
    "quoted in an answer": (f"You said:\n{block()}\nand more", "You said:\nand more"),
    "Windows line ends": (block().replace("\n", "\r\n") + "\r\nhi", "hi"),
    "cut off": ("\n".join(block().split("\n")[:3]) + "\nhi", "hi"),
    "two": (f"{block()}\nhi\n{block()}", "hi"),
    "escaped by a client": (block().replace("<", "&lt;").replace(">", "&gt;") + "\nhi", "hi"),
    "twice the same": ((same := block()) + "\nhi\n" + same, "hi"),
}


@pytest.mark.parametrize(("text", "left"), STRIPPED.values(), ids=STRIPPED)
def test_blocks_are_taken_out_of_a_text(text: str, left: str) -> None:
    assert strip_injected(text) == left


@given(st.text(max_size=200))
def test_a_text_without_a_block_comes_back_as_it_is(text: str) -> None:
    assert strip_injected(text) == text


def test_taking_blocks_out_takes_time_in_proportion_to_the_text() -> None:
    opening = "<recalled-memories " + "1" * 32 + ">\n"
    nonce = "0" * 32
    for unit in (f"<recalled-memories {nonce}>\n", f"</recalled-memories {nonce}>\n", '{"\n', "recalled-memories\n"):
        assert_linear(lambda text: strip_injected(opening + text), unit)
