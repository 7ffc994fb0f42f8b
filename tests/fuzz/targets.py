"""A fuzz target for each parser of untrusted bytes.

A target raises if the parser raises anything but its documented refusal, or breaks a property: the same result
however bytes arrive, a round trip, a limit.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from recollect.config.settings import Settings
from recollect.errors import InvalidInput, RecollectError, Unauthenticated
from recollect.http.auth.address import client_network, is_within, parse_networks
from recollect.http.auth.middleware import read_credentials, strip_own_keys
from recollect.http.auth.tokens import TokenVerifier
from recollect.http.compat.mem0_filters import entity_names, filter_for
from recollect.http.proxy.asgi_io import headers_by_name
from recollect.http.proxy.body import parse_body
from recollect.http.proxy.memory_options import parse_memory_options
from recollect.http.proxy.sse import SseReader, StreamRecorder, decode_object
from recollect.http.responses.from_chat import ResponseTranslator
from recollect.http.responses.items import new_response
from recollect.http.responses.request import parse_response_params
from recollect.http.responses.to_chat import check_translatable, to_chat, to_messages
from recollect.ledger.codec import parse_cursor
from recollect.mirror.document import parse_document
from recollect.mirror.layout import parse_location
from recollect.model.change import Author
from recollect.model.query import parse_filter
from recollect.model.scope import Scope
from recollect.models.loose_json import parse_json_values
from recollect.models.openai_chat import parse_tool_requests
from recollect.models.structured import parse_json_lines
from recollect.testing.fake_embedder import FakeEmbedder
from recollect.text.front_matter import join_front_matter, split_front_matter
from recollect.transfer.import_ import RecordWriter, parse_record
from recollect.transfer.importers.items import IMPORTERS, ImportOptions
from recollect.transfer.importers.run import run_import
from recollect.transfer.importers.source import ImportSource
from recollect.write.parse import parse_messages
from recollect.write.redact import Redactor
from recollect.write.spill_file import read_spilled_lines
from recollect.write.write_quota import WriteQuota

Target = Callable[[bytes], None]
_AT = datetime(2026, 1, 1, tzinfo=UTC)
# A recorded answer is no longer than this.
_MAX_ANSWER_CHARS = 1 << 20
_SETTINGS = Settings()
_loop = asyncio.new_event_loop()


def _run(work: Any) -> Any:
    """Return the result of a call, whether or not it is a coroutine."""
    return _loop.run_until_complete(work) if isinstance(work, Coroutine) else work


def _json(data: bytes) -> Any:
    """Return the JSON value of some bytes, as a framework passes it to a parser; None if they are none."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def chat_body(data: bytes) -> None:
    """A chat's body: every byte that was not changed stays, and both forms of the parser agree."""
    try:
        body = _run(parse_body(data))
    except InvalidInput:
        return
    assert body.rewrite({}) == data
    changed = _run(parse_body(body.rewrite({"added": [1]}, without=["model"])))
    expected = {name: value for name, value in body.fields.items() if name != "model"} | {"added": [1]}
    assert repr(changed.fields) == repr(expected)
    try:
        assert repr(_run(parse_body(data, strict=True)).fields) == repr(body.fields)
    except InvalidInput:
        pass


def chat_options(data: bytes) -> None:
    """The options of memory in a chat's body, and its messages."""
    try:
        fields = _run(parse_body(data)).fields
        parse_memory_options(fields, {}, _SETTINGS)
        turns = parse_messages(Scope("user"), fields.get("messages"))
    except RecollectError:
        return
    for turn in turns:
        turn.content.encode()


def chat_headers(data: bytes) -> None:
    """Headers of a request: credentials, and the options of memory."""
    headers = [(name.lower(), value) for name, _, value in (line.partition(b":") for line in data.split(b"\n"))]
    credentials = read_credentials(headers, user_header=b"x-user", project_header=b"x-project")
    remaining = strip_own_keys(headers)
    assert not read_credentials(remaining, user_header=b"x-user", project_header=b"x-project").key
    client_network(credentials.forwarded)
    is_within(credentials.forwarded, parse_networks("10.0.0.0/8, ::1"))
    try:
        parse_memory_options({}, headers_by_name(headers), _SETTINGS)
    except RecollectError:
        pass


def json_web_token(data: bytes) -> None:
    """A token that nobody signed is never accepted."""
    try:
        caller = _run(_verifier().verify(data.decode("latin-1")))
    except Unauthenticated:
        return
    raise AssertionError(f"accepted as {caller}")


