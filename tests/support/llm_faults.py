"""Ways in which an OpenAI-compatible server or its model goes wrong, for the scripted LLM."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from recollect.testing.llm_replies import Cut, Fault, HttpAnswer, ScriptedReply, Step, error_body, to_json

ONLY_IN_REASONING = "only_in_reasoning"
HTML_PAGE = "<!DOCTYPE html><html><head><title>502</title></head><body><h1>Bad gateway</h1></body></html>\n"


def http_error(status: int, body: object = None, headers: Mapping[str, str] | None = None) -> Fault:
    """Answer with `status`; `body` is text or bytes as they are, anything else as JSON."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    body = error_body(f"scripted {status}", kind=kind) if body is None else body
    raw = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else to_json(body)
    answer = HttpAnswer.whole(raw, status=status).with_headers(headers or {})
    return Fault(f"http_error({status})", lambda _: answer)


def html_page(status: int = 200) -> Fault:
    """Answer with a web page, as a captive portal or a broken gateway does."""
    page = HttpAnswer.whole(HTML_PAGE.encode(), status=status, kind="text/html; charset=utf-8")
    return Fault("html_page", lambda _: page)


def no_body() -> Fault:
    """Answer 200 and nothing else."""
    return Fault("no_body", lambda _: HttpAnswer.whole(b""))


