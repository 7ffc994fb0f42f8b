"""The prompts of language models, one Markdown file each, and their loader.

A file begins with a header:

    ---
    purpose: Rewrite a vague question so that it can be understood alone.
    inputs: question, conversation
    ---

The rest is the text, with a `$placeholder` for each input; `$$` is a dollar sign.
"""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from pathlib import Path
from string import Template

from recollect.frozen_dataclass import frozen_dataclass


@frozen_dataclass
class Prompt:
    """A prompt; `digest` identifies its text, and is stored with the memories that it produced."""

    name: str
    purpose: str
    inputs: tuple[str, ...]
    text: str
    digest: str

    def fill(self, **values: str) -> str:
        """Return the text with an input in place of each placeholder; the inputs themselves are not expanded."""
        if values.keys() != set(self.inputs):
            raise ValueError(f"the prompt {self.name} needs {', '.join(self.inputs)}, got {', '.join(values)}")
        return Template(self.text).substitute(values)


@cache
def prompt_names() -> tuple[str, ...]:
    """Return the names of all prompts."""
    names = (file.name for file in Path(__file__).parent.iterdir())
    return tuple(sorted(name.removesuffix(".md") for name in names if name.endswith(".md")))


@cache
def prompt(name: str) -> Prompt:
    """Return a prompt by its name."""
    whole = Path(__file__).with_name(f"{name}.md").read_text(encoding="utf-8")
    mark, header, text = whole.split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in header.splitlines())
    inputs = tuple(sorted(part.strip() for part in fields.get("inputs", "").split(",")))
    text = text.strip()
    if mark or fields.keys() != {"purpose", "inputs"} or inputs != tuple(sorted(Template(text).get_identifiers())):
        raise ValueError(f"prompts/{name}.md: the header must name the purpose, and as inputs the placeholders")
    return Prompt(name, fields["purpose"], inputs, text, blake2b(text.encode(), digest_size=8).hexdigest())
