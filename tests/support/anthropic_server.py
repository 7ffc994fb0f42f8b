"""An HTTP server with Anthropic's Messages API and a scripted model that uses the memory tool."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from uuid import uuid4

NOTES = "/memories/notes.md"
REMEMBER_PREFIX = "Remember: "
QUESTION = "What do you know?"
NOTHING = "I know nothing."


def model(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Write facts to a file; answer questions by viewing the folder and then the file."""
    assert {"type": "memory_20250818", "name": "memory"} in request["tools"]
    messages = _words(request["messages"][0]["content"])
    results = [_result(block) for message in request["messages"] for block in message["content"] if _is_result(block)]
    if messages.startswith(REMEMBER_PREFIX):
        options = {"command": "create", "path": NOTES, "file_text": messages.removeprefix(REMEMBER_PREFIX)}
        return _says(results[-1]) if results else _calls(options)
    if not results:
        return _calls({"command": "view", "path": "/memories"})
    if len(results) == 1 and NOTES in results[0]:
        return _calls({"command": "view", "path": NOTES})
    return _says(results[1] if len(results) > 1 else NOTHING)


def _calls(inputs: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"type": "tool_use", "id": "toolu_1", "name": "memory", "input": inputs}]


def _says(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]


def _is_result(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result"


def _result(block: dict[str, Any]) -> str:
    return ("Error: " if block.get("is_error") else "") + _words(block["content"])


def _words(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(block.get("text", "") for block in content)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # What was asked and answered, by the id of the answer: a client may go on from there without sending it again.
    held: ClassVar[dict[str, dict[str, Any]]] = {}

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert self.path.startswith("/v1/messages")
        if before := self.held.get((request.get("thread") or {}).get("previous_message_id")):
            request = {**before, **request, "messages": [*before["messages"], *request["messages"]]}
        content = model(request)
        id = f"msg_{uuid4().hex}"
        self.held[id] = {**request, "messages": [*request["messages"], {"role": "assistant", "content": content}]}
        message = {
            "id": id,
            "type": "message",
            "role": "assistant",
            "model": request["model"],
            "content": content,
            "stop_reason": content[-1]["type"] if content[-1]["type"] == "tool_use" else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        body = json.dumps(message).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@contextmanager
def endpoint() -> Iterator[str]:
    """Run the server; yield its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
