"""The YAML at the head of a Markdown file, as plain values."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from recollect.errors import InvalidInput

_MAX_FRONT_MATTER = 1 << 16


def read_front_matter(text: str, name: str) -> tuple[dict[str, Any], str]:
    """The front matter and the words after it; there need not be any."""
    if not text.startswith("---\n") and not text.startswith("---\r\n"):
        return {}, text.strip()
    head, fence, body = text[3:].replace("\r\n", "\n").partition("\n---")
    if not fence or len(head) > _MAX_FRONT_MATTER:
        raise InvalidInput(f"the front matter of {name} has no end")
    import yaml

    try:
        # Aliases could make a few lines a million values; no front matter needs them.
        if "&" in head and any(isinstance(token, yaml.AliasToken) for token in yaml.scan(head)):
            raise InvalidInput(f"the front matter of {name} uses aliases")
        # Not by the loader in C, which is faster: what is nested too deep makes that one end the process.
        meta = yaml.safe_load(head) or {}
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the front matter of {name} is no YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(meta, dict):
        raise InvalidInput(f"the front matter of {name} is no mapping")
    return {str(key): _to_json_value(value) for key, value in meta.items()}, body.partition("\n")[2].strip()


def _to_json_value(value: Any) -> Any:
    """What JSON can hold: YAML makes times of its own accord."""
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(key): _to_json_value(each) for key, each in value.items()}
    return [_to_json_value(each) for each in value] if isinstance(value, list | set | tuple) else value
