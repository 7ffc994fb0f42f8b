"""A scripted model for coding agents: the streams of Anthropic's Messages, OpenAI's Responses and Gemini's API."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# A prompt with these words makes the model call the tool `recall` once.
CALL_RECALL = "Call the tool recall"
QUERY = "staging database port"
ANSWER = "Understood, I keep to that."
_USAGE = {"input_tokens": 10, "output_tokens": 5}


class AgentLLM:
    """Requests that a coding agent sent, in order, and where it sends them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[dict[str, Any]] = []

    def take_texts(self) -> list[str]:
        """Return the requests since the last call, each as a text."""
        texts = [json.dumps(request, ensure_ascii=False) for request in self.requests]
        self.requests.clear()
        return texts


def _tool_to_call(body: dict[str, Any]) -> dict[str, str] | None:
    """Return the listed tool `recall`, if the prompt wants it and it was not called yet."""
    text = json.dumps(body)
    if CALL_RECALL not in text or any(f'"{name}"' in text for name in _RESULTS):
        return None
    return next((each for each in _listed_tools(body.get("tools", [])) if each["name"].endswith("recall")), None)


# What marks the result of a tool in a request.
_RESULTS = ("tool_result", "function_call_output", "functionResponse")


def _listed_tools(tools: list[dict[str, Any]], namespace: str = "") -> Iterator[dict[str, str]]:
    for tool in tools:
        if "functionDeclarations" in tool:
            yield from _listed_tools(tool["functionDeclarations"])
        elif tool.get("type") == "namespace":
            yield from _listed_tools(tool["tools"], tool["name"])
        elif "name" in tool:
            yield {"name": tool["name"], **({"namespace": namespace} if namespace else {})}


def _anthropic(body: dict[str, Any]) -> list[dict[str, Any]]:
    tool = _tool_to_call(body)
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _USAGE,
    }
    if tool:
        block: dict[str, Any] = {"type": "tool_use", "id": "toolu_1", "name": tool["name"], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps({"query": QUERY})}
    else:
        block = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": ANSWER}
    stop = {"stop_reason": "tool_use" if tool else "end_turn", "stop_sequence": None}
    if not body.get("stream"):
        content = {**block, "input": {"query": QUERY}} if tool else {**block, "text": ANSWER}
        return [{**message, "content": [content], **stop}]
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]


def _responses(body: dict[str, Any]) -> list[dict[str, Any]]:
    tool = _tool_to_call(body)
    if tool:
        arguments = json.dumps({"query": QUERY})
        item: dict[str, Any] = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "arguments": arguments}
        item |= tool
    else:
        content = [{"type": "output_text", "text": ANSWER, "annotations": []}]
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
    response = {"id": "resp_1", "object": "response", "model": body["model"], "output": [item]}
    usage = {**_USAGE, "total_tokens": 15, "input_tokens_details": None, "output_tokens_details": None}
    return [
        {"type": "response.created", "response": {**response, "output": [], "status": "in_progress"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {**response, "status": "completed", "usage": usage}},
    ]


def _gemini(body: dict[str, Any]) -> list[dict[str, Any]]:
    tool = _tool_to_call(body)
    part = {"functionCall": {"name": tool["name"], "args": {"query": QUERY}}} if tool else {"text": ANSWER}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    return [{"candidates": [candidate], "usageMetadata": usage}]


class _Handler(BaseHTTPRequestHandler):
    llm: AgentLLM

    def do_GET(self) -> None:
        self._answer([{"data": [], "models": []}], is_stream=False)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}")
        path = self.path.partition("?")[0]
        if path.endswith(("count_tokens", ":countTokens")):
            self._answer([{"input_tokens": 10, "totalTokens": 10}], is_stream=False)
        elif path.endswith("/messages"):
            self.llm.requests.append(body)
            self._answer(_anthropic(body), is_stream=bool(body.get("stream")))
        elif path.endswith("/responses"):
            self.llm.requests.append(body)
            self._answer(_responses(body), is_stream=True)
        elif path.endswith("enerateContent"):
            self.llm.requests.append(body)
            self._answer(_gemini(body), is_stream=path.endswith(":streamGenerateContent"))
        else:
            self._answer([{}], is_stream=False)

    def _answer(self, values: list[dict[str, Any]], *, is_stream: bool) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if is_stream else "application/json")
        self.end_headers()
        for value in values:
            data = json.dumps(value)
            event = f"event: {value['type']}\n" if "type" in value else ""
            self.wfile.write((f"{event}data: {data}\n\n" if is_stream else data).encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@contextmanager
def agent_llm() -> Iterator[AgentLLM]:
    """Serve the model on loopback."""
    handler = type("Handler", (_Handler,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        llm = AgentLLM(f"http://127.0.0.1:{server.server_address[1]}")
        handler.llm = llm  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield llm
        finally:
            server.shutdown()
            thread.join()
