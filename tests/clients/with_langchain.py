"""LangChain's ChatOpenAI does all it does, through the proxy."""

import json
import sys

import openai
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

url, user, picture, budget, question = sys.argv[1:]


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@tool
def weather(city: str) -> str:
    """How the weather is."""
    return "sunny"


def session() -> ChatOpenAI:
    headers = {"X-Memory-User": user}
    return ChatOpenAI(base_url=url, api_key="sk-test", model="scripted", max_retries=0, default_headers=headers)


def tools() -> str:
    chat, messages = session().bind_tools([weather]), [HumanMessage("How is the weather?")]
    messages.append(chat.invoke(messages))
    messages += [weather.invoke(call) for call in messages[-1].tool_calls]
    return chat.invoke(messages).content


def error() -> list[object]:
    try:
        session().invoke("You go too fast")
    except openai.RateLimitError as refused:
        return [refused.status_code, refused.code]
    return []


shown = [{"type": "text", "text": "What is in this picture?"}, {"type": "image_url", "image_url": {"url": picture}}]
session().invoke(budget)
found = {
    "chat": session().invoke("Hello").content,
    "stream": "".join(chunk.content for chunk in session().stream("Count")),
    "tools": tools(),
    "image": session().invoke([HumanMessage(shown)]).content,
    "structured": session().with_structured_output(Person).invoke("Ann is 30").model_dump(),
    "error": error(),
    "recalled": session().invoke(question).content,
    "recalled_streamed": "".join(chunk.content for chunk in session().stream(question)),
}
print(json.dumps(found))
