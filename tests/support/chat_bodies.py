"""Generated chat requests as text, with unusual numbers, whitespace and escapes, and unknown fields.

They are generated as text because printing values would make them uniform.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from hypothesis import strategies as st

from tests.support.proxy_server import QUESTION

SPACES = ["", "", "", " ", "\n", "\t", "\r\n", "  \n\t"]
# A placeholder for whitespace; drawing each of them would take most of the time.
GAP = "\ue000"
NUMBERS = st.sampled_from([
    "0", "-0", "-0.0", "1.0", "1.10", "1e-7", "1E5", "1E+05", "0.1000000000000000055511151231257827", "1e400",
    "-1.5e-300", "123456789012345678901234567890", "2e0",
])  # fmt: skip
LITERALS = st.sampled_from(["true", "false", "null"])
ESCAPED = st.sampled_from([
    "\\u0000", "\\ud800", "\\udc00x", "\\ud83d\\ude00", "\\/", "\\u0041", "\\u00e9", "\\n", "\\\\", '\\"', "\\b\\f",
    "\\u202e", "\\uFEFF", "</recalled-memories>", "{", "]", ",", "é", "日本", "🏝", "\x7f", "\u2028",
])  # fmt: skip
PLAIN = st.text(st.characters(codec="utf-8", exclude_characters='"\\\ue000', min_codepoint=32), max_size=8)
INSIDE = st.lists(ESCAPED | PLAIN, max_size=5).map("".join)
STRINGS = INSIDE.map('"{}"'.format)
# Names of unknown fields must not equal names that a parser knows.
NAMES = INSIDE.map('"x_{}"'.format)


def between(parts: Sequence[str], brackets: str = "[]") -> str:
    """Return the parts in brackets, with whitespace around them."""
    return brackets[0] + (",".join(GAP + part + GAP for part in parts) or GAP) + brackets[1]


def listed(elements: st.SearchStrategy[str], brackets: str = "[]") -> st.SearchStrategy[str]:
    return st.lists(elements, max_size=3).map(lambda parts: between(parts, brackets))


def member(names: st.SearchStrategy[str], values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(names, values).map(f"{GAP}:{GAP}".join)


VALUES = st.recursive(
    NUMBERS | LITERALS | STRINGS,
    lambda inner: listed(inner) | listed(member(STRINGS, inner), "{}"),
    max_leaves=6,
)
UNKNOWN = member(NAMES, VALUES)
PARTS = [
    '{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA","detail":"low"}}',
    '{"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}',
    '{ "type":"file" , "file":{"file_id":"file-1"} }',
    '{"type":"text","text":"A pict\\u0075re of the beach.","cache_control":{"type":"ephemeral"}}',
    '{"type":"refusal","refusal":"No."}',
]  # fmt: skip
CALL = '{"id":"call_1","type":"function","function":{"name":"look","arguments":"{\\"a\\": 1.0}"}}'
WHOLE = [
    '"temperature":1.0', '"top_p": 1e-7', '"n":2', '"logprobs":true', '"top_logprobs" :5',
    '"seed":12345678901234567890',
    '"stop":["\\n",null]', '"logit_bias":{"50256":-1E2}', '"user":"d\\u0065fault"', '"metadata":{"run":"1"}',
    '"tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object","x":-0}}}]',
    '"response_format": {"type":"json_schema","json_schema":{"name":"A","schema":{"const":1.00}}}',
    '"parallel_tool_calls":false', '"stream_options":null', '"modalities":["text","audio"]',
]  # fmt: skip
OURS = [
    '"memory_top_k":3', '"memory_score_threshold": 0.0', '"memory_recency_weight":1e-1', '"memory_hits":false',
    '"memory_config" : {"enabled":true,"retrieval_limit":4 }', '"memory_context":{"user_id":"default"}',
    '"m\\u0065mory_top_k": 3',
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Drawn:
    """A request, and the members that have to be forwarded."""

    raw: bytes
    preserved: tuple[str, ...]
    has_ours: bool


class Writer:
    """Writes a request from generated pieces in random order."""

    def __init__(self, chance: Random, unknown: Sequence[str], words: Sequence[str]) -> None:
        self.chance = chance
        self._unknown = unknown
        self._words = words

    def message(self, role: str, content: str, *more: str) -> str:
        """Return a message with its members in any order, and unknown ones."""
        parts = [f'"role":{GAP}"{role}"', f'"content"{GAP}:{content}', *more, *self.unknown(2)]
        return between(self.shuffled(parts), "{}")

    def content(self, text: str) -> str:
        """Return the text as a string, or as one of several parts."""
        words = f'"{self.chance.choice(self._words)} {text} {self.chance.choice(self._words)}"'
        if self.chance.random() < 0.5:
            return words
        part = between(['"type":"text"', f'"text":{words}', *self.unknown(1)], "{}")
        return between(self.shuffled([part, *self.chance.choices(PARTS, k=self.chance.randint(0, 2))]))

    def tool_use(self) -> list[str]:
        call = self.message("assistant", "null", f'"tool_calls":[{CALL}]')
        return [call, self.message("tool", self.content("12 degrees"), '"tool_call_id":"call_1"')]

    def exchange(self, *, with_tool: bool) -> list[str]:
        text = self.message("user", self.content("Aloha, I plan a trip."), '"name":"\\u0061nn"')
        answer = self.message("assistant", self.chance.choice(["null", self.content("Where to?")]), '"refusal":null')
        return [text, *(self.tool_use() if with_tool else []), answer]

    def unknown(self, most: int) -> list[str]:
        return self.chance.choices(self._unknown, k=self.chance.randint(0, most))

    def shuffled(self, parts: list[str]) -> list[str]:
        return self.chance.sample(parts, len(parts))

    def spaced(self, text: str) -> str:
        first, *rest = text.split(GAP)
        return first + "".join(self.chance.choice(SPACES) + each for each in rest)


@st.composite
def bodies(draw: st.DrawFn) -> Drawn:
    """Generate a request: prompts, earlier messages, the question, and perhaps the result of a tool."""
    unknown, words = draw(st.lists(UNKNOWN, min_size=1, max_size=4)), draw(st.lists(INSIDE, min_size=1, max_size=4))
    write = Writer(Random(draw(st.integers(0, 1 << 32))), unknown, words)
    messages = []
    for role in draw(st.lists(st.sampled_from(["system", "developer"]), max_size=2)):
        messages.append(write.message(role, write.chance.choice(["null", write.content("Be brief.")])))
    for with_tool in draw(st.lists(st.booleans(), max_size=2)):
        messages += write.exchange(with_tool=with_tool)
    messages.append(write.message("user", write.content(QUESTION)))
    messages += write.tool_use() if draw(st.booleans()) else []
    stored = ['"model": "scripted"', f'"messages"{GAP}:{GAP}{between(messages)}', *write.unknown(3)]
    stored += draw(st.lists(st.sampled_from(WHOLE), max_size=5, unique=True))
    stored = [write.spaced(each) for each in write.shuffled(stored)]
    parts = list(stored)
    ours = draw(st.just([]) | st.lists(st.sampled_from(OURS), max_size=3, unique=True))
    for each in ours:
        parts.insert(write.chance.randint(0, len(parts)), each)
    raw = write.spaced(GAP + between(parts, "{}") + GAP)
    return Drawn(raw.encode(), tuple(stored), bool(ours))