def truncated() -> Fault:
    """Send the first half of the body and end politely, so that only the JSON or the stream is broken."""

    def bend(answer: HttpAnswer) -> HttpAnswer:
        half = answer.body[: len(answer.body) // 2]
        return HttpAnswer.stream([half]) if answer.streamed else HttpAnswer.whole(half)

    return Fault("truncated", bend)


def content_type(kind: str) -> Fault:
    """Send the right body under another content type."""
    return Fault(f"content_type({kind})", lambda a: a.with_headers({"content-type": kind}), spoils=False)


def delay(seconds: float) -> Fault:
    """Wait before the first byte, status line included."""
    return Fault(f"delay({seconds})", lambda a: replace(a, steps=(seconds, *a.steps)), spoils=False)


def trickle(interval_s: float, size: int = 1) -> Fault:
    """Send `size` bytes of the body at a time, with a pause before each write but the first."""

    def bend(answer: HttpAnswer) -> HttpAnswer:
        slow: list[Step] = []
        for step in _rechunked(answer, size):
            slow += [interval_s, step] if slow else [step]
        return replace(answer, steps=tuple(slow))

    return Fault(f"trickle({interval_s}, {size})", bend, spoils=False)


def reset(*, after_bytes: int = 0, after_frames: int = 0) -> Fault:
    """Reset the connection before any byte, or after so many bytes of the body or frames of the stream."""
    return _cut_short(Cut.RESET, after_bytes, after_frames)


def hang(*, after_bytes: int = 0, after_frames: int = 0) -> Fault:
    """Fall silent, at once or part of the way, until the client goes away."""
    return _cut_short(Cut.HANG, after_bytes, after_frames)


def _cut_short(end: Cut, after_bytes: int, after_frames: int) -> Fault:
    def bend(answer: HttpAnswer) -> HttpAnswer:
        if after_frames:
            _need_stream(answer, f"{end.name.lower()}(after_frames=...)")
            return replace(answer, steps=(*answer.steps[:after_frames], end))
        return replace(answer, steps=(*_first_bytes(answer, after_bytes), end))

    return Fault(f"{end.name.lower()}({after_bytes or after_frames})", bend)


def _need_stream(answer: HttpAnswer, fault: str) -> None:
    if not answer.streamed:
        raise ValueError(f"{fault} bends a stream, and this answer is not streamed: ask with stream=true")


def _first_bytes(answer: HttpAnswer, count: int) -> tuple[Step, ...]:
    remaining: list[Step] = []
    for step in answer.steps:
        if count <= 0:
            break
        remaining.append(step[:count] if isinstance(step, bytes) else step)
        count -= len(step) if isinstance(step, bytes) else 0
    return tuple(remaining)


def _rechunked(answer: HttpAnswer, size: int) -> list[Step]:
    chunks: list[Step] = []
    for step in answer.steps:
        if isinstance(step, bytes):
            chunks += [step[at : at + size] for at in range(0, len(step), size)]
        else:
            chunks.append(step)
    return chunks


def _quirk(name: str, edit: Callable[[int, bytes], Sequence[bytes]], *, spoils: bool = False) -> Fault:
    """A fault of a stream: each frame, with its number, becomes the writes that `edit` gives for it."""

    def bend(answer: HttpAnswer) -> HttpAnswer:
        _need_stream(answer, name)
        steps: list[Step] = []
        frames = 0
        for step in answer.steps:
            steps += edit(frames, step) if isinstance(step, bytes) else [step]
            frames += isinstance(step, bytes)
        return replace(answer, steps=tuple(steps))

    return Fault(name, bend, spoils)


def stream_error(after_frames: int = 1, error: Mapping[str, Any] | None = None) -> Fault:
    """Report an error in the middle of the stream and end it there, without `[DONE]`."""
    frame = b"data: " + to_json(error or error_body("scripted error", kind="server_error")) + b"\n\n"
    late = {after_frames: (frame,)}
    return _quirk("stream_error", lambda n, f: (f,) if n < after_frames else late.get(n, ()), spoils=True)


def without_done() -> Fault:
    """Leave out the closing `[DONE]`."""
    return _quirk("without_done", lambda _, f: () if f.startswith(b"data: [DONE]") else (f,))


def sse_comments() -> Fault:
    """Put a comment before each frame, as gateways do to keep a connection open."""
    return _quirk("sse_comments", lambda _, f: (b": still working\n\n", f))


def sse_fields() -> Fault:
    """Give each frame the event, id and retry lines that SSE allows."""
    return _quirk("sse_fields", lambda n, f: (b"event: message\nid: %d\nretry: 3000\n" % n + f,))


def crlf() -> Fault:
    """End every line with CRLF."""
    return _quirk("crlf", lambda _, f: (f.replace(b"\n", b"\r\n"),))


def empty_choices() -> Fault:
    """Begin with a chunk that has no choices, as gateways with content filters do."""
    return _quirk("empty_choices", lambda n, f: (_edited(f, lambda c: {**c, "choices": []}), f)[n > 0 :])


def deltas_without_index() -> Fault:
    """Leave the index out of tool call deltas."""

    def edit(chunk: dict[str, Any]) -> dict[str, Any]:
        for call in (c for choice in chunk["choices"] for c in choice["delta"].get("tool_calls", ())):
            del call["index"]
        return chunk

    return _quirk("deltas_without_index", lambda _, f: (_edited(f, edit),))


def big_frame(size: int = 1 << 20) -> Fault:
    """Make the first frame larger than any buffer, by a field nobody knows."""
    padding = b'data: {"padding":"' + b"x" * size + b'",'
    return _quirk("big_frame", lambda n, f: (f if n else f.replace(b"data: {", padding, 1),))


def chunks_of(size: int = 1) -> Fault:
    """Send the body in writes of `size` bytes; of one by default. Comes after faults that edit frames."""
    return Fault(f"chunks_of({size})", lambda a: replace(a, steps=tuple(_rechunked(a, size))), spoils=False)


def split_utf8() -> Fault:
    """End a write in the middle of each frame's first character that has more than one byte."""

    def edit(_: int, frame: bytes) -> Sequence[bytes]:
        inside = next((at for at, byte in enumerate(frame) if byte & 0xC0 == 0x80), 0)
        return (frame[:inside], frame[inside:]) if inside else (frame,)

    return _quirk("split_utf8", edit)


def _edited(frame: bytes, edit: Callable[[dict[str, Any]], dict[str, Any]]) -> bytes:
    head, mark, data = frame.partition(b"data: ")
    return head + mark + to_json(edit(json.loads(data))) + b"\n\n" if data.startswith(b"{") else frame


def _facts(**changes: object) -> str:
    fact = {"id": 0, "content": "The budget for the Hawaii trip is $10,000", "importance": 0.8}
    return json.dumps({"facts": [{**fact, **changes}]})


MALFORMED_ANSWERS: dict[str, str] = {
    "empty": "",
    "null": "null",
    "fenced": f"Here it is:\n```json\n{_facts()}\n```\nShall I go on?",
    "prose_with_braces": f"I read {{both turns}} and {{weighed}} them. {_facts()} I hope {{this}} helps.",
    "cut_off": _facts()[:60],
    "nan": _facts(importance=math.nan),
    "duplicate_keys": '{"facts": [], ' + _facts()[1:],
    "lone_surrogate": _facts(content="Likes surfing \ud83c"),
    "ten_megabytes": _facts(content="x" * 10_000_000),
    "wrong_types": _facts(id="zero", content=7, importance="high"),
    "unknown_ids": _facts(id=987_654),
    "negative_ids": _facts(id=-1),
    "thousand_facts": json.dumps({"facts": [{"id": n, "content": f"Fact number {n}"} for n in range(1000)]}),
    "think_before_json": f"<think>They said {{something}} about a trip.</think>\n{_facts()}",
    ONLY_IN_REASONING: _facts(),
    "html_page": HTML_PAGE,
}


def malformed_reply(name: str) -> ScriptedReply:
    """The malformed answer of that name as a reply, in the place where such a model puts it."""
    text = MALFORMED_ANSWERS[name]
    return ScriptedReply(content="", reasoning=text) if name == ONLY_IN_REASONING else ScriptedReply(text)
