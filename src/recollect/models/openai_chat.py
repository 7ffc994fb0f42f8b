"""Chat models on any server with OpenAI's `/chat/completions`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, assert_never

from recollect.aio.breaker import Breaker
from recollect.errors import BrokenAnswer, InvalidInput, InvalidSettings
from recollect.model.messages import message_text
from recollect.model.text import repair_text
from recollect.models.chat import (
    AnswerOptions,
    ChatMessage,
    ChatReply,
    CompletionMixin,
    ConverseOptions,
    Form,
    ModelAnswer,
    SamplingOptions,
    ToolRequest,
)
from recollect.models.http_client import ModelHttpClient
from recollect.models.server_errors import describe_parse_error

if TYPE_CHECKING:
    import httpx


# Ten times what the longest answers of today's models take, thinking included.
MAX_ANSWER_BYTES = 4 << 20

# Newer models of OpenAI refuse these; the first refusal teaches us to send the stand-in, or nothing.
_STAND_INS = {"max_tokens": "max_completion_tokens", "temperature": None}

# A count beyond this is no count.
_MAX_TOKEN_COUNT = 1 << 40

T = TypeVar("T")
_OPEN, _CLOSE = "<think>", "</think>"
_JSON_STARTS = ("{", "[", "`")


class OpenAIChat(CompletionMixin):
    """Calls POST {base_url}/chat/completions; `timeout_s` is the maximum time including retries.

    A `transport` sends the requests in place of a connection of its own.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str = "",
        *,
        model: str,
        timeout_s: float = 60.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        if not model:
            raise InvalidSettings("a chat model needs a name")
        self.form: Form = "schema"
        self._model = model
        self._unsupported: frozenset[str] = frozenset()
        self._http = ModelHttpClient(
            base_url,
            api_key,
            path="/chat/completions",
            model=model,
            timeout_s=timeout_s,
            max_answer_bytes=MAX_ANSWER_BYTES,
            transport=transport,
            has_breaker=True,
        )

    @property
    def model(self) -> str:
        return self._model

    @property
    def breaker(self) -> Breaker:
        """The circuit breaker, shared with all others that call the model."""
        assert self._http.breaker is not None
        return self._http.breaker

    async def answer(self, messages: Sequence[ChatMessage], **options: Unpack[AnswerOptions]) -> ModelAnswer:
        """Return the answer and its cost; raise `BrokenAnswer` if it has no text.

        `schema` goes to the server in its strict form: every object closed, every property required.
        """
        schema, form = options.get("schema"), options.get("form", "schema")
        fields = {} if schema is None else _form_fields(schema, form)

        def parse(answer: Any) -> str:
            return (_tool_arguments(answer) if "tools" in fields else "") or _reply_text(answer)

        reply, cost = await self._ask(messages, options, fields, parse)
        return ModelAnswer(text=repair_text(reply), **cost)

    async def converse(self, messages: Sequence[Mapping[str, Any]], **options: Unpack[ConverseOptions]) -> ChatReply:
        """Return the next message and its tool calls; raise `BrokenAnswer` if there is neither."""
        tools = options.get("tools")

        def parse(answer: Any) -> tuple[str, tuple[ToolRequest, ...]]:
            tool_requests = parse_tool_requests(answer)
            reply = _without_thinking(message_text(answer["choices"][0]["message"].get("content"))).strip()
            return (reply if tool_requests else _reply_text(answer)), tool_requests

        fields = {"tools": [dict(tool) for tool in tools]} if tools else {}
        (text, tool_requests), cost = await self._ask(messages, options, fields, parse)
        return ChatReply(text=repair_text(text), tool_requests=tool_requests, **cost)

    async def _ask(
        self,
        messages: Sequence[Mapping[str, Any]],
        options: SamplingOptions,
        fields: Mapping[str, Any],
        parse: Callable[[Any], T],
    ) -> tuple[T, dict[str, Any]]:
        """Return the parsed answer and its cost; raise `BrokenAnswer` if it cannot be parsed."""
        request = {
            "model": self._model,
            "messages": [dict(message) for message in messages],
            "max_tokens": options["max_tokens"],
            "temperature": options.get("temperature", 0.0),
            **fields,
        }
        body = await self._post(request, options.get("timeout_s"))
        answer: Any = None
        try:
            answer = json.loads(body)
            return parse(answer), _cost(answer)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            reason = describe_parse_error(error)
            raise BrokenAnswer(f"{self._http.display_url} answered no message: {reason}", **_cost(answer)) from error

    async def close(self) -> None:
        await self._http.close()

    async def _post(self, request: Mapping[str, Any], timeout_s: float | None) -> bytes:
        """Post the request, without the parameters that this server is known to reject."""
        while True:
            refused = self._unsupported
            try:
                return await self._http.post(_with_stand_ins(request, refused), timeout_s=timeout_s)
            except InvalidSettings:
                raise
            except InvalidInput as error:
                complaint = str(error)
                unsupported = {name for name in _STAND_INS if name in complaint and "support" in complaint.casefold()}
                if unsupported <= refused:
                    raise
                self._unsupported |= unsupported


