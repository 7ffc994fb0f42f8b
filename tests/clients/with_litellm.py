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


def ask(said: Any, **more: Any) -> Any:
    messages = said if isinstance(said, list) else [{"role": "user", "content": said}]
    told = {"api_base": url, "api_key": "sk-test", "num_retries": 0, "max_retries": 0, "user": user}
    return litellm.completion("openai/scripted", messages, **told, **more)


def text(answer: Any) -> str:
    return answer.choices[0].message.content


def streamed(said: str) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in ask(said, stream=True))


def tools() -> str:
    messages: list[Any] = [{"role": "user", "content": "How is the weather?"}]
    asked = ask(messages, tools=TOOLS).choices[0].message
    messages.append(asked.model_dump())
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in asked.tool_calls]
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
