"""Answers of any size: the JSON that the standard library writes, encoded in small steps and sent in pieces."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from recollect.http.large_json import SlicedJSONResponse
from tests.support.loop_time import assert_loop_runs

_LONG = '"é\\\n\x01' + "é" * 33_000 + '"\\'
_TEXTS = (_LONG, "\ud800", f"{_LONG}\ud800")
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
    | st.integers(0, 2).map(lambda number: _TEXTS[number]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


async def _send(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {}

    async def send(message: Any) -> None:
        sent.append(message)

    await SlicedJSONResponse(content)({"type": "http"}, receive, send)
    return sent


@given(st.dictionaries(st.text(), _values, max_size=4))
def test_an_answer_is_the_same_json(content: dict[str, Any]) -> None:
    start, *messages = asyncio.run(_send(content))
    body = b"".join(message["body"] for message in messages)
    assert json.loads(body) == content
    headers = dict(start["headers"])
    assert (headers[b"content-type"], headers[b"content-length"]) == (b"application/json", str(len(body)).encode())
    assert [message.get("more_body", False) for message in messages] == [True] * (len(messages) - 1) + [False]


def test_the_loop_runs_while_a_large_answer_is_encoded() -> None:
    results = [{"id": str(number), "memory": "password is " * 80_000} for number in range(30)]
    assert_loop_runs(lambda: _send({"results": results, "cursor": None}))
    assert_loop_runs(lambda: _send({"messages": [{"role": "user", "content": "I like tea. " * 2_000_000}]}))
