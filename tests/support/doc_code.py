"""The code blocks of a document, by the section they are in."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FRAMEWORKS_PAGE = ROOT / "docs" / "frameworks.md"
# Sections of that page for frameworks that are not installed for development; `make clients` runs their code.
CLIENT_SECTIONS = {"CrewAI", "LlamaIndex", "Google ADK", "Vercel AI SDK"}
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)


def section_code(path: Path, language: str) -> dict[str, str]:
    """Return the code of each section that has any, in order."""
    _, *parts = _SECTION.split(path.read_text(encoding="utf-8"))
    block = re.compile(rf"^```{language}\n(.*?)^```", re.DOTALL | re.MULTILINE)
    code = {heading: "\n".join(block.findall(text)) for heading, text in zip(parts[::2], parts[1::2], strict=True)}
    return {heading: text for heading, text in code.items() if text}
