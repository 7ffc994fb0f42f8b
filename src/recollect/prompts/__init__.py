"""What is said to language models: one Markdown file a prompt, and the loader that reads them.

A file begins with a header that says what the prompt is for and what it must be given:

    ---
    purpose: Say a vague question so that it can be understood alone.
    inputs: question, conversation
    ---

The rest is the text, with a `$placeholder` for each input; `$$` is a dollar sign.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from string import Template


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt; `digest` changes with every change of its text, and goes into what the prompt produced."""

    name: str
    purpose: str
    inputs: tuple[str, ...]
    text: str
    digest: str

    def fill(self, **values: str) -> str:
        """The text with every input in its place; what an input holds is never taken for a placeholder."""
        if values.keys() != set(self.inputs):
            raise ValueError(f"the prompt {self.name} takes {', '.join(self.inputs)}, not {', '.join(values)}")
        return Template(self.text).substitute(values)


@cache
def prompt_names() -> tuple[str, ...]:
    """The prompts that ship with Recollect."""
    names = (file.name for file in files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(".md") for name in names if name.endswith(".md")))


@cache
def prompt(name: str) -> Prompt:
    """The prompt of that name; a ValueError, which only a broken file can cause, says what is wrong with it."""
    whole = (files(__name__) / f"{name}.md").read_text(encoding="utf-8")
    mark, header, text = whole.split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in header.splitlines())
    inputs = tuple(sorted(part.strip() for part in fields.get("inputs", "").split(",")))
    text = text.strip()
    if mark or fields.keys() != {"purpose", "inputs"} or inputs != tuple(sorted(Template(text).get_identifiers())):
        raise ValueError(f"prompts/{name}.md: the header must name the purpose, and as inputs the placeholders")
    return Prompt(name, fields["purpose"], inputs, text, blake2b(text.encode(), digest_size=8).hexdigest())
