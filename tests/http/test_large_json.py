"""Large JSON bodies: parsed as the standard library parses them, in small steps, and within a limit of values."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.errors import InvalidInput
from recollect.http.large_json import MAX_LEVELS, MAX_VALUES, SMALL_CHARS, parse_json
from recollect.http.proxy.body import parse_body
from tests.support.loop_time import assert_loop_runs

_LONG = "x" * (SMALL_CHARS + 7)
_MEBIBYTE = 1 << 20
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.just(_LONG),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(_values, st.booleans(), st.sampled_from([None, 1]))
def test_a_large_body_has_the_value_that_the_standard_library_reads(
    value: object, is_ascii: bool, indent: int | None
) -> None:
    text = json.dumps({"long": _LONG, "value": value}, ensure_ascii=is_ascii, indent=indent)
    assert asyncio.run(parse_json(text.encode("utf-8", "surrogatepass" if is_ascii else "replace"))) == json.loads(
        text.encode("utf-8", "surrogatepass" if is_ascii else "replace")
    )


@pytest.mark.parametrize(
    "unit", ["\\n", "\\u0041", "\\ud83d\\ude00", "\\\\", '\\"', "é", "\\\\ud83d", "a\\\\\\ud83d\\ude00"]
)
@pytest.mark.parametrize("shift", range(3))
def test_strings_are_cut_between_escapes_only(unit: str, shift: int) -> None:
    text = '{"t": "' + "x" * shift + unit * SMALL_CHARS + '"}'
    assert asyncio.run(parse_json(text.encode())) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "%s" "b": 1}', '{"a": "%s",}', '{"a": "%s"', '{"a": "%s', '{"a": "%s"}}', '{"a": ["%s"}',
        '{"a": "%s"]',
        '{"a": "%s", b: 1}', '{"a": "%s", "b": tru}', '{"a": ["%s", ]}', '["%s"] []', '{"a": "%s\\', '{"a": "%s\\x"}',
        '{"a": "%s\n"}', '{"a" "%s"}', '{,"a": "%s"}', '{"a": %s}', '{"a": "%s", "b": %s}',
    ],
)  # fmt: skip
def test_a_large_body_that_is_not_json_is_rejected(text: str) -> None:
    raw = text.replace("%s", _LONG)
    with pytest.raises(json.JSONDecodeError):
        json.loads(raw)
    with pytest.raises(InvalidInput, match="the body is not JSON"):
        asyncio.run(parse_json(raw.encode()))


@pytest.mark.parametrize("inner", ["1", '"]}"', f'"{_LONG}"'])
@pytest.mark.parametrize("opening", ["[", '{"a[": '])
def test_a_body_may_have_as_many_levels_as_the_limit(opening: str, inner: str) -> None:
    def nested(levels: int) -> bytes:
        return b'{"x": %b}' % (opening * levels + inner + ("]" if opening == "[" else "}") * levels).encode()

    most = nested(MAX_LEVELS - 1)
    assert asyncio.run(parse_json(most)) == json.loads(most)
    assert asyncio.run(parse_body(most)).text == most.decode()
    for parse in (parse_json, parse_body):
        with pytest.raises(InvalidInput, match=f"at most {MAX_LEVELS} levels"):
            asyncio.run(parse(nested(MAX_LEVELS)))


def test_a_body_nested_10_000_deep_is_rejected() -> None:
    for text in ("[" * 10_000 + "]" * 10_000, "[" * 100_000 + f'"{_LONG}"' + "]" * 100_000, '{"a":' * 20_000 + "1"):
        with pytest.raises(InvalidInput):
            asyncio.run(parse_json(text.encode()))
        with pytest.raises(InvalidInput):
            asyncio.run(parse_body(b'{"x": %b}' % text.encode()))


@pytest.mark.parametrize("unit", ["[],", "1,", '{"a":1},', '"",'])
def test_more_values_than_the_limit_are_rejected_before_they_are_built(unit: str) -> None:
    raw = b'{"a": [' + unit.encode() * (3 * MAX_VALUES) + b"1]}"
    with pytest.raises(InvalidInput, match=f"more than {MAX_VALUES:,} JSON values"):
        asyncio.run(parse_json(raw))


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a": "%b"}' % (b"a" * 31 * _MEBIBYTE),
        b'{"a": "%b"}' % (b"\\n" * 15 * _MEBIBYTE),
        b'{"a": [%b1]}' % (b"1," * 150_000),
        b'{"a": [%b1]}' % (b'{"a":[]},' * 60_000),
        b"{%b}" % b",".join(b'"a%d":1' % n for n in range(150_000)),
    ],
    ids=["long text", "escapes", "numbers", "objects", "members"],
)
def test_the_loop_runs_while_a_large_body_is_parsed(raw: bytes) -> None:
    assert_loop_runs(lambda: parse_body(raw))


def test_a_rewritten_large_body_keeps_all_other_bytes() -> None:
    raw = f'{{"model" : "m", "messages":[{{"role":"user","content":"\\u0041{_LONG}"}} , {{"n":1e-7}}]}}'.encode()
    body = asyncio.run(parse_body(raw))
    messages = body.fields["messages"]
    inserted = body.rewrite({"messages": [{"role": "user", "content": "new"}, *messages]})
    assert inserted == raw.replace(b"[{", b'[{"role": "user", "content": "new"}, {', 1)
    grown = body.rewrite({"messages": [{**messages[0], "content": "new " + messages[0]["content"]}, messages[1]]})
    assert grown == raw.replace(b'"\\u0041', b'"new \\u0041')
