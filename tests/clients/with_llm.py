"""The command `llm` and its library do all they do, through the proxy; models are named in its own file."""

import base64
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import llm
import openai
from pydantic import BaseModel

url, user, picture, budget, question = sys.argv[1:]
home = Path(tempfile.mkdtemp())
os.environ["LLM_USER_PATH"] = str(home)
(home / "extra-openai-models.yaml").write_text(
    f"- model_id: scripted\n  model_name: scripted\n  api_base: {url}\n  api_key_name: test\n  vision: true\n"
    f"  supports_schema: true\n  supports_tools: true\n  headers:\n    X-Memory-User: {user}\n"
)
(home / "keys.json").write_text('{"test": "sk-test"}')


class Person(BaseModel):
    name: str
    age: int


def weather(city: str) -> str:
    """How the weather is."""
    return "sunny"


def command(text: str, *more: str) -> str:
    """What the command prints."""
    program = [str(Path(sys.executable).parent / "llm"), "-m", "scripted", *more, text]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120)
    return done.stdout.strip() or done.stderr.strip()


def ask(text: str, **more: Any) -> str:
    return llm.get_model("scripted").prompt(text, stream=False, **more).text()


def error() -> list[object]:
    try:
        ask("You go too fast")
    except openai.RateLimitError as refused:
        return [refused.status_code, refused.code]
    return []


image = llm.Attachment(content=base64.b64decode(picture.partition(",")[2]), type="image/png")
command(budget)
found = {
    "chat": ask("Hello"),
    "stream": command("Count"),
    "tools": llm.get_model("scripted").chain("How is the weather?", tools=[weather]).text(),
    "image": ask("What is in this picture?", attachments=[image]),
    "structured": json.loads(ask("Ann is 30", schema=Person)),
    "error": error(),
    "recalled": command(question, "--no-stream"),
    "recalled_streamed": command(question),
}
print(json.dumps(found))