def _with_stand_ins(request: Mapping[str, Any], refused: frozenset[str]) -> dict[str, Any]:
    names = {name: _STAND_INS[name] if name in refused else name for name in request}
    return {name: request[name_in_request] for name_in_request, name in names.items() if name is not None}


def _form_fields(schema: Mapping[str, Any], form: Form) -> dict[str, Any]:
    """Return the request fields that make a server enforce the schema."""
    name = str(schema.get("title", "answer"))
    match form:
        case "schema":
            strict = {"name": name, "schema": dict(schema), "strict": True}
            return {"response_format": {"type": "json_schema", "json_schema": strict}}
        case "tool":
            function = {"name": name, "description": f"Takes the {name}.", "parameters": dict(schema)}
            tool = {"type": "function", "function": function}
            return {"tools": [tool], "tool_choice": {"type": "function", "function": {"name": name}}}
        case "prompt":
            return {}
    assert_never(form)


def _tool_arguments(answer: dict[str, Any]) -> str:
    """Return the arguments of the first function call; empty if there is none."""
    for call in answer["choices"][0]["message"].get("tool_calls") or ():
        arguments = call["function"]["arguments"]
        # Some servers send the object itself and not its text.
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        if text.strip():
            return text
    return ""


def parse_tool_requests(answer: dict[str, Any]) -> tuple[ToolRequest, ...]:
    """Return all function calls, each with an id; calls without a name are skipped."""
    tool_requests = []
    for at, call in enumerate(answer["choices"][0]["message"].get("tool_calls") or ()):
        arguments = call["function"].get("arguments")
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        name = call["function"].get("name")
        clean_name = repair_text(name) if isinstance(name, str) else ""
        tool_requests.append(
            ToolRequest(id=str(call.get("id") or f"call_{at}"), name=clean_name, arguments=repair_text(text))
        )
    return tuple(tool_requests)


def _cost(answer: Any) -> dict[str, Any]:
    """Return the tokens read and written, 0 if the server does not report them, and whether it was cut off."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    counts = [usage.get(name) if isinstance(usage, dict) else 0 for name in ("prompt_tokens", "completion_tokens")]
    tokens_in, tokens_out = (n if type(n) is int and 0 < n < _MAX_TOKEN_COUNT else 0 for n in counts)
    try:
        cut_off = bool(answer["choices"][0]["finish_reason"] == "length")
    except (TypeError, LookupError):
        cut_off = False
    return {"tokens_in": tokens_in, "tokens_out": tokens_out, "cut_off": cut_off}


def _reply_text(answer: dict[str, Any]) -> str:
    """Return the text of the first choice; raise `ValueError` if there is none."""
    choice = answer["choices"][0]
    message = choice["message"]
    reply = _without_thinking(message_text(message.get("content"))).strip()
    if reply:
        return reply
    if message.get("refusal"):
        raise ValueError("the model refused")
    if choice.get("finish_reason") == "length":
        # What it thought until then is no answer.
        raise ValueError("the model ran out of tokens before it said anything")
    # Some servers take the whole answer of a thinking model for its thoughts.
    thought = message.get("reasoning_content") or message.get("reasoning")
    reply = _without_thinking(message_text(thought)).strip()
    if not reply:
        raise ValueError("the model said nothing")
    return reply


def _without_thinking(text: str) -> str:
    """Return the text after the reasoning, whose opening tag may be missing; empty if it never ends."""
    at = 0
    while True:
        while text[at : at + 1].isspace():
            at += 1
        opened = text.startswith(_OPEN, at)
        # JSON may speak of the tag: there it is a part of the answer.
        if not opened and text.startswith(_JSON_STARTS, at):
            return text[at:]
        closed_at = text.find(_CLOSE, at)
        if closed_at < 0:
            return "" if opened else text[at:]
        if not opened and _OPEN in text[at:closed_at]:
            return text[at:]
        at = closed_at + len(_CLOSE)
