"""Inputs to begin with for each fuzz target, and those on which a parser once failed."""

from __future__ import annotations

import base64
import gzip
import json
import sqlite3
import zipfile
import zlib
from io import BytesIO


def _event(text: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]}).encode() + b"\n\n"


def _zip(name: str = "conversations.json") -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(zipfile.ZipInfo(name), _CHATGPT, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _store(prefix: str | None = "memories.alex") -> bytes:
    """Return a database as LangGraph writes it."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE store (prefix TEXT, key TEXT, value TEXT, created_at TEXT, updated_at TEXT)")
    row = (prefix, "k", '{"text": "likes tea"}', "2026-01-01", "")
    connection.execute("INSERT INTO store VALUES (?, ?, ?, ?, ?)", row)
    connection.commit()
    return connection.serialize()


_CHAT = (
    b'{"model": "m", "messages": [{"role": "user", "content": "hi \\u00e9", "name": "a"}, {"role": "assistant", '
    b'"content": [{"type": "text", "text": "x"}]}], "stream": true, "temperature": 1e400, "user": "alex", '
    b'"memory_id": "m", "memory_top_k": 3, "memory_config": {"enabled": true, "memory_types": ["semantic"]}, '
    b'"memory_context": {"user_id": "alex"}, "metadata": {"user_id": "alex"}}'
)
_RECORD = (
    b'{"id": "a", "memory": "likes tea", "user_id": "alex", "project_id": null, "session_id": "s", "level": "user", '
    b'"category": "turn", "created_at": "2026-01-01T00:00:00+00:00", "key": "k", "value": "v", "importance": 0.5, '
    b'"trust": "low", "tags": ["t"], "metadata": {"a": [1, {"b": null}]}, "detail": {"role": "user", "position": 1}, '
    b'"version": 2, "status": "superseded", "superseded_by": "b", "evidence": ["c"]}'
)
_FILE = (
    b"---\nid: a\nconversation_id: talk\nrole: memory\ncreated_at: 2026-01-01T00:00:00Z\ntags: [x, 'y']\n"
    b"importance: 0.7\nmetadata: {a: 1, b: [2026-01-01, 1e3, ~]}\n---\n# Tea\n\n- likes *tea*\n\n```\ncode\n```\n"
)
_CHATGPT = json.dumps(
    [{"title": "t", "id": "c", "create_time": 1.7e9, "current_node": "b", "mapping": {
        "a": {"id": "a", "parent": None, "message": None, "children": ["b"]},
        "b": {"id": "b", "parent": "a", "children": [], "message": {"id": "b", "create_time": 1.7e9, "author": {
            "role": "user"}, "content": {"content_type": "text", "parts": ["I like tea"]}, "metadata": {}}}}}]
)  # fmt: skip
_CLAUDE = json.dumps(
    [{"uuid": "u", "name": "n", "created_at": "2026-01-01T00:00:00Z", "chat_messages": [{"uuid": "m", "text": "tea",
        "sender": "human", "created_at": "2026-01-01T00:00:00Z", "content": [{"type": "text", "text": "tea"}]}]}]
)  # fmt: skip
_LETTA = json.dumps(
    {"agents": [{"id": "a", "name": "n", "block_ids": ["b"], "messages": [{"role": "user", "content": "tea",
        "id": "m", "created_at": "2026-01-01"}]}], "blocks": [{"id": "b", "label": "human", "value": "likes tea"}],
     "core_memory": [{"label": "human", "value": "x"}]}
)  # fmt: skip
_ZEP = json.dumps(
    [{"uuid": "u", "fact": "likes tea", "source_node_uuid": "s", "valid_at": "2026-01-01T00:00:00Z", "name": "LIKES"},
     {"uuid": "m", "role_type": "user", "content": "tea", "session_id": "s", "created_at": "2026-01-01T00:00:00Z"},
     {"uuid": "e", "source_description": "d", "valid_at": "2026-01-01", "content": "user: tea", "source": "message"}]
)  # fmt: skip
_TOKEN = b".".join(
    base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")
    for part in (
        {"alg": "EdDSA", "kid": "k"},
        {"sub": "ann", "iss": "i", "aud": "a", "exp": 9e9, "org": "o"},
        "x" * 47,
    )
)
SEEDS: dict[str, list[bytes]] = {
    "chat_body": [_CHAT, b' {"a":[1, 2 ],"a":{"b":"\\ud83c"}} ', b'{"n":-0.0,"b":1E5,"c":NaN}'],
    "chat_options": [_CHAT],
    "chat_headers": [
        b"authorization:Bearer rk_abc\nx-api-key:rk_def\nx-user:\xe9\nx-forwarded-for:a, 10.0.0.1\nx-memory:read\n"
        b"x-memory-user:\xc3\xa9\nx-memory-mode:task\nx-memory-is-fact:true"
    ],
    "json_web_token": [_TOKEN, b"a.b.c"],
    "upstream_stream": [_event("tea") + b": ping\r\n\r\n" + _event("\U0001f375") + b"data: [DONE]\n\n"],
    "upstream_answer": [
        b'{"choices": [{"index": 0, "message": {"content": "tea", "tool_calls": [{"id": "c", "type": "function", '
        b'"function": {"name": "f", "arguments": "{\\"a\\": 1}"}}]}}], "usage": {"prompt_tokens": 1}}'
    ],
    "compressed_answer": [gzip.compress(_event("tea") * 9, mtime=0), zlib.compress(_event("tea") * 9)],
    "translated_stream": [
        _event("tea")
        + b'data: {"choices": [{"delta": {"reasoning_content": "r", "tool_calls": [{"index": 0, "id": "c", '
        b'"function": {"name": "f", "arguments": "{}"}}]}, "finish_reason": "tool_calls"}], "usage": '
        b'{"total_tokens": 3}}\n\n',
        b'data: {"error": {"message": "m", "code": 3}}\n\n',
    ],
    "response_body": [
        b'{"model": "m", "input": [{"role": "user", "content": [{"type": "input_text", "text": "t"}]}, {"type": '
        b'"function_call", "call_id": "c", "name": "f", "arguments": "{}"}, {"type": "function_call_output", '
        b'"call_id": "c", "output": "o"}], "instructions": "i", "tools": [{"type": "function", "name": "f", '
        b'"parameters": {}}], "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}, '
        b'"conversation": {"id": "x"}}'
    ],
    "model_json": [b'```json\n{"facts": [{"id": 0, "content": "tea \\"x\\"", a: \'b\', }], "n": 1 // c\n``` {"cut'],
    "front_matter": [_FILE, b"------le: x\ny: 5\n----\n*", b"-----\nA rule, not front matter."],
    "mirror_file": [_FILE],
    "mirror_path": [b"users/alex/entries/talk/facts/a.md", b"users/../entries/deleted/talk/turns/user/a.md"],
    "import_line": [_RECORD],
    "filters": [
        b'{"AND": [{"category": "fact"}, {"NOT": {"tags": {"in": ["a"]}}}, {"importance": {"gte": 0.5}}], "OR": '
        b'[{"created_at": {"lt": "2026-01-01"}}, {"metadata.a": {"ne": 1}}], "user_id": "*"}'
    ],
    "cursor": [b"1767225600000000_a"],
    "spilled_turns": [
        b'{"user":"u","project":"","session":"s","given_at":"2026-01-01T00:00:00+00:00","message":{"role":"user",'
        b'"content":"tea"},"mode":"chat"}\n  \n{"cut'
    ],
    "archive": [
        _zip(),
        _zip(""),
        _zip("é").replace("é".encode(), b"\xb0\xb0", 1),
        _zip()[:60] + b"\xff\xff" + _zip()[62:],
    ],
    "mem0_points": [
        b"\x80\x04\x95F\x00\x00\x00\x00\x00\x00\x00\x8c\x14qdrant_client.models\x94\x8c\x0bPointStruct\x94\x93\x94)"
        b"\x81\x94}\x94\x8c\x08__dict__\x94}\x94(\x8c\x02id\x94K\x01\x8c\x07payload\x94}\x94us\x62.",
    ],
    "sqlite_file": [_store(), _store(None)],
    "import_agent_cli": [_FILE],
    "import_chatgpt": [_CHATGPT.encode()],
    "import_claude": [_CLAUDE.encode()],
    "import_langgraph": [b'{"namespace": ["memories", "alex"], "key": "k", "value": {"text": "tea"}, "at": 1}'],
    "import_letta": [_LETTA.encode()],
    "import_markdown": [_FILE],
    "import_recollect": [_RECORD + b'\n{"kind": "session", "user_id": "alex", "session_id": "s", "turn_count": 1}\n'],
    "import_zep": [_ZEP.encode()],
}  # fmt: skip
