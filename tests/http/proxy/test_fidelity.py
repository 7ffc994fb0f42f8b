"""A chat is forwarded byte for byte, except for the inserted memories."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recollect.http.proxy.body import parse_body
from recollect.model.change import Author
from recollect.model.scope import Scope
from recollect.remember import MemoryInput
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.chat_bodies import Drawn, bodies
from tests.support.proxy_server import BUDGET, ServedProxy, chat, served

PLACES = ("before-question", "system", "question")
EXACT = json.JSONDecoder(parse_int=str, parse_float=str)
PRESETS = ("semantic-router", "react-mem", "session-service", "markdown-proxy", "three-tier")


def generated(count: int) -> settings:
    return settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)


@pytest.fixture(scope="module")
def recorder() -> Iterator[ScriptedLLM]:
    with ScriptedLLM() as llm:
        llm.default = "Aloha"
        yield llm


@pytest.fixture(scope="module")
def proxies(recorder: ScriptedLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ServedProxy]]:
    """A proxy for each place of the memories, with the same memory in each."""
    home: Path = tmp_path_factory.mktemp("places")
    running: dict[str, ServedProxy] = {}
    try:
        for place in PLACES:
            results = ServedProxy(home / place, recorder.base_url, context_place=place, search_min_score=0.0)
            running[place] = results.start()
            results.post(chat(BUDGET))
        yield running
    finally:
        for each in running.values():
            each.stop()


@pytest.fixture(scope="module", params=PRESETS)
def preset(
    request: pytest.FixtureRequest, recorder: ScriptedLLM, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServedProxy]:
    home = tmp_path_factory.mktemp("preset")
    with served(home, recorder.base_url, preset=request.param, search_min_score=0.0) as results:
        # Not by a chat: one preset recalls learned memories only, and there is no LLM here.
        results.run(results.service.add(Scope("default"), MemoryInput(content=BUDGET), by=Author("test")))
        yield results


@generated(100)
@given(place=st.sampled_from(PLACES), body=bodies())
def test_the_forwarded_body_differs_only_by_the_inserted_memories(
    proxies: dict[str, ServedProxy], recorder: ScriptedLLM, place: str, body: Drawn
) -> None:
    assert_only_memories_differ(proxies, recorder, place, body)


@pytest.mark.drill
@generated(2000)
@given(place=st.sampled_from(PLACES), body=bodies())
def test_of_thousands_of_forwarded_bodies_each_differs_only_by_the_inserted_memories(
    proxies: dict[str, ServedProxy], recorder: ScriptedLLM, place: str, body: Drawn
) -> None:
    assert_only_memories_differ(proxies, recorder, place, body)


def assert_only_memories_differ(
    proxies: dict[str, ServedProxy], recorder: ScriptedLLM, place: str, body: Drawn
) -> None:
    before, after = inserted(proxies[place], recorder, body)
    if place == "before-question":
        at = max(number for number, each in enumerate(before) if each["role"] == "user")
        assert after[:at] + after[at + 1 :] == before
        assert (list(after[at]), after[at]["role"]) == (["role", "content"], "user")


@generated(8)
@given(body=bodies())
def test_the_forwarded_body_differs_only_by_the_memories_under_every_preset(
    preset: ServedProxy, recorder: ScriptedLLM, body: Drawn
) -> None:
    inserted(preset, recorder, body)


@generated(40)
@given(body=bodies())
def test_a_body_without_memories_is_forwarded_unchanged(
    proxies: dict[str, ServedProxy], recorder: ScriptedLLM, body: Drawn
) -> None:
    got = forwarded(proxies["before-question"], recorder, body, "off")
    assert members(got) == list(body.preserved)
    assert body.has_ours or got.encode() == body.raw


@generated(40)
@given(body=bodies())
def test_unusual_text_is_stored(proxies: dict[str, ServedProxy], body: Drawn) -> None:
    answer = proxies["question"].post(body.raw, x_memory="write", x_memory_user="writer")
    assert (answer.status, answer.headers["x-memory-status"]) == (200, "ok")
    assert answer.headers["x-memory-turn"]


@pytest.mark.parametrize(
    "messages",
    [[], ["hello"], [{"role": "user", "content": 5}], [{"role": 5, "content": "x"}], [{"role": "user"}],
     [{"role": "user", "content": [5]}], [{"role": "user", "content": [{"type": "text", "text": 5}]}]],
)  # fmt: skip
def test_invalid_messages_are_left_to_the_upstream_and_not_learned(
    proxies: dict[str, ServedProxy], recorder: ScriptedLLM, messages: Any
) -> None:
    recorder.clear()
    raw = json.dumps({"model": "scripted", "messages": messages}).encode()
    answer = proxies["before-question"].post(raw, x_memory_user="nobody")
    assert (answer.status, "x-memory-turn" in answer.headers) == (200, False)
    assert answer.headers["x-memory-status"] in ("ok", "off")
    assert recorder.requests[0].body == raw


def test_the_text_of_a_message_with_an_invalid_part_is_stored(proxies: dict[str, ServedProxy]) -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "I like tea"}, 5]}
    answer = proxies["before-question"].post({"model": "scripted", "messages": [message]}, x_memory_user="odd")
    assert answer.headers["x-memory-status"] == "ok"
    assert proxies["before-question"].stored_turns("odd", 1)[0] == ("user", "I like tea")


@pytest.mark.parametrize("place", PLACES)
def test_a_number_too_long_for_python_is_forwarded(
    proxies: dict[str, ServedProxy], recorder: ScriptedLLM, place: str
) -> None:
    digits = "9" * 5000
    recorder.clear()
    raw = json.dumps(chat(seed=0, x=[0])).replace('"x": [0]', f'"x": [{digits}]').encode()
    answer = proxies[place].post(raw, x_memory="read")
    assert int(answer.headers["x-memory-hits"]) > 0
    assert digits.encode() in recorder.requests[0].body


def test_of_members_with_one_name_the_last_is_changed() -> None:
    body = asyncio.run(parse_body(b'{"messages": [{"role": "user", "content": "a", "content": "b\\u0062"}]}'))
    old = body.fields["messages"]
    changed = body.rewrite({"messages": [{**old[0], "content": "Before: " + old[0]["content"]}]})
    assert changed == b'{"messages": [{"role": "user", "content": "a", "content": "Before: b\\u0062"}]}'


def test_parts_that_parse_to_one_object_keep_their_own_bytes() -> None:
    body = asyncio.run(
        parse_body(b'{"messages": [{"role": "user", "content": ["a", "\\u0061", null, 1, 1, null, ""]}]}')
    )
    old = body.fields["messages"]
    changed = body.rewrite({"messages": [{**old[0], "content": ["new", *old[0]["content"]]}]})
    assert changed == body.text.replace('["a"', '["new", "a"').encode()


def inserted(proxy: ServedProxy, recorder: ScriptedLLM, body: Drawn) -> tuple[list[Any], list[Any]]:
    """Return the messages without and with the memories; fails if anything else differs."""
    got = forwarded(proxy, recorder, body, "read")
    were, are = list(body.preserved), members(got)
    assert len(are) == len(were)
    [at] = [number for number, (old, new) in enumerate(zip(were, are, strict=True)) if old != new]
    assert were[at].startswith('"messages"')
    if not body.has_ours:
        assert got.replace(are[at], were[at]).encode() == body.raw
    inserted_piece(were[at], are[at])
    return EXACT.decode(f"{{{were[at]}}}")["messages"], EXACT.decode(f"{{{are[at]}}}")["messages"]


def forwarded(proxy: ServedProxy, recorder: ScriptedLLM, body: Drawn, memory: str) -> str:
    recorder.clear()
    answer = proxy.post(body.raw, x_memory=memory)
    assert answer.status == 200, answer.body
    assert memory == "off" or int(answer.headers["x-memory-hits"]) > 0
    [request] = recorder.calls("chat")
    return request.body.decode()


def members(text: str) -> list[str]:
    """Return the members of an object as written."""
    decode = EXACT.raw_decode
    at, results = skipped(text, 0) + 1, list[str]()
    while text[at := skipped(text, at)] != "}":
        start = at = skipped(text, at + 1) if text[at] == "," else at
        at = skipped(text, decode(text, at)[1])
        assert text[at] == ":"
        at = decode(text, skipped(text, at + 1))[1]
        results.append(text[start:at])
    return results


def skipped(text: str, at: int) -> int:
    return at + len(text[at:]) - len(text[at:].lstrip(" \t\r\n"))


def inserted_piece(before: str, after: str) -> str:
    """Return the one piece by which the second text is longer; fails if they differ by more."""
    start = next((at for at, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), len(before))
    # A system message with null content has the memories as its content.
    before = before[:start] + before[start:].removeprefix("null")
    left = len(before) - start
    assert after.endswith(before[start:]), (before[start:], after[-left - 200 :])
    return after[start : len(after) - left]
