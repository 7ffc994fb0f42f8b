"""LiteLLM's completion does all it does, through the proxy."""

import json
import sys
from typing import Any

import litellm
from pydantic import BaseModel

url, user, picture, budget, question = sys.argv[1:]
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]


class Person(BaseModel):
    name: str
    age: int


def ask(dialogue: Any, **more: Any) -> Any:
    messages = dialogue if isinstance(dialogue, list) else [{"role": "user", "content": dialogue}]
    report = {"api_base": url, "api_key": "sk-test", "num_retries": 0, "max_retries": 0, "user": user}
    return litellm.completion("openai/scripted", messages, **report, **more)


def text(answer: Any) -> str:
    return answer.choices[0].message.content


def streamed(text: str) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in ask(text, stream=True))


def tools() -> str:
    messages: list[Any] = [{"role": "user", "content": "How is the weather?"}]
    request = ask(messages, tools=TOOLS).choices[0].message
    messages.append(request.model_dump())
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in request.tool_calls]
    return text(ask(messages, tools=TOOLS))


def error() -> list[object]:
    try:
        ask("You go too fast")
    except litellm.RateLimitError as refused:
        return [refused.status_code, "rate_limit_exceeded" if "Slow down" in str(refused) else str(refused)]
    return []


shown = [{"type": "text", "text": "What is in this picture?"}, {"type": "image_url", "image_url": {"url": picture}}]
ask(budget)
found = {
    "chat": text(ask("Hello")),
    "stream": streamed("Count"),
    "tools": tools(),
    "image": text(ask([{"role": "user", "content": shown}])),
    "structured": json.loads(text(ask("Ann is 30", response_format=Person))),
    "error": error(),
    "recalled": text(ask(question)),
    "recalled_streamed": streamed(question),
}
print(json.dumps(found))