@cache
def _verifier() -> TokenVerifier:
    """Return a verifier with a real key, fetched from a server; its clock stands still, so it fetches once."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            public = base64.urlsafe_b64encode(bytes(31) + b"\1").decode().rstrip("=")
            self.send_response(200)
            self.end_headers()
            self.wfile.write(
                json.dumps({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": public, "kid": "k"}]}).encode()
            )

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/keys"
    return TokenVerifier(url, issuer="i", audience="a", project_claim="org", clock=lambda: 0.0)


def upstream_stream(data: bytes) -> None:
    """A stream of an upstream: the same events and text, however it is cut into pieces."""
    size = 1 + data[0] % 7 if data else 1
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    whole, reader = SseReader(), SseReader()
    events = whole.feed(data) + whole.end()
    assert events == [
        event for piece in [*pieces, None] for event in (reader.end() if piece is None else reader.feed(piece))
    ]
    assert sum(map(len, events)) <= len(data)
    texts = []
    for parts in ([data], pieces):
        recorder = StreamRecorder(streamed=True)
        for part in parts:
            _run(recorder.feed(part))
        texts.append(_run(recorder.text()))
    assert texts[0] == texts[1]
    assert len(texts[0]) <= _MAX_ANSWER_CHARS


def upstream_answer(data: bytes) -> None:
    """An answer of an upstream that is not streamed, and the tools that it calls."""
    recorder = StreamRecorder(streamed=False)
    _run(recorder.feed(data))
    assert len(_run(recorder.text())) <= _MAX_ANSWER_CHARS
    if (answer := decode_object(data)) is not None:
        try:
            parse_tool_requests(answer)
        except (ValueError, TypeError, LookupError, AttributeError):
            # Its caller takes these for an answer without a message.
            pass


def compressed_answer(data: bytes) -> None:
    """A compressed answer of an upstream."""
    encoding = "gzip" if data[:1] == b"\x1f" else "deflate"
    for streamed in (True, False):
        recorder = StreamRecorder(streamed=streamed, encoding=encoding)
        for at in range(0, len(data), 1000):
            _run(recorder.feed(data[at : at + 1000]))
        assert len(_run(recorder.text())) <= _MAX_ANSWER_CHARS


def translated_stream(data: bytes) -> None:
    """A chat's stream, translated to events of the Responses API, which end once and can be encoded."""
    params = _run(parse_response_params(b'{"model": "m", "input": "hello"}'))
    translator = ResponseTranslator(new_response(params, id="resp_1", created_at=0))
    reader, events = SseReader(), translator.begin()
    for event in reader.feed(data) + reader.end():
        if (chunk := decode_object(event)) is not None:
            events += translator.feed(chunk)
    events += translator.end()
    assert translator.is_finished
    assert translator.end() == []
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert sum(event["type"] in _LAST_EVENTS for event in events) == 1
    json.dumps(events)


_LAST_EVENTS = ("response.completed", "response.incomplete", "response.failed")


def response_body(data: bytes) -> None:
    """The body of a request for a response, translated to a chat."""
    try:
        params = _run(parse_response_params(data))
        check_translatable(params.items)
        chat = to_chat(params.fields, [each.message for each in to_messages(params.items)])
        parse_messages(Scope("user"), chat["messages"])
    except RecollectError:
        return
    json.dumps(chat)


def model_json(data: bytes) -> None:
    """JSON as models write it: never an error, and values that can be stored."""
    text = data.decode(errors="replace")
    for parsed in parse_json_values(text):
        json.dumps(parsed.value, allow_nan=False).encode()
    parse_json_lines(text)


def front_matter(data: bytes) -> None:
    """Front matter: what was read is read again from what is written, except that line ends may change."""
    try:
        fields, body = split_front_matter(data.decode(errors="replace"))
        again = split_front_matter(join_front_matter(fields, body))
    except InvalidInput:
        return
    assert repr(again) == repr((fields, body)) or "\r" in body


def mirror_file(data: bytes) -> None:
    """A file of a mirror, and the memory in it."""
    location = parse_location("entries/talk/facts/2026.md")
    assert location is not None
    try:
        document = parse_document(data.decode(errors="replace"), location, user="user", at=_AT)
        parse_record(document.line, user="user")
    except InvalidInput:
        pass


