"""Pydantic AI's agent does all it does, through the proxy."""

import asyncio
import json
import sys
from typing import Any

from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, ImageUrl, NativeOutput
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

url, user, picture, budget, question = sys.argv[1:]
sdk = AsyncOpenAI(base_url=url, api_key="sk-test", max_retries=0, default_headers={"X-Memory-User": user})
model = OpenAIChatModel("scripted", provider=OpenAIProvider(openai_client=sdk))


class Person(BaseModel):
    name: str
    age: int


async def ask(messages: Any) -> str:
    return (await Agent(model).run(messages)).output


async def streamed(text: str) -> str:
    async with Agent(model).run_stream(text) as answer:
        return "".join([piece async for piece in answer.stream_text(delta=True)])


async def tools() -> str:
    agent = Agent(model)

    @agent.tool_plain
    def weather(city: str) -> str:
        """How the weather is."""
        return "sunny"

    return (await agent.run("How is the weather?")).output


async def error() -> list[object]:
    try:
        await ask("You go too fast")
    except ModelHTTPError as refused:
        return [refused.status_code, refused.body["code"]]
    return []


async def main() -> None:
    await ask(budget)
    results = {
        "chat": await ask("Hello"),
        "stream": await streamed("Count"),
        "tools": await tools(),
        "image": await ask(["What is in this picture?", ImageUrl(picture)]),
        "structured": (await Agent(model, output_type=NativeOutput(Person)).run("Ann is 30")).output.model_dump(),
        "error": await error(),
        "recalled": await ask(question),
        "recalled_streamed": await streamed(question),
    }
    print(json.dumps(results))


asyncio.run(main())