def mirror_path(data: bytes) -> None:
    """A path in a mirror never leaves its folder."""
    location = parse_location(data.decode(errors="replace"))
    assert location is None or ".." not in location.base.split("/")


def import_line(data: bytes) -> None:
    """A line of an import: a record that is exported is imported as the same."""
    try:
        record = parse_record(_json(data), user="user")
    except InvalidInput:
        return
    line = json.loads(json.dumps(record.to_dict()))
    assert parse_record(line, user="user") == record


def filters(data: bytes) -> None:
    """Filters of a search, ours and mem0's."""
    plain = _json(data)
    try:
        parse_filter(plain)
    except RecollectError:
        pass
    try:
        entity_names(plain)
        filter_for("user", plain)
    except RecollectError:
        pass


def cursor(data: bytes) -> None:
    """The cursor of a page."""
    try:
        parse_cursor(data.decode("latin-1"))
    except InvalidInput:
        pass


def spilled_turns(data: bytes) -> None:
    """A spill file, which a crash may have torn."""
    path = _folder() / "spill.jsonl"
    path.write_bytes(data)
    for line in read_spilled_lines(path):
        assert line.start + line.length <= len(data)


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="recollect-fuzz-"))


_FILES = {
    "agent-cli": "entries/talk/facts/a.md",
    "chatgpt": "conversations.json",
    "claude": "conversations.json",
    "langgraph": "items.jsonl",
    "letta": "agent.af",
    "markdown": "notes.md",
    "recollect": "export.jsonl",
    "zep": "facts.json",
}


def _import(location: Path, kind: str) -> None:
    """Import without storing; a source that cannot be read is refused."""
    source = ImportSource(str(location))
    try:
        report = _run(_dry_run(source, kind))
    except InvalidInput:
        return
    assert report.added + report.present + report.kept <= report.memories + report.turns


async def _dry_run(source: ImportSource, kind: str) -> Any:
    ledger = await _ledger()
    quota = WriteQuota(ledger, 0)
    writer = RecordWriter(
        ledger=ledger, embedder=FakeEmbedder(8), redactor=Redactor(), quota=quota, by=Author("fuzz")
    )
    return await run_import(source, ImportOptions(user="user", dry_run=True), writer, kind=kind)


_ledgers: list[Any] = []


async def _ledger() -> Any:
    from recollect.ledger.sqlite import open_in_memory

    if not _ledgers:
        _ledgers.append(await open_in_memory(FakeEmbedder(8).model))
    return _ledgers[0]


def _file_importer(kind: str) -> Target:
    def target(data: bytes) -> None:
        path = _folder() / kind / _FILES[kind]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        _import(_folder() / kind, kind)

    target.__doc__ = f"A file of the importer {kind}."
    return target


def archive(data: bytes) -> None:
    """A zip archive of any product."""
    path = _folder() / "export.zip"
    path.write_bytes(data)
    _import(path, "auto")


def mem0_points(data: bytes) -> None:
    """A pickled point of Qdrant in a database of mem0: nothing in it is run."""
    folder = _folder() / "qdrant" / "collection" / "mem0"
    if not folder.exists():
        folder.mkdir(parents=True)
        with sqlite3.connect(folder / "storage.sqlite") as connection:
            connection.execute("CREATE TABLE points (id TEXT, point BLOB)")
    with sqlite3.connect(folder / "storage.sqlite") as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("DELETE FROM points")
        connection.execute("INSERT INTO points VALUES ('1', ?)", (data,))
    connection.close()
    _import(_folder() / "qdrant", "mem0")


def sqlite_file(data: bytes) -> None:
    """A damaged database: the importers of mem0 and LangGraph read such files."""
    path = _folder() / "damaged" / "chroma.sqlite3"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    for kind in ("mem0", "langgraph"):
        _import(path.parent, kind)


_TARGETS = (
    chat_body, chat_options, chat_headers, json_web_token, upstream_stream, upstream_answer, compressed_answer,
    translated_stream, response_body, model_json, front_matter, mirror_file, mirror_path, import_line, filters,
    cursor, spilled_turns, archive, mem0_points, sqlite_file,
)  # fmt: skip
TARGETS: dict[str, Target] = {target.__name__: target for target in _TARGETS} | {
    f"import_{kind.replace('-', '_')}": _file_importer(kind) for kind in IMPORTERS if kind in _FILES
}
